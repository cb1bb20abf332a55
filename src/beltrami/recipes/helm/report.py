"""The helm recipe's page."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import beltrami
from beltrami.analysis.intervals import Interval, mean_interval
from beltrami.recipes.helm.config import HELM, NAMES, TWIN
from beltrami.recipes.helm.measures import step_seconds, validation_curve
from beltrami.recipes.pages import model_name, run_facts
from beltrami.recipes.results import ArmResult, RunResult
from beltrami.recipes.tables import difference_cell, show
from beltrami.report.charts import Series, line_chart
from beltrami.report.page import Cell, Figure, Page, Row, Section, Table

if TYPE_CHECKING:
    from beltrami.recipes.helm.recipe import HelmRecipe

VERDICTS = {
    "better": "HELM is better: the interval is below 0.",
    "worse": "HELM is worse: the interval is above 0.",
    "no difference": "The interval contains 0: these seeds do not tell the two apart.",
    "": "One seed gives no interval.",
}
HOW_IT_IS_MEASURED = (
    "Both models have as many parameters within 1 percent, with and without those of embeddings "
    "and word scores. The twin is a Llama. Batches are the same at every step of a seed. Each "
    "model tries the learning rates on the first seed, and the lowest loss on validation documents "
    "decides. Test documents are among neither those to train on nor those to choose by. A "
    "tokenizer that is trained here has seen all documents, and is the same for both models.",
    "A loss is the mean cross-entropy of predicted tokens in nats; bits per byte divide the sum by "
    "the UTF-8 bytes of these tokens. The first token of a document is not predicted.",
    "The time of a step is the median of the training, so it leaves out compiling, validation and "
    "checkpoints. At equal time, the slower model is still at a higher learning rate than it would "
    "end with. Several jobs on one machine slow each other down. MFU counts 6 operations a token "
    "and parameter (without the embedding) and 12·layers·length·width for attention, over the "
    "GPU's peak in bfloat16 by its data sheet.",
)
WHAT_A_RADIUS_IS = (
    "The scaled radius is √c·|x|, without a unit: well below 1 space looks flat, above it "
    "curvature acts. Of the twin it is |x|/√d, which is the same thing at c = 1/d. All radii are "
    "of the first seed on test documents."
)
NO_WORDNET = (
    "Radii by level in WordNet are left out, as WordNet is not installed: beltrami data get "
    "wordnet-3.0 brings it."
)


def helm_page(recipe: HelmRecipe, run_result: RunResult) -> Page:
    """The page of a finished run."""
    data, chosen = recipe.data_facts(), recipe.config.chosen
    arms = {arm_result.arm.model: arm_result for arm_result in run_result.arm_results}
    pair = [arms[HELM], arms[TWIN]]
    wordnet = () if run_result.document["findings"]["wordnet"] else (NO_WORDNET,)
    sizes = "; ".join(
        f"{NAMES[name]} {body:,} of {total:,} (MLP of {recipe.mlp_width(name):,})"
        for name, (total, body) in recipe.parameters.items()
    )
    documents, tokens = data["documents"], data["tokens"]
    return Page(
        title=f"{data['name']}: a language model in curved and in flat space",
        lead=_lead(pair, run_result, chosen.tokens),
        figures=(_loss_figure(run_result.arm_results, False), _loss_figure(pair, True)),
        table=arms_table(run_result),
        sections=(
            *_ablation(run_result.arm_results),
            Section("Radius", (WHAT_A_RADIUS_IS, *wordnet), _radius_figures(pair)),
            Section("Curvature and residual weights", (), _curvature_figures(arms[HELM])),
            Section("Samples", (), (), _sample_tables(pair)),
            Section("How it is measured", HOW_IT_IS_MEASURED),
        ),
        facts=(
            (
                "Text",
                f"{data['name']}, vocabulary {data['vocabulary']:,}; "
                + ", ".join(
                    f"{part}: {tokens[part]:,} tokens of {documents[part]:,} documents"
                    for part in documents
                ),
            ),
            (
                "Training",
                f"{chosen.layers} blocks, width {chosen.width}, {chosen.heads} heads; AdamW, "
                f"{chosen.tokens:,} tokens, {chosen.batch} rows of {chosen.length} a step, "
                + ("documents apart, " if recipe.config.document_masks else "one stream, ")
                + str(pair[0].arm.settings.precision),
            ),
            ("Without embeddings", sizes),
            *run_facts(run_result, NAMES),
            ("Commit", _commit()),
        ),
        command=run_result.command,
        footer=f"Written by beltrami {run_result.document['beltrami']}.",
    )


def _lead(pair: Sequence[ArmResult], run_result: RunResult, tokens: int) -> str:
    ours, twin = (arm_result.comparison("test_loss") for arm_result in pair)
    gap, seeds = ours.difference, len(pair[0].results)
    difference = "unknown" if gap is None else gap.format(4)
    at_time = run_result.document["findings"]["equal_time"]["difference"]
    time = (
        ""
        if at_time is None or at_time["mean"] is None
        else " At equal training time the difference on validation documents is "
        f"{Interval(at_time['mean'], at_time['half_width']).format(4)}."
    )
    return (
        f"After {tokens:,} tokens the loss on test documents is {show(ours.value, 4)} nats a token "
        f"for HELM and {show(twin.value, 4)} for its Euclidean twin; the mean difference over "
        f"{seeds} paired seed{'s' if seeds > 1 else ''}, HELM minus twin, is {difference} (95% "
        f"interval). "
        f"{VERDICTS[ours.verdict]}{time}"
    )


def arms_table(run_result: RunResult) -> Table:
    """A row an arm."""
    shown = [m for m in ("peak_memory", "mfu") if m in run_result.arm_results[0].results[0].metrics]
    titles = {"peak_memory": "Peak GiB", "mfu": "MFU"}
    rows = []
    for arm_result in run_result.arm_results:
        by_key = {c.metric.key: c for c in arm_result.comparisons}
        values: list[str | Cell] = []
        values.append(show(by_key["test_loss"].value, 4))
        values.append(difference_cell(by_key["test_loss"]) if arm_result.arm.twin else "–")
        values += [show(by_key[key].value, 4) for key in ("test_bits", "validation_loss")]
        values.append(f"{arm_result.results[0].trial.choice['learning_rate']:g}")
        for key in ("tokens_per_second", *shown):
            c = by_key.get(key)
            values.append("–" if c is None else f"{c.value.mean:,.{c.metric.digits}f}")
        rows.append(Row(model_name(arm_result, NAMES), "", tuple(values)))
    columns = ("Test loss", "− twin", "Bits per byte", "Validation loss", "Learning rate")
    return Table(
        "Mean ± 95% t-interval over seeds; differences are paired by seed.",
        (*columns, "Tokens/s", *(titles[key] for key in shown)),
        tuple(rows),
        head="Model",
    )


def _ablation(arm_results: Sequence[ArmResult]) -> tuple[Section, ...]:
    """How much worse HELM is without each part."""
    full = next(s for s in arm_results if s.arm.model == HELM)
    rows = []
    for arm_result in arm_results:
        if arm_result.arm.choice_of:
            pairs = zip(arm_result.results, full.results, strict=True)
            gap = mean_interval([a.value("test_loss") - b.value("test_loss") for a, b in pairs])
            rows.append(Row(model_name(arm_result, NAMES), "", (show(gap, 4),)))
    if not rows:
        return ()
    table = Table(
        "Test loss minus that of HELM, paired by seed; above 0, the part helps.",
        ("− HELM",),
        tuple(rows),
        head="Model",
    )
    return (Section("What each part does", (), (), (table,)),)


def _lines(heading: str, series: Sequence[Series], x: str, y: str, caption: str) -> Figure:
    svg = line_chart(series, title=heading, description=caption, x_label=x, y_label=y)
    return Figure(heading, svg, caption)


def _loss_figure(arm_results: Sequence[ArmResult], by_time: bool) -> Figure:
    series = []
    for arm_result in arm_results:
        settings, results = arm_result.arm.settings, arm_result.results
        steps, _ = validation_curve(results[0])
        unit = float(settings.batch * settings.length)
        if by_time:
            unit = mean_interval([step_seconds(result.history) for result in results]).mean
        losses = zip(*(validation_curve(result)[1] for result in results), strict=True)
        bands = [mean_interval(values) for values in losses]
        widths = [band.half_width or 0.0 for band in bands]
        low, high = (
            [b.mean + sign * w for b, w in zip(bands, widths, strict=True)] for sign in (-1, 1)
        )
        x, means = [step * unit for step in steps], [band.mean for band in bands]
        series.append(Series(model_name(arm_result, NAMES), x, means, low, high))
    what = "Seconds" if by_time else "Tokens"
    caption = "Validation documents (at most 16 batches); means over seeds with 95% intervals."
    heading = f"Validation loss by {'time' if by_time else 'tokens'}"
    return _lines(heading, series, f"{what} of training", "Nats a token", caption)


def _radius_figures(pair: Sequence[ArmResult]) -> tuple[Figure, ...]:
    curves = {model_name(arm_result, NAMES): arm_result.results[0].curves for arm_result in pair}
    by_depth = [
        Series(name, *(of[f"radius{end}"] for end in (" x", "", " low", " high")))
        for name, of in curves.items()
    ]
    caption = "Means; bars hold 80% of the tokens."
    figures = [_lines("By depth", by_depth, "Blocks before", "Scaled radius", caption)]
    caption = "Means of rows of the embedding, and of tokens after the last block."
    for key, heading, x in (
        ("decile", "By frequency", "Tenth of the vocabulary, the rarest first"),
        ("level", "By level in WordNet", "Edges below the root"),
    ):
        series = [
            Series(f"{name}, {place}", of[f"{key} {place} x"], of[f"{key} {place}"])
            for name, of in curves.items()
            for place in ("embedding", "last block")
            if f"{key} {place}" in of
        ]
        if series:
            figures.append(_lines(heading, series, x, "Scaled radius", caption))
    return tuple(figures)


def _curvature_figures(helm: ArmResult) -> tuple[Figure, ...]:
    result, kinds = helm.results[0], ("stream", "head", "score")
    history = [e for e in result.history if "stream curvature" in e]
    steps = [e["step"] for e in history]
    over_steps = [Series(kind, steps, [e[f"{kind} curvature"] for e in history]) for kind in kinds]
    blocks = list(map(float, range(1, len(result.curves["mlp residual"]) + 1)))

    def by_block(what: str, names: Sequence[str]) -> list[Series]:
        curves = {name: result.curves[f"{name} {what}"] for name in names}
        return [Series(n, blocks, c) for n, c in curves.items() if len(c) == len(blocks)]

    figures = [
        ("Curvature over training", over_steps, "Step", "κ = c·d"),
        ("Curvature by block", by_block("curvature", kinds[:2]), "Block", "κ = c·d"),
        ("Residual weights", by_block("residual", ("attention", "mlp")), "Block", "w"),
    ]
    caption = "First seed; all begin at 1."
    return tuple(_lines(name, lines, x, y, caption) for name, lines, x, y in figures if lines)


def _sample_tables(pair: Sequence[ArmResult]) -> tuple[Table, ...]:
    texts = [arm_result.results[0].texts for arm_result in pair]
    prompts = texts[0].get("prompts", ())
    if not prompts:
        return ()
    rows = [
        Row(prompt, "", tuple(text["samples"][i] for text in texts))
        for i, prompt in enumerate(prompts)
    ]
    caption = "How the models of the first seed go on with test documents."
    columns = tuple(model_name(arm_result, NAMES) for arm_result in pair)
    return (Table(caption, columns, tuple(rows), head="Beginning", prose=True),)


def _commit() -> str:
    """The commit of the source that ran; "–" of an installed package."""
    root = Path(beltrami.__file__).parents[2]
    if not (root / ".git").exists():
        return "–"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "–"
