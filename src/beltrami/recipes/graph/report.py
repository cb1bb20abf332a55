"""The graph recipe's page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beltrami.recipes.graph.config import NAMES
from beltrami.recipes.pages import model_name, run_facts, training_figure
from beltrami.recipes.recipe import Metric
from beltrami.recipes.results import RunResult
from beltrami.recipes.tables import result_tables
from beltrami.report.charts import Estimate, Group, dot_chart
from beltrami.report.page import Figure, Page, Section

if TYPE_CHECKING:
    from beltrami.recipes.graph.recipe import GraphRecipe

TASKS = {
    "nodes": (
        "node classification",
        "Of the labelled nodes of each class 30% are trained on, 10% chosen on and 60% tested on. "
        "Messages pass along all edges; labels of test nodes are never seen.",
    ),
    "links": (
        "link prediction",
        "Of the edges 85% are trained on, 5% chosen on and 10% tested on, each against as many "
        "pairs that are not edges. Messages pass along training edges alone, and in each step not "
        "along those that are asked for.",
    ),
}
ALIKE = 0.01  # share of its parameters by which a twin may differ without mention
HOW_IT_IS_COMPARED = (
    "Splits, starts and steps are by the same seeds. The learning rate was chosen on the first "
    "seed and the epoch on every seed, by the score on validation data: macro F1 for nodes, ROC "
    "AUC for links."
)


def graph_page(recipe: GraphRecipe, run_result: RunResult) -> Page:
    """The page of a finished run."""
    data, config = recipe.data_facts(), recipe.config
    task, how = TASKS[config.task]
    shown = [m for m in recipe.metrics if m.better and m.key != recipe.chosen_by]
    classes = f", {data['classes']} classes" if data["classes"] else ""
    return Page(
        title=f"{data['name']}: {task} in curved and flat space",
        lead=_lead(run_result, shown[0], recipe.chosen_by),
        figures=tuple(_dots(run_result, metric) for metric in shown),
        table=None,
        sections=(
            Section("The comparison", (), (), result_tables(run_result, NAMES)),
            Section("How it was trained", (), (training_figure(run_result, NAMES),)),
            Section("How it is measured", (how, twin_sizes(run_result), HOW_IT_IS_COMPARED)),
        ),
        facts=(
            (
                "Data",
                f"{data['name']}: {data['nodes']:,} nodes, {data['edges']:,} edges, "
                f"{data['features']:,} features{classes}",
            ),
            (
                "Training",
                f"Riemannian AdamW, {config.epochs} full-batch steps, hidden and last widths "
                f"{', '.join(map(str, config.widths))} (hyperbolic)",
            ),
            *run_facts(run_result, NAMES),
        ),
        command=run_result.command,
        footer=f"Written by beltrami {run_result.document['beltrami']}.",
    )


def twin_sizes(run_result: RunResult) -> str:
    """How the twins compare in parameters, by their counts."""
    apart = []
    for name, arm_results in run_result.groups().items():
        sizes = {s.arm.model: s.results[0].parameters for s in arm_results}
        for arm_result in arm_results:
            if arm_result.arm.twin:
                own, twin = sizes[arm_result.arm.model], sizes[arm_result.arm.twin]
                if abs(twin - own) > ALIKE * own:
                    apart.append(
                        f"{name}: {own:,} and {twin:,} in the twin ({twin / own - 1:+.1%})"
                    )
    text = (
        "Each network has a Euclidean twin of the same kind. The twin has no use for time columns; "
        "its hidden layers, if there are any, are a little wider instead. "
    )
    if not apart:
        return f"{text}Their numbers of parameters differ by {ALIKE:.0%} at most."
    return f"{text}Numbers of parameters that differ by more than {ALIKE:.0%}: {'; '.join(apart)}."


def _lead(run_result: RunResult, metric: Metric, chosen_by: str) -> str:
    """The kind of layer that did best on validation data, with its twin."""
    curved = [s for s in run_result.arm_results if s.arm.twin]
    best = max(curved, key=lambda s: s.comparison(chosen_by).value.mean)
    twin = next(s for s in run_result.groups()[best.arm.group] if s.arm.model == best.arm.twin)
    gap = best.comparison(metric.key)
    verdict = {
        "better": "The interval of the difference is above 0.",
        "worse": "The interval of the difference is below 0.",
        "no difference": "The seeds do not tell the two apart.",
        "": "One seed gives no interval.",
    }[gap.verdict]
    return (
        f"{best.arm.group} did best on validation data. On test data, "
        f"{metric.title} is {gap.value.format()} in hyperbolic space and "
        f"{twin.comparison(metric.key).value.format()} in the Euclidean twin. {verdict}"
    )


def _dots(run_result: RunResult, metric: Metric) -> Figure:
    groups = [
        Group(
            name,
            {
                model_name(s, NAMES): Estimate.around(
                    s.comparison(metric.key).value.mean, s.comparison(metric.key).value.half_width
                )
                for s in arm_results
            },
        )
        for name, arm_results in run_result.groups().items()
    ]
    svg = dot_chart(
        groups,
        title=f"{metric.title} by layer",
        description=f"{metric.title} of each kind of layer in hyperbolic and flat space.",
        x_label=metric.title,
    )
    return Figure(metric.title, svg, "Test data; bars are 95% intervals over seeds.")
