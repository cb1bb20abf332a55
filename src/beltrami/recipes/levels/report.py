"""The levels recipe's page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from beltrami.analysis.intervals import mean_interval
from beltrami.recipes.levels.config import NAMES
from beltrami.recipes.pages import VERDICTS, model_name, run_facts, training_figure
from beltrami.recipes.results import ArmResult, RunResult
from beltrami.recipes.tables import result_tables
from beltrami.report.charts import Estimate, Group, Series, dot_chart, line_chart
from beltrami.report.page import Figure, Page, Section

if TYPE_CHECKING:
    from beltrami.recipes.levels.recipe import LevelsRecipe

HOW_IT_IS_MEASURED = (
    "Of the leaves 60% are trained on, 20% chosen on and 20% tested on, drawn anew by each seed. A "
    "leaf's class at a level is its ancestor there; an accuracy is over the leaves that have one. "
    "Classes that no training leaf has cannot be found, in either geometry.",
    "Hierarchical F1 compares the classes found at all levels with those that the leaf has, summed "
    "over leaves. A class is found at every level, and one below the leaf's own depth is wrong, so "
    "1 is out of reach where leaves end at different depths, in either geometry.",
    "The tree-induced error is the number of edges between the class found at a leaf's lowest "
    "level and the right one; LCA height is how far up their lowest common ancestor is; Jaccard "
    "compares their ancestors. These three, and the accuracies, are told the leaf's depth.",
    "The Euclidean twin has hidden layers a little wider, to come as close in parameters as widths "
    "allow; the counts are among the facts below. Starts, splits and batches are by the same "
    "seeds. The learning rate was chosen on the first seed and the epoch on every "
    "seed, by hierarchical F1 on validation leaves.",
)


def levels_page(recipe: LevelsRecipe, run_result: RunResult) -> Page:
    """The page of a finished run."""
    data, config = recipe.data_facts(), recipe.config
    curved, twin = run_result.arm_results
    scores = [s.comparison("hierarchical_f1").value.format() for s in (curved, twin)]
    source = "names, as hashed n-grams" if config.features is None else "given features"
    names = [name for name, _ in recipe.level_names.values()]
    sizes = ", ".join(
        f"{size:,} at {name}" for name, size in zip(names, data["classes"].values(), strict=True)
    )
    return Page(
        title=f"{data['name']}: levels of a taxonomy in curved and flat space",
        lead=(
            f"{data['leaves']:,} leaves known by {source}. Hierarchical F1 is {scores[0]} in "
            f"hyperbolic space ({model_name(curved, NAMES)}) and {scores[1]} in its Euclidean "
            f"twin. {VERDICTS[curved.comparison('hierarchical_f1').verdict]}"
        ),
        figures=(_level_figure(recipe, run_result), _score_figure(run_result)),
        table=None,
        sections=(
            Section("The comparison", (), (), result_tables(run_result, NAMES)),
            Section("How it was trained", (), (training_figure(run_result, NAMES),)),
            Section("How it is measured", HOW_IT_IS_MEASURED),
        ),
        facts=(
            ("Data", f"{data['name']}: {data['nodes']:,} nodes, {data['leaves']:,} leaves"),
            ("Classes", sizes),
            ("Features", f"{data['features']:,}, {source}"),
            (
                "Training",
                f"Riemannian AdamW, {config.epochs} epochs, {config.batch} leaves a step",
            ),
            *run_facts(run_result, NAMES),
        ),
        command=run_result.command,
        footer=f"Written by beltrami {run_result.document['beltrami']}.",
    )


def _level_figure(recipe: LevelsRecipe, run_result: RunResult) -> Figure:
    ranks = recipe.samples.labels.ranks
    svg = line_chart(
        [_accuracy_series(arm_result) for arm_result in run_result.arm_results],
        title="Accuracy by level",
        description="Share of right classes at each level of the taxonomy.",
        x_label=f"Rank ({', '.join(ranks)})" if ranks else "Level (edges below the root)",
        y_label="Accuracy on test leaves",
        y_limits=(0, 1),
    )
    return Figure(
        "Accuracy by level", svg, "Bars are 95% intervals over seeds, cut off at 0 and 1."
    )


def _accuracy_series(arm_result: ArmResult) -> Series:
    """Means over the seeds that have leaves at a level; a level without any is left out."""
    accuracies: dict[float, list[float]] = {}
    for result in arm_result.results:
        for level, value in zip(result.curves["level"], result.curves["accuracy"], strict=True):
            if value >= 0:
                accuracies.setdefault(level, []).append(value)
    levels = sorted(accuracies)
    intervals = [mean_interval(accuracies[level]) for level in levels]
    widths = [i.half_width if i.half_width is not None else 0.0 for i in intervals]
    means = [i.mean for i in intervals]
    return Series(
        model_name(arm_result, NAMES),
        levels,
        means,
        [max(0.0, m - w) for m, w in zip(means, widths, strict=True)],
        [min(1.0, m + w) for m, w in zip(means, widths, strict=True)],
    )


def _score_figure(run_result: RunResult) -> Figure:
    groups = []
    for key in ("hierarchical_f1", "mean_accuracy", "exact", "jaccard"):
        estimates = {}
        title = key
        for arm_result in run_result.arm_results:
            for comparison in arm_result.comparisons:
                if comparison.metric.key == key and math.isfinite(comparison.value.mean):
                    title = comparison.metric.title
                    estimates[model_name(arm_result, NAMES)] = Estimate.around(
                        comparison.value.mean, comparison.value.half_width
                    )
        if estimates:
            groups.append(Group(title, estimates))
    svg = dot_chart(
        groups,
        title="Scores over all levels",
        description="Scores of both geometries; higher is better.",
        x_label="Score",
    )
    return Figure("Over all levels", svg, "Test leaves; bars are 95% intervals over seeds.")
