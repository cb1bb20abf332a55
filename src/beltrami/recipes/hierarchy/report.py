"""The hierarchy recipe's page: the table, the pictures, what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from beltrami.data import Hierarchy, Tree
from beltrami.recipes.hierarchy.config import NAMES, TWIN
from beltrami.recipes.pages import run_facts, training_figure
from beltrami.recipes.results import ArmResult, RunResult
from beltrami.recipes.tables import result_tables
from beltrami.report.charts import Series, line_chart
from beltrami.report.disk import disk_svg, plane_svg
from beltrami.report.page import Figure, Page, Section

if TYPE_CHECKING:
    from beltrami.recipes.hierarchy.recipe import HierarchyRecipe

MOST_DRAWN = 1200  # nodes in a picture; of larger hierarchies the largest branches are shown
PROJECTED = (
    "The distance from the centre is the true one; the angle is that of the two main directions of "
    "all points."
)
HOW_IT_IS_MEASURED = (
    "Every pair of a node and one of its ancestors is a fact to keep. MAP and mean rank ask, for "
    "each node, whether its ancestors are nearer than all other nodes: the published protocol of "
    "Nickel and Kiela (2017). Nothing is held out: the question is how much of the taxonomy a "
    "space of so few dimensions can hold.",
    "Distortion compares distances with numbers of edges in the taxonomy, up to one global scale; "
    "the ranking loss does not ask for it. Depth correlation says whether deeper nodes lie farther "
    "from the origin.",
    "All geometries have the same number of parameters, the same start, loss, batches and steps. "
    "For each, the learning rate with the highest MAP on the first seed was taken from one list.",
)


def hierarchy_page(recipe: HierarchyRecipe, run_result: RunResult) -> Page:
    """The page of a finished run; pictures show the first seed."""
    hierarchy = recipe.hierarchy
    curved, twin = _leaders(run_result)
    several = len(recipe.config.dims) > 1
    training = (_rank_figure(run_result), training_figure(run_result, NAMES))
    return Page(
        title=f"{hierarchy.name}: a hierarchy in curved and flat space",
        lead=_lead_of_dimensions(run_result) or _lead(hierarchy, curved, twin),
        figures=(
            *(_dimension_figures(run_result) if several else ()),
            *_disk_figures(recipe, run_result),
        ),
        table=None,
        sections=(
            Section("The comparison", _verdicts(run_result), (), result_tables(run_result, NAMES)),
            Section("Ranks and training", (), training),
            Section("How it is measured", HOW_IT_IS_MEASURED),
        ),
        facts=(*_facts(recipe), *run_facts(run_result, NAMES)),
        command=run_result.command,
        footer=f"Written by beltrami {run_result.document['beltrami']}.",
    )


def _leaders(run_result: RunResult) -> tuple[ArmResult, ArmResult]:
    """The curved arm with the highest MAP, a trained one where there is one; its twin."""
    curved = [s for s in run_result.arm_results if s.arm.twin]
    curved = [s for s in curved if s.arm.model != "sarkar"] or curved
    twins = {s.arm.group: s for s in run_result.arm_results if s.arm.model == TWIN}
    if not curved:
        only = run_result.arm_results[0]
        return only, only
    best = max(curved, key=lambda s: s.comparison("map").value.mean)
    return best, twins[best.arm.group]


def _lead(hierarchy: Hierarchy, curved: ArmResult, twin: ArmResult) -> str:
    size = f"{len(hierarchy):,} nodes in {curved.arm.group}."
    if curved is twin:
        return f"{size} Only the Euclidean twin was trained."
    sarkar = curved.arm.model == "sarkar"
    place = _name(curved) if sarkar else f"hyperbolic space ({_name(curved)})"
    return (
        f"{size} Looking for a node's ancestors among its nearest points has an average precision "
        f"of {curved.comparison('map').value.mean:.1%} in {place} and of "
        f"{twin.comparison('map').value.mean:.1%} in flat space (Euclidean)."
    )


def _lead_of_dimensions(run_result: RunResult) -> str:
    """How many dimensions each space needs for the same precision; "" of one dimension alone."""
    by_model: dict[str, dict[int, float]] = {}
    for s in run_result.arm_results:
        dims = by_model.setdefault(s.arm.model, {})
        dims[s.arm.settings.dim] = s.comparison("map").value.mean
    flat, curved = by_model.get(TWIN, {}), by_model.get("lorentz", {})
    if len(flat) < 2 or not curved:
        return ""
    best = max(flat, key=lambda dim: flat[dim])
    enough = [dim for dim in sorted(curved) if curved[dim] >= flat[best]]
    fewest = min(flat)
    start = (
        f"To find a node's ancestors among its nearest points, {fewest} dimensions give a "
        f"precision of {curved[fewest]:.0%} in hyperbolic space (Lorentz) and of "
        f"{flat[fewest]:.0%} in flat space (Euclidean)."
    )
    verdicts = {
        s.arm.settings.dim: s.comparison("map").verdict
        for s in run_result.arm_results
        if s.arm.model == "lorentz"
    }
    tied = [dim for dim in sorted(verdicts) if verdicts[dim] in ("worse", "no difference")]
    if tied and verdicts[tied[0]] == "worse":
        return f"{start} With {tied[0]}, flat space is more precise."
    if tied:
        return f"{start} With {tied[0]}, the seeds do not tell the two apart."
    if not enough or enough[0] >= best:
        return start
    return (
        f"{start} With {best}, flat space reaches {flat[best]:.0%}, for which hyperbolic space "
        f"needs no more than {enough[0]}."
    )


def _verdicts(run_result: RunResult) -> tuple[str, ...]:
    """A sentence for each trained curved arm: picking the best first would flatter it."""
    sentences = []
    for arm_result in run_result.arm_results:
        if arm_result.arm.twin is None or arm_result.arm.model == "sarkar":
            continue
        comparison = arm_result.comparison("map")
        gap = comparison.difference
        who = f"{_name(arm_result)}, {arm_result.arm.group}"
        if gap is None or gap.half_width is None:
            sentences.append(f"{who}: one seed gives no interval, so chance cannot be ruled out.")
            continue
        words = {"better": "curvature helps", "worse": "curvature does not help"}
        verdict = words.get(comparison.verdict, "the seeds do not tell it from its twin")
        sentences.append(f"{who}: {verdict}; MAP differs from the twin's by {gap.format()}.")
    return tuple(sentences) or ("There is no trained hyperbolic arm to compare.",)


def _name(arm_result: ArmResult) -> str:
    return NAMES[arm_result.arm.model]


def _disk_figures(recipe: HierarchyRecipe, run_result: RunResult) -> tuple[Figure, ...]:
    """One hyperbolic space of the fewest dimensions and its twin, side by side."""
    single = [s for s in run_result.arm_results if s.arm.model in ("lorentz", "poincare")]
    single = single or [s for s in run_result.arm_results if s.arm.model == "sarkar"]
    if not single:
        return ()
    best = min(single, key=lambda s: (s.arm.settings.dim, -s.comparison("map").value.mean))
    drawing = _Drawing.of(recipe.hierarchy)
    twin = next((s for s in run_result.groups()[best.arm.group] if s.arm.model == TWIN), None)
    return (drawing.disk(best),) if twin is None else (drawing.disk(best), drawing.plane(twin))


def _tangent(arm_result: ArmResult) -> Tensor:
    """Tangent vectors at the origin of the first seed's points."""
    from beltrami.recipes.hierarchy.recipe import manifold_of

    state = arm_result.results[0].state
    if "tangent" in state:
        return state["tangent"]
    points = state["weight"]
    return manifold_of(arm_result.arm.model, points.shape[-1]).log0(points)


