"""What the pages of all recipes show alike: the training, and the facts of a run."""

from __future__ import annotations

from collections.abc import Mapping

from beltrami.recipes.results import ArmResult, RunResult
from beltrami.report.charts import Series, line_chart
from beltrami.report.page import Figure


def training_figure(
    run_result: RunResult, names: Mapping[str, str], *, key: str = "loss"
) -> Figure:
    """A logged value of the first seed by step, in the first group; logarithmic where it can be."""
    group, arm_results = next(iter(run_result.groups().items()))
    series = []
    for arm_result in arm_results:
        points = [(e["step"], e[key]) for e in arm_result.results[0].history if key in e]
        if points:
            x, y = ([float(point[i]) for point in points] for i in (0, 1))
            series.append(Series(model_name(arm_result, names), x, y))
    svg = line_chart(
        series,
        title=f"Training {key}",
        description=f"The {key} of a batch by step, for each model.",
        x_label="Step",
        y_label=key.capitalize(),
        y_log=all(value > 0 for line in series for value in line.y),
    )
    caption = ", ".join(filter(None, [group, "first seed, at the chosen settings."]))
    return Figure(f"Training {key}", svg, caption)


def run_facts(run_result: RunResult, names: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Parameters, choices, seeds, time and machine, for the page's list of facts."""
    document = run_result.document
    environment = document["environment"]
    facts = [("Parameters", "; ".join(_parameters(run_result, names)))]
    chosen = [
        f"{model_name(s, names)}{_in(s)} {_choice(s)}" for s in run_result.arm_results if s.choice
    ]
    if chosen:
        facts.append(("Chosen on the first seed", "; ".join(chosen)))
    seconds = [
        f"{model_name(s, names)}{_in(s)} {_seconds(s):.1f} s" for s in run_result.arm_results
    ]
    processes = environment["processes"]
    return (
        *facts,
        ("Seeds", str(document["settings"]["seeds"])),
        ("Time a training", "; ".join(seconds)),
        (
            "Machine",
            f"{environment['device']}, {processes} process{'' if processes == 1 else 'es'}, "
            f"{environment['threads']} threads, torch {environment['torch']}",
        ),
    )


# What a verdict on a share of right answers means, in a sentence.
VERDICTS = {
    "better": "The interval of the difference is above 0: curvature helps here.",
    "worse": "The interval of the difference is below 0: curvature does not help here.",
    "no difference": "The seeds do not tell the two apart.",
    "": "One seed gives no interval.",
}


def model_name(arm_result: ArmResult, names: Mapping[str, str]) -> str:
    """What to call an arm."""
    return names.get(arm_result.arm.model, arm_result.arm.model)


def _in(arm_result: ArmResult) -> str:
    group = arm_result.arm.group
    return f" ({group})" if group else ""


def _choice(arm_result: ArmResult) -> str:
    shown = (
        f"{key.replace('_', ' ')} {f'{value:g}' if isinstance(value, float) else value}"
        for key, value in arm_result.choice.items()
    )
    return ", ".join(shown)


def _seconds(arm_result: ArmResult) -> float:
    times = [result.seconds for result in arm_result.results]
    return sum(times) / len(times)


def _parameters(run_result: RunResult, names: Mapping[str, str]) -> list[str]:
    """One number a group where all models have it, else one a model."""
    lines = []
    for group, arm_results in run_result.groups().items():
        counts = {model_name(s, names): s.results[0].parameters for s in arm_results}
        trained = {name: count for name, count in counts.items() if count}
        where = f" ({group})" if group else ""
        if not trained:
            lines.append(f"none trained{where}")
        elif len(set(trained.values())) == 1:
            lines.append(f"{next(iter(trained.values())):,} each{where}")
        else:
            lines.append(", ".join(f"{n} {count:,}" for n, count in trained.items()) + where)
    return lines
