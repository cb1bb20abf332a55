"""The cones recipe's page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beltrami.recipes.cones.config import NAMES
from beltrami.recipes.pages import model_name, run_facts, training_figure
from beltrami.recipes.results import RunResult
from beltrami.recipes.tables import result_tables
from beltrami.report.charts import Series, line_chart
from beltrami.report.page import Figure, Page, Section

if TYPE_CHECKING:
    from beltrami.recipes.cones.recipe import ConesRecipe

HOW_IT_IS_MEASURED = (
    "The hierarchy's direct edges are always shown. Of the pairs that they imply, a twentieth each "
    "is kept for validation and test, each with ten false pairs beside it, and a share of the rest "
    "is shown as well: the protocol of Ganea, Bécigneul and Hofmann (2018). A pair is called true "
    "if the descendant lies within an angle of the ancestor's cone; the angle is the one of best "
    "F1 on the validation pairs. A node above all others is left out, as there.",
    "All geometries have the same number of parameters and start from the same tangent vectors: "
    "the tree of direct edges unfolded from the origin, radius by depth, with random turns. The "
    "published runs start from embeddings trained by distances instead, so numbers compare "
    "within this page only. Shown pairs, false pairs and their order are the same.",
    "The learning rate was chosen on the first seed, and the epoch on every seed, by F1 on "
    "validation pairs. Each seed has its own held-out pairs.",
)


def cones_page(recipe: ConesRecipe, run_result: RunResult) -> Page:
    """The page of a finished run."""
    data, config = recipe.data_facts(), recipe.config
    return Page(
        title=f"{data['name']}: entailment cones in curved and flat space",
        lead=_lead(run_result),
        figures=tuple(
            _share_figure(run_result, key, title)
            for key, title in (("f1", "F1"), ("average_precision", "Average precision"))
        ),
        table=None,
        sections=(
            Section("The comparison", (), (), result_tables(run_result, NAMES)),
            Section("How it was trained", (), (training_figure(run_result, NAMES),)),
            Section("How it is measured", HOW_IT_IS_MEASURED),
        ),
        facts=(
            (
                "Data",
                f"{data['name']}: {data['nodes']:,} nodes, {data['edges']:,} edges, "
                f"{data['pairs']:,} pairs of a node and an ancestor, depth {data['depth']}",
            ),
            (
                "Training",
                f"Riemannian Adam, {config.dim} dimensions, {config.epochs} epochs, "
                f"{config.batch} pairs a step, float64",
            ),
            *run_facts(run_result, NAMES),
        ),
        command=run_result.command,
        footer=f"Written by beltrami {run_result.document['beltrami']}.",
    )


def _lead(run_result: RunResult) -> str:
    group, arm_results = list(run_result.groups().items())[-1]
    scores = (f"{model_name(s, NAMES)} {s.comparison('f1').value.format()}" for s in arm_results)
    return " ".join(
        [
            f"With {group}, F1 on pairs that were not is: {', '.join(scores)}.",
            *_verdicts(run_result),
        ]
    )


def _verdicts(run_result: RunResult) -> list[str]:
    """At how many shares each geometry is better or worse than its twin, by F1."""
    verdicts_by_model: dict[str, list[str]] = {}
    for arm_result in run_result.arm_results:
        if arm_result.arm.twin:
            verdict = arm_result.comparison("f1").verdict
            verdicts_by_model.setdefault(model_name(arm_result, NAMES), []).append(verdict)
    return [
        f"Of {len(verdicts)} shares, {name} is better than its Euclidean twin at "
        f"{verdicts.count('better')}, worse at {verdicts.count('worse')}, and at "
        f"{verdicts.count('no difference')} the seeds do not tell them apart."
        for name, verdicts in verdicts_by_model.items()
        if all(verdicts)
    ]


def _share_figure(run_result: RunResult, key: str, title: str) -> Figure:
    lines: dict[str, list[tuple[float, float, float, float]]] = {}
    for arm_result in run_result.arm_results:
        value = arm_result.comparison(key).value
        width = value.half_width or 0.0
        share = 100 * float(arm_result.arm.settings.share)
        lines.setdefault(model_name(arm_result, NAMES), []).append(
            (share, value.mean, max(0.0, value.mean - width), min(1.0, value.mean + width))
        )
    series = [
        Series(name, *([point[i] for point in sorted(points)] for i in range(4)))
        for name, points in lines.items()
    ]
    svg = line_chart(
        series,
        title=f"{title} by share shown",
        description=f"{title} on held-out pairs against the share of implied pairs shown.",
        x_label="% of the implied pairs shown in training",
        y_label=f"{title} on held-out pairs",
    )
    return Figure(
        f"{title} by share shown", svg, "Bars are 95% intervals over seeds, cut off at 0 and 1."
    )