@dataclass(frozen=True)
class _Drawing:
    """The part of a hierarchy that pictures show.

    Args:
        name: of the hierarchy.
        rows: of the table of points, one a node; −1 for a node that only the tree has.
        parents, labels: of the nodes.
        whole: whether these are all nodes.
    """

    name: str
    rows: list[int]
    parents: list[int]
    labels: list[str]
    whole: bool

    @classmethod
    def of(cls, hierarchy: Hierarchy) -> _Drawing:
        """All nodes, or the largest branches."""
        tree = hierarchy.spanning_tree()
        nodes = _drawn(tree)
        number = {label: i for i, label in enumerate(hierarchy.labels)}
        place = {node: i for i, node in enumerate(nodes)}
        labels = [tree.labels[n] for n in nodes]
        parents = [-1 if tree.parent[n] < 0 else place[tree.parent[n]] for n in nodes]
        rows = [number.get(label, -1) for label in labels]
        return cls(hierarchy.name, rows, parents, labels, len(nodes) == len(tree))

    def disk(self, arm_result: ArmResult) -> Figure:
        """A hyperbolic arm's first seed."""
        v = self._tangent(arm_result)
        how = "Radius and angle are those of the embedding." if v.shape[-1] == 2 else PROJECTED
        svg = disk_svg(
            unit_disk(v),
            self.parents,
            self.labels,
            title=f"{self.name} in the Poincaré disk",
            description=f"{len(self.labels)} nodes of {self.name}; edges are geodesics.",
            colour="depth",
        )
        return Figure("In hyperbolic space", svg, self._caption(arm_result, how))

    def plane(self, arm_result: ArmResult) -> Figure:
        """The first seed of a Euclidean arm."""
        v = self._tangent(arm_result)
        svg = plane_svg(
            _in_main_plane(v),
            self.parents,
            self.labels,
            title=f"{self.name} in flat space",
            description=f"The same {len(self.labels)} nodes; edges are straight lines.",
            colour="depth",
        )
        how = "Coordinates are those of the embedding." if v.shape[-1] == 2 else PROJECTED
        return Figure("In flat space", svg, self._caption(arm_result, how))

    def _tangent(self, arm_result: ArmResult) -> Tensor:
        tangent = _tangent(arm_result)
        zero = torch.zeros_like(tangent[0])
        return torch.stack([tangent[row] if row >= 0 else zero for row in self.rows])

    def _caption(self, arm_result: ArmResult, how: str) -> str:
        count = len(self.labels)
        shown = "all nodes" if self.whole else f"the {count:,} nodes with the most below them"
        who = f"{_name(arm_result)}, {arm_result.arm.group}"
        return f"{who}, first seed; {shown}. {how} Colour is depth."


