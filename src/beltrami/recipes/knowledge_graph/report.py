"""The knowledge-graph recipe's page: the tables, the pictures, what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from beltrami.analysis.intervals import mean_interval
from beltrami.recipes.pages import run_facts, training_figure
from beltrami.recipes.results import ArmResult, RunResult, TrialResult
from beltrami.recipes.tables import result_tables
from beltrami.report.charts import Estimate, Group, Series, dot_chart, line_chart
from beltrami.report.page import Figure, Page, Section

if TYPE_CHECKING:
    from beltrami.recipes.knowledge_graph.recipe import KnowledgeGraphRecipe

MOST_SHOWN = 25  # relations in a chart: those with the most test triples
HOW_IT_IS_MEASURED = (
    "A test triple asks two questions: which tail belongs to this head and relation, and which "
    "head to this relation and tail. All entities are ranked by their score; other answers that "
    "are known to be true, in any of the three files, are taken out first (the filtered "
    "protocol). A tie counts as the middle of its ranks.",
    "Each model is kept as it was at the epoch with the highest MRR on the validation triples; "
    "the learning rate was chosen by the same number. The test triples decide nothing.",
    "A model and its twin have the same entities, turns, translations, biases, batches and steps. "
    "The hyperbolic one has one number more for each relation and direction: its curvature.",
)


def knowledge_graph_page(recipe: KnowledgeGraphRecipe, run_result: RunResult) -> Page:
    """The page of a finished run."""
    curved, twin = _leaders(run_result)
    figures = [_relation_figure(recipe, curved, twin)]
    if curved.results[0].curves.get("curvature"):
        figures.append(_curvature_figure(recipe, curved))
    return Page(
        title=f"{recipe.graph.name}: links in curved and flat space",
        lead=_lead(recipe, curved, twin),
        figures=tuple(figures),
        table=None,
        sections=(
            Section("The comparison", (_verdict(curved, twin),), (), result_tables(run_result, {})),
            Section(
                "How it was trained",
                (),
                (_validation_figure(run_result), training_figure(run_result, {})),
            ),
            Section("How it is measured", HOW_IT_IS_MEASURED),
        ),
        facts=(*_facts(recipe), *run_facts(run_result, {})),
        command=run_result.command,
        footer=f"Written by beltrami {run_result.document['beltrami']}.",
    )


def _leaders(run_result: RunResult) -> tuple[ArmResult, ArmResult]:
    """The hyperbolic arm with the highest validation MRR, and its twin."""
    curved = [s for s in run_result.arm_results if s.arm.twin]
    best = max(curved, key=lambda s: s.comparison("valid_mrr").value.mean)
    twin = next(s for s in run_result.groups()[best.arm.group] if s.arm.model == best.arm.twin)
    return best, twin


def _lead(recipe: KnowledgeGraphRecipe, curved: ArmResult, twin: ArmResult) -> str:
    graph = recipe.graph
    return (
        f"{len(graph.entities):,} entities and {len(graph.relations):,} relations in "
        f"{curved.arm.group}. The right answer to a question about a held-out link is "
        f"ranked first in {curved.comparison('hits@1').value.mean:.1%} of cases by "
        f"{curved.arm.model} and in {twin.comparison('hits@1').value.mean:.1%} by its "
        f"Euclidean twin, {twin.arm.model}."
    )


def _verdict(curved: ArmResult, twin: ArmResult) -> str:
    comparison = curved.comparison("mrr")
    if comparison.difference is None or comparison.difference.half_width is None:
        return "One seed gives no interval, so whether the difference is chance cannot be said."
    gap = comparison.difference.format(comparison.metric.digits)
    pair = f"{curved.arm.model} and {twin.arm.model}"
    return {
        "better": f"Curvature helps here: MRR is higher by {gap} over the seeds.",
        "worse": f"Curvature does not help here: MRR changes by {gap} over the seeds.",
        "no difference": f"The seeds do not tell {pair} apart: MRR changes by {gap}.",
    }[comparison.verdict]


def _relation_figure(recipe: KnowledgeGraphRecipe, curved: ArmResult, twin: ArmResult) -> Figure:
    relations = [int(r) for r in curved.results[0].curves["relation"]]
    counts = recipe.graph.test[:, 1].bincount(minlength=len(recipe.graph.relations)).tolist()
    shown = sorted(relations, key=lambda r: (-counts[r], r))[:MOST_SHOWN]
    groups = [
        Group(
            f"{recipe.graph.relations[r]} ({counts[r]:,})",
            {
                s.arm.model: _estimate(
                    [result.curves["relation_mrr"][relations.index(r)] for result in s.results]
                )
                for s in (curved, twin)
            },
        )
        for r in shown
    ]
    svg = dot_chart(
        groups,
        title="MRR by relation",
        description="Filtered MRR of the test triples of each relation.",
        x_label="MRR",
    )
    count = len(relations)
    note = "" if len(shown) == count else f" The {len(shown)} most frequent of {count}."
    caption = (
        f"{curved.arm.group}; in brackets the number of test triples. Lines are 95% "
        f"intervals over seeds.{note}"
    )
    return Figure("MRR by relation", svg, caption)


def _curvature_figure(recipe: KnowledgeGraphRecipe, curved: ArmResult) -> Figure:
    relations = recipe.graph.relations
    counts = recipe.graph.train[:, 1].bincount(minlength=len(relations)).tolist()
    shown = sorted(range(len(relations)), key=lambda r: (-counts[r], r))[:MOST_SHOWN]
    groups = [
        Group(
            relations[r],
            {
                name: _estimate([_curvatures(result)[place] for result in curved.results])
                for name, place in (("head to tail", r), ("tail to head", r + len(relations)))
            },
        )
        for r in shown
    ]
    svg = dot_chart(
        groups,
        title="Curvature by relation",
        description=f"The curvature of each relation in {curved.arm.model}.",
        x_label="c (the space has curvature −c)",
        x_log=True,
    )
    start = curved.arm.settings.curvature
    learned = curved.arm.settings.curvature_rate > 0
    how = f"All started at {start:g}." if learned else f"All were kept at {start:g}."
    caption = f"{curved.arm.model}, {curved.arm.group}. {how} Near 0 space is flat."
    return Figure("Curvature by relation", svg, caption)


def _curvatures(result: TrialResult) -> Sequence[float]:
    return result.curves["curvature"]


def _estimate(values: Sequence[float]) -> Estimate:
    interval = mean_interval(values)
    if interval.half_width is None:
        return Estimate(interval.mean)
    return Estimate(
        interval.mean, interval.mean - interval.half_width, interval.mean + interval.half_width
    )


def _validation_figure(run_result: RunResult) -> Figure:
    group, arm_results = next(iter(run_result.groups().items()))
    series = [
        Series(s.arm.model, s.results[0].curves["epoch"], s.results[0].curves["valid_mrr"])
        for s in arm_results
    ]
    svg = line_chart(
        series,
        title="Validation MRR",
        description="Filtered MRR of the validation triples by epoch, for each model.",
        x_label="Epoch",
        y_label="MRR",
    )
    return Figure("Validation MRR", svg, f"{group}, first seed, at the chosen settings.")


def _facts(recipe: KnowledgeGraphRecipe) -> tuple[tuple[str, str], ...]:
    data, config = recipe.data_facts(), recipe.config
    unseen = data["test_unseen_triples"]
    missing = (
        f"; {unseen:,} test triples name an entity that training never shows" if unseen else ""
    )
    against = {
        "pairs": f"{config.negatives:g} random pairs a triple, by a pool of {config.pool:,}",
        "tails": f"{config.negatives:g} random tails a triple, by a pool of {config.pool:,}",
        "softmax": "all entities, by a softmax",
    }[config.objective]
    return (
        (
            "Data",
            f"{data['name']}: {data['entities']:,} entities, {data['relations']:,} relations, "
            f"{data['train']:,} triples to train, {data['valid']:,} to validate, "
            f"{data['test']:,} to test{missing}",
        ),
        (
            "Training",
            f"Adam, {config.epochs} epochs, {config.batch} triples a step, against {against}, "
            "float32",
        ),
    )
