"""The tour's page: its text, figures and numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from beltrami.analysis.intervals import Interval
from beltrami.data import Tree
from beltrami.geometry import poincare
from beltrami.recipes.embedding import Geometry
from beltrami.recipes.tour_config import TourConfig
from beltrami.report.disk import disk_svg, plane_svg
from beltrami.report.page import Figure, Page, Row, Section, Table, render

if TYPE_CHECKING:
    from beltrami.recipes.tour import Run

OTHER_VIEWS = 2  # disks below the first, each from a large child of the root
COLUMNS = ("Hyperbolic", "Euclidean", "Difference")
MEASURES = {
    "average_distortion": ("Average distortion", "0 is perfect"),
    "worst_distortion": ("Worst-case distortion", "1 is perfect"),
    "map": ("MAP of the tree's edges", "1 is perfect"),
}
FLAT_SQUEEZES = (
    "A tree's number of nodes multiplies from level to level, but the room in a flat plane only "
    "grows with the square of the radius. So a flat picture has to squeeze: unrelated leaves come "
    "close, and parents stand far from some of their children."
)
FLAT_IS_BETTER = (
    "Here the flat plane is the better one. Trees that hardly branch need no more room than it "
    "has, and the hyperbolic fit may not have converged."
)
ABOUT_EQUAL = (
    "This tree fits both planes about equally: the interval of the difference contains 0. Trees "
    "that hardly branch need no more room than the flat plane has."
)
NO_VERDICT = (
    "One seed has no interval, so this page does not say which plane holds the tree better; two "
    "seeds or more would."
)
THE_DISK = (
    "In the hyperbolic plane room multiplies with the radius as the tree does. The disk shows all "
    "of it: the rim is infinitely far away, edges are geodesics, and a step of the same length "
    "looks shorter the closer it is to the rim. What looks crowded there is not. Look from another "
    "node, and its neighbourhood opens up: only the observer has moved."
)
HOW_IT_IS_MEASURED = (
    "Both planes have two numbers a node, the same start, the same loss (the relative error of all "
    "pairwise distances, up to one global scale), the same optimiser and the same number of steps. "
    "For each, the learning rate with the lowest final loss on seed 0 was chosen from the same "
    "list. Nothing is held out: the question is how well each plane can hold this tree.",
    "The start is the tree's own radial layout: it already knows which nodes belong together. "
    "From a random start the hyperbolic fit of our carnivores is clearly worse, while the flat one "
    "hardly changes.",
    "Average distortion is the mean of |s·d/t − 1| over all pairs of nodes, with d the embedded "
    "and t the tree distance and s the best scale. Worst-case distortion is the largest expansion "
    "times the largest contraction. MAP asks whether the nearest points of a node are its parent "
    "and children.",
)


def tour_page(
    config: TourConfig,
    tree: Tree,
    metrics: dict[str, Any],
    summary: dict[str, dict[str, Interval]],
    runs: dict[Geometry, list[Run]],
) -> str:
    """The HTML page of a finished tour; the pictures show seed 0."""
    return render(
        Page(
            title=f"{tree.name}: the same tree in two planes",
            lead=_lead(tree, summary["average_distortion"]),
            figures=_figures(
                tree, runs["hyperbolic"][0].points, runs["euclidean"][0].points, config.curvature
            ),
            table=summary_table(summary, config.seeds),
            sections=(
                Section(
                    "What one sees",
                    (verdict(summary["average_distortion"]["difference"]), THE_DISK),
                ),
                Section("How it is measured", HOW_IT_IS_MEASURED),
            ),
            facts=_facts(metrics),
            command=config.command(),
            footer=f"Written by beltrami {metrics['beltrami']}.",
        )
    )


def summary_table(summary: dict[str, dict[str, Interval]], seeds: int) -> Table:
    """The comparison as a table of texts, for the page and the terminal."""
    rows = tuple(
        Row(*MEASURES[measure], tuple(_format(columns[name.lower()], name) for name in COLUMNS))
        for measure, columns in summary.items()
    )
    spread = (
        f"Mean ± 95% t-interval over {seeds} seeds; the difference is paired by seed."
        if seeds > 1
        else "One seed, so no intervals."
    )
    return Table(f"{spread} Difference: hyperbolic minus Euclidean.", COLUMNS, rows)


def verdict(difference: Interval) -> str:
    """What may be said of the two planes, by the paired difference of their average distortions."""
    if difference.half_width is None:
        return NO_VERDICT
    if difference.mean + difference.half_width < 0:
        return FLAT_SQUEEZES
    return FLAT_IS_BETTER if difference.mean - difference.half_width > 0 else ABOUT_EQUAL


def _format(interval: Interval, column: str) -> str:
    if not math.isfinite(interval.mean):
        return "∞" if column != "Difference" else "–"
    text = interval.format()
    text_is_positive = text[0] != "−" and float(text.split()[0]) > 0  # a rounded zero has no sign
    return f"+{text}" if column == "Difference" and text_is_positive else text


def _lead(tree: Tree, distortion: dict[str, Interval]) -> str:
    flat, curved = distortion["euclidean"].mean, distortion["hyperbolic"].mean
    return (
        f"{len(tree)} nodes, embedded in two dimensions twice. On average, a distance between two "
        f"nodes is off by {curved:.1%} in the hyperbolic plane and by {flat:.1%} in the Euclidean "
        "plane."
    )


def _figures(tree: Tree, curved: Tensor, flat: Tensor, curvature: float) -> tuple[Figure, ...]:
    """Both planes, then the same disk as seen from the root's largest children."""
    colours = "One colour a child of the root."
    plane = plane_svg(
        flat,
        tree.parent,
        tree.labels,
        title=f"{tree.name} in the Euclidean plane",
        description=f"The same {len(tree)} nodes in the flat plane; edges are straight lines.",
    )
    unit = poincare.from_lorentz(curved, curvature) * math.sqrt(curvature)
    children = [i for i, p in enumerate(tree.parent) if p == 0 and tree.descendants[i] > 1]
    largest = sorted(children, key=lambda i: -tree.descendants[i])[:OTHER_VIEWS]
    return (
        Figure("Hyperbolic plane", _disk(tree, unit, 0), f"Poincaré disk, seed 0. {colours}"),
        Figure("Euclidean plane", plane, f"The twin, seed 0. {colours}"),
        *(
            Figure(
                f"Seen from “{tree.labels[node]}”",
                _disk(tree, unit, node),
                "The same points as above after an isometry: no distance has changed.",
            )
            for node in largest
        ),
    )