def unit_disk(tangent: Tensor) -> Tensor:
    """Points of the unit disk with the radii of tangent vectors (n, d), turned by their main plane.

    In two dimensions these are the points themselves.
    """
    v = _in_main_plane(tangent)
    radius = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    unit = torch.where(radius > 0, v / radius.clamp(min=1e-300), torch.zeros_like(v))
    return torch.tanh(radius / 2) * unit


def _in_main_plane(tangent: Tensor) -> Tensor:
    """Vectors (n, d) turned into the plane of their two main directions, each as long as it was."""
    v = tangent.double()
    if v.shape[-1] == 2:
        return v
    radius = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    _, _, directions = torch.linalg.svd(v, full_matrices=False)
    plane = v @ directions[:2].mT
    length = torch.linalg.vector_norm(plane, dim=-1, keepdim=True)
    unit = torch.where(length > 0, plane / length.clamp(min=1e-300), plane)
    turned: Tensor = radius * unit
    return turned


def _drawn(tree: Tree) -> list[int]:
    """The nodes of a tree to draw, parents first: all, or the largest branches."""
    if len(tree) <= MOST_DRAWN:
        return list(range(len(tree)))
    below = tree.descendants
    # A node has fewer below it than its parent, so the largest are closed upwards.
    largest = sorted(range(len(tree)), key=lambda n: (-below[n], n))[:MOST_DRAWN]
    return sorted(largest)


def _rank_figure(run_result: RunResult) -> Figure:
    group = run_result.arm_results[0].arm.group
    series = [
        Series(_name(s), s.results[0].curves["rank"], s.results[0].curves["share"])
        for s in run_result.groups()[group]
    ]
    svg = line_chart(
        series,
        title="Rank curves",
        description="Share of ancestor pairs whose ancestor is among the k nearest negatives.",
        x_label="Rank k",
        y_label="Share of pairs with rank ≤ k",
        x_log=True,
        step=True,
        y_limits=(0, 1),
    )
    return Figure("Rank curves", svg, f"{group}, first seed. The higher on the left, the better.")


def _dimension_figures(run_result: RunResult) -> tuple[Figure, ...]:
    return tuple(
        _dimension_figure(run_result, key, label, log)
        for key, label, log in (
            ("map", "Precision (MAP)", False),
            ("mean_rank", "Mean rank of an ancestor", True),
        )
    )


def _dimension_figure(run_result: RunResult, key: str, label: str, log: bool) -> Figure:
    lines: dict[str, list[tuple[float, float, float, float]]] = {}
    for arm_result in run_result.arm_results:
        value = arm_result.comparison(key).value
        width = value.half_width or 0.0
        low = value.mean - width
        if log and low <= 0:
            low = value.mean  # has no place on the axis
        dim = float(arm_result.arm.settings.dim)
        lines.setdefault(_name(arm_result), []).append((dim, value.mean, low, value.mean + width))
    series = [
        Series(name, *([point[i] for point in sorted(points)] for i in range(4)))
        for name, points in lines.items()
    ]
    svg = line_chart(
        series,
        title=f"{label} by dimension",
        description=f"{label} of each geometry against the number of dimensions.",
        x_label="Dimensions",
        y_label=label,
        x_log=True,
        y_log=log,
    )
    return Figure(f"{label} by dimension", svg, "Bars are 95% intervals over seeds.")


def _facts(recipe: HierarchyRecipe) -> tuple[tuple[str, str], ...]:
    data, config = recipe.data_facts(), recipe.config
    ranked = "all nodes" if recipe.ranked is None else f"{recipe.ranked:,} nodes, drawn once"
    return (
        (
            "Data",
            f"{data['name']}: {data['nodes']:,} nodes, {data['edges']:,} edges, "
            f"{data['pairs']:,} pairs of a node and an ancestor, depth {data['depth']}",
        ),
        (
            "Training",
            f"Riemannian SGD, {config.epochs:,} epochs, {config.batch_of(data['nodes']):,} nodes a "
            f"step against a pool of {config.pool_of(data['nodes']):,}, float64",
        ),
        ("Ranked", f"the ancestors of {ranked}"),
    )
