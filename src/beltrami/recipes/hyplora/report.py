"""The hyplora recipe's page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from beltrami.analysis.intervals import mean_interval
from beltrami.recipes.hyplora.config import TWIN
from beltrami.recipes.pages import VERDICTS, model_name, run_facts, training_figure
from beltrami.recipes.results import ArmResult, RunResult, TrialResult
from beltrami.recipes.tables import difference_cell, show
from beltrami.report.charts import Estimate, Group, Series, dot_chart, histogram, line_chart
from beltrami.report.page import Cell, Figure, Page, Row, Section, Table

if TYPE_CHECKING:
    from beltrami.data.word_problems import WordProblem
    from beltrami.recipes.hyplora.recipe import HypLoraRecipe

SHOWN_CASES = 6  # each way
LONGEST_TEXT = 400  # characters of a question or an answer
HOW_IT_IS_MEASURED = (
    "Every method starts from the same model and sees the same questions in the same order of a "
    "seed, and adapts the same layers; series adapters and prefixes are sized to come near LoRA's "
    "number of trained parameters. A prefix has no dropout.",
    "Each method tries the learning rates on the first seed; the lowest loss on validation answers "
    "decides for the other seeds. Full fine-tuning tries a tenth of the rates, prefix tuning ten "
    "times the rates.",
    "An exact match is a generated answer whose final number, letter or word is the right one: "
    "what follows the last “####” or “answer is”, else the last of the text. Test questions that "
    "are also among those to train on were left out.",
    "The answer loss is the mean cross-entropy of the tokens of the tests' own solutions, of those "
    "tests that have any. Kept "
    "memory is what a step holds for its backward pass, without the parameters.",
)
WHAT_A_GAIN_IS = (
    "HypLoRA's update is LoRA's times one number a token, the gain. It depends on the norm of the "
    "layer's input (or of the residual stream) and on the norm of the update. Gains that are all "
    "alike mean that HypLoRA is LoRA with another alpha there.",
    "Shown are the tokens of some test questions and solutions on the first seed. Boost also turns "
    "the update; its gain is the ratio of the lengths.",
)


def hyplora_page(recipe: HypLoraRecipe, run_result: RunResult) -> Page:
    """The page of a finished run."""
    data, config, names = recipe.data_facts(), recipe.config, recipe.names
    twin = _twin(run_result)
    curved = [s for s in run_result.arm_results if s.arm.model.startswith("hyplora")]
    tests = ", ".join(f"{count:,} of {name}" for name, count in data["tests"].items())
    sections = [
        Section("The comparison", (), (), (methods_table(run_result, names),)),
    ]
    if figures := _accuracy_figures(recipe, run_result):
        sections.append(Section("By difficulty and by test", (), figures))
    if gains := _gain_figures(curved, names):
        sections.append(Section("Gains", WHAT_A_GAIN_IS, gains))
    if curvatures := _curvature_figures(curved, names):
        sections.append(Section("Learned curvatures", (), curvatures))
    if curved:
        sections.append(_cases(recipe.questions.tested, twin, curved[0], names))
    sections += [
        Section("How it was trained", (), (training_figure(run_result, names),)),
        Section("How it is measured", HOW_IT_IS_MEASURED),
    ]
    return Page(
        title=f"{data['name']}: fine-tuning {data['model']}",
        lead=_lead(twin, curved, names),
        figures=(_score_figure(run_result, names),),
        table=None,
        sections=tuple(sections),
        facts=(
            ("Model", data["model"]),
            ("Questions", f"{data['train']:,} to train on, {data['validation']:,} to choose by"),
            ("Tests", tests),
            (
                "Cut off",
                f"{data['cut_off']:,} solutions to train on, at {config.chosen.longest} tokens",
            ),
            (
                "Adapters",
                f"rank {config.chosen.rank}, {_alphas(run_result)}, dropout "
                f"{config.chosen.dropout:g}, on {', '.join(config.chosen.targets)}",
            ),
            (
                "Training",
                f"AdamW, {config.chosen.epochs:g} epochs, {config.chosen.batch} questions a step",
            ),
            *run_facts(run_result, names),
        ),
        command=run_result.command,
        footer=f"Written by beltrami {run_result.document['beltrami']}.",
    )


def _alphas(run_result: RunResult) -> str:
    """The common alpha, or each alpha with its models."""
    models_of: dict[float, list[str]] = {}
    for arm_result in run_result.arm_results:
        models_of.setdefault(arm_result.arm.settings.alpha, []).append(arm_result.arm.model)
    if len(models_of) == 1:
        return f"alpha {next(iter(models_of)):g}"
    shown = (f"{alpha:g} ({', '.join(models)})" for alpha, models in models_of.items())
    return f"unequal alphas {', '.join(shown)}"


def _lead(twin: ArmResult, curved: Sequence[ArmResult], names: Mapping[str, str]) -> str:
    plain = f"LoRA gets {twin.comparison('accuracy').value.format()} of the answers right"
    if not curved:
        return f"{plain}."
    comparison = curved[0].comparison("accuracy")
    name = model_name(curved[0], names)
    return f"{plain}, {name} {comparison.value.format()}. {VERDICTS[comparison.verdict]}"


def methods_table(run_result: RunResult, names: Mapping[str, str]) -> Table:
    """A row a method: how right it is, what it costs, and which rate it chose."""
    twin = _twin(run_result)
    rows = []
    for arm_result in run_result.arm_results:
        comparisons = {c.metric.key: c for c in arm_result.comparisons}
        control = arm_result.arm.model == TWIN
        values: list[str | Cell] = []
        for key in ("accuracy", "answer_loss"):
            comparison = comparisons.get(key)  # tests without solutions have no loss
            values.append("–" if comparison is None else show(comparison.value, 3))
            values.append("–" if control or comparison is None else difference_cell(comparison))
        first = arm_result.results[0]
        values += [
            f"{first.parameters:,}",
            _ratio(_mean_seconds(arm_result), _mean_seconds(twin)),
            _ratio(first.metrics.get("kept"), twin.results[0].metrics.get("kept")),
            _rate(arm_result),
        ]
        rows.append(Row(model_name(arm_result, names), "", tuple(values)))
    seeds = len(twin.results)
    spread = (
        f"Mean ± 95% t-interval over {seeds} seeds, differences to LoRA paired by seed."
        if seeds > 1
        else "One seed, so no intervals."
    )
    columns = (
        "Exact match",
        "Exact match − LoRA",
        "Answer loss",
        "Answer loss − LoRA",
        "Trained parameters",
        "Time ÷ LoRA's",
        "Kept ÷ LoRA's",
        "Learning rate",
    )
    return Table(spread, columns, tuple(rows), head="Method")


def _twin(run_result: RunResult) -> ArmResult:
    return next(s for s in run_result.arm_results if s.arm.model == TWIN)


def _mean_seconds(arm_result: ArmResult) -> float:
    times = [result.seconds for result in arm_result.results]
    return sum(times) / len(times)


def _ratio(value: float | None, unit: float | None) -> str:
    return f"{value / unit:.2f}" if value and unit else "–"


def _rate(arm_result: ArmResult) -> str:
    rate = arm_result.choice.get(
        "learning_rate", arm_result.results[0].trial.choice.get("learning_rate")
    )
    return "–" if rate is None else f"{rate:g}"


def _score_figure(run_result: RunResult, names: Mapping[str, str]) -> Figure:
    estimates = {}
    for arm_result in run_result.arm_results:
        value = arm_result.comparison("accuracy").value
        estimates[model_name(arm_result, names)] = Estimate.around(value.mean, value.half_width)
    svg = dot_chart(
        [Group("Exact match", estimates)],
        title="Right answers by method",
        description="Share of right answers of each way to fine-tune; higher is better.",
        x_label="Share of right answers",
    )
    return Figure("Right answers", svg, "All tests; bars are 95% intervals over seeds.", wide=True)


def _accuracy_figures(recipe: HypLoraRecipe, run_result: RunResult) -> tuple[Figure, ...]:
    figures = []
    names = recipe.names
    steps = sorted({p.steps for p in recipe.questions.tested if p.steps})
    if len(steps) > 1:
        svg = line_chart(
            [
                s
                for s in (
                    _by_steps(arm_result, steps, names) for arm_result in run_result.arm_results
                )
                if s.x
            ],
            title="Right answers by number of steps",
            description="Share of right answers by the number of steps a question takes.",
            x_label="Steps",
            y_label="Share of right answers",
            y_limits=(0, 1),
        )
        figures.append(
            Figure("By steps", svg, "Bars are 95% intervals over seeds, cut off at 0 and 1.")
        )
    if len(recipe.questions.tests) > 1:
        groups = []
        for name in recipe.questions.tests:
            estimates = {}
            for arm_result in run_result.arm_results:
                value = arm_result.comparison(f"accuracy in {name}").value
                estimates[model_name(arm_result, names)] = Estimate.around(
                    value.mean, value.half_width
                )
            groups.append(Group(name, estimates))
        svg = dot_chart(
            groups,
            title="Right answers by test",
            description="Share of right answers in each test.",
            x_label="Share of right answers",
        )
        figures.append(Figure("By test", svg, "Bars are 95% intervals over seeds."))
    return tuple(figures)


def _by_steps(arm_result: ArmResult, steps: Sequence[int], names: Mapping[str, str]) -> Series:
    x, means, low, high = [], [], [], []
    for n in steps:
        values = [r.value(f"accuracy {n} steps") for r in arm_result.results]
        if all(map(math.isfinite, values)):
            interval = mean_interval(values)
            width = interval.half_width or 0.0
            x.append(float(n))
            means.append(interval.mean)
            low.append(max(0.0, interval.mean - width))
            high.append(min(1.0, interval.mean + width))
    return Series(model_name(arm_result, names), x, means, low, high)


def _gain_figures(curved: Sequence[ArmResult], names: Mapping[str, str]) -> tuple[Figure, ...]:
    figures: list[Figure] = []
    for arm_result in curved:
        curves = arm_result.results[0].curves
        kinds = [k.split()[1] for k in curves if k.startswith("gain ") and k.endswith(" block")]
        if not kinds:
            continue
        name = model_name(arm_result, names)
        figures.append(
            Figure(
                f"{name}: gains by kind of layer",
                histogram(
                    {kind: curves[f"gain {kind}"] for kind in kinds},
                    title=f"Gains of {name} by kind of layer",
                    description="How gains of tokens are distributed, for each kind of layer.",
                    x_label="Gain",
                    y_label="Share of tokens",
                    share=True,
                ),
                "1 is LoRA. Quantiles of the tokens of all blocks.",
            )
        )
        series = [
            Series(
                kind,
                curves[f"gain {kind} block"],
                curves[f"gain {kind} middle"],
                curves[f"gain {kind} low"],
                curves[f"gain {kind} high"],
            )
            for kind in kinds
        ]
        figures.append(
            Figure(
                f"{name}: gains by block",
                line_chart(
                    series,
                    title=f"Gains of {name} by block",
                    description="The median gain of each kind of layer in each block.",
                    x_label="Block",
                    y_label="Gain",
                ),
                "Medians; bands hold 90% of the tokens.",
            )
        )
    return tuple(figures)


def _curvature_figures(curved: Sequence[ArmResult], names: Mapping[str, str]) -> tuple[Figure, ...]:
    figures = []
    for arm_result in curved:
        learned = arm_result.arm.settings.hyplora.get("learn_curvature", "no") != "no"
        curves = arm_result.results[0].curves
        kinds = [
            k.split()[1] for k in curves if k.startswith("curvature ") and k.endswith(" block")
        ]
        if not learned or not kinds:
            continue
        name = model_name(arm_result, names)
        svg = line_chart(
            [Series(k, curves[f"curvature {k} block"], curves[f"curvature {k}"]) for k in kinds],
            title=f"Curvatures of {name}",
            description="The curvature c of each adapted layer after training.",
            x_label="Block",
            y_label="Curvature c",
        )
        figures.append(Figure(f"{name}", svg, "First seed. All began at 1."))
    return tuple(figures)


def _cases(
    problems: Sequence[WordProblem], twin: ArmResult, curved: ArmResult, names: Mapping[str, str]
) -> Section:
    name = model_name(curved, names)
    ours, theirs = curved.results[0], twin.results[0]
    right = [(_right(ours, i), _right(theirs, i)) for i in range(len(problems))]
    gained = [i for i, (a, b) in enumerate(right) if a and not b]
    lost = [i for i, (a, b) in enumerate(right) if b and not a]
    both = sum(a and b for a, b in right)
    lead = (
        f"On the first seed both answer {both} of {len(problems)} questions right, {name} alone "
        f"{len(gained)}, LoRA alone {len(lost)}. The first of each:"
    )
    tables = tuple(
        Table(
            f"Only {who} is right.",
            ("Right", "LoRA", name),
            tuple(
                Row(
                    _cut(problems[i].question),
                    "",
                    (problems[i].answer, _said(theirs, i), _said(ours, i)),
                )
                for i in cases[:SHOWN_CASES]
            ),
            head="Question",
            prose=True,
        )
        for who, cases in ((name, gained), ("LoRA", lost))
        if cases
    )
    return Section("Where they differ", (lead,), (), tables)


def _right(result: TrialResult, i: int) -> bool:
    return result.curves["right"][i] > 0


def _said(result: TrialResult, i: int) -> str:
    return _cut(result.texts["answers"][i])


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