def _disk(tree: Tree, unit: Tensor, centre: int) -> str:
    return disk_svg(
        unit,
        tree.parent,
        tree.labels,
        title=f"{tree.name} in the Poincaré disk",
        description=f"{len(tree)} nodes; what is far from the centre is near the rim, edges are "
        "circular arcs.",
        centre=centre,
    )


def _facts(metrics: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    tree, settings = metrics["tree"], metrics["settings"]
    chosen = metrics["chosen_learning_rate"]
    tried = ", ".join(f"{rate:g}" for rate in settings["learning_rates"])
    seconds = {
        g: sum(run["seconds"] for run in metrics["runs"] if run["geometry"] == g)
        / settings["seeds"]
        for g in ("hyperbolic", "euclidean")
    }
    return (
        ("Tree", f"{tree['name']}: {tree['nodes']} nodes, {tree['depth']} levels below the root"),
        ("Parameters", f"{settings['parameters']} in either plane (float64)"),
        ("Optimiser", f"Adam, {settings['steps']} steps, learning rate falling to 1%"),
        (
            "Learning rate",
            f"hyperbolic {chosen['hyperbolic']:g}, Euclidean {chosen['euclidean']:g} "
            f"(from {tried})",
        ),
        ("Curvature", f"−{settings['curvature']:g}"),
        ("Seeds", str(settings["seeds"])),
        (
            "Time a run",
            f"hyperbolic {seconds['hyperbolic']:.1f} s, Euclidean {seconds['euclidean']:.1f} s",
        ),
    )
