r"""Sarkar's construction: a tree in hyperbolic space, without training and at any precision.

Every edge has the same length; the neighbours of a node lie in directions that are as far apart as
can be, equally spaced in the plane. With edges long enough, distances in space follow those in the
tree as closely as one likes (`sarkar_bound` has the proof). The price is precision: a node of depth
h lies at a radius of about h edges, and telling it from its neighbours takes h·τ/log 2 bits, soon
more than the 53 of float64. So the points are kept in arithmetic of as many bits as they need, and
distances are taken along the paths of the tree (`sarkar_paths`), not from the points.

(R. Sarkar, "Low distortion Delaunay embedding of trees in hyperbolic plane", 2011.)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from beltrami.data import Tree
from beltrami.data.hierarchy import Hierarchy
from beltrami.geometry.checks import check_integer
from beltrami.models.hierarchy import sarkar_frames
from beltrami.models.hierarchy.sarkar_bound import deficit, distortion_bound, edge_length_for
from beltrami.models.hierarchy.sarkar_paths import path_distances
from beltrami.models.hierarchy.spherical_code import least_angle, spherical_code

Model = Literal["lorentz", "poincare", "tangent"]

_SHORTEST_EDGE = 0.01  # in curvature radii; below, float64 paths lose digits of the small distances
_SINH_OVERFLOWS = 700.0
_MAX_BITS = 1_000_000  # a radius of 693,000: a mistake rather than a wish


class PrecisionWarning(UserWarning):
    """Rounding to a dtype moves points by more than they can take."""


@dataclass(frozen=True, eq=False, repr=False)
class SarkarEmbedding:
    """A tree placed in hyperbolic space of curvature −c.

    Args:
        tree: what was embedded.
        curvature: c.
        edge_length: the distance between a node and its parent.
        dim: of the space.
        precision_bits: of the coordinates.
        least_angle: the smallest angle between two edges at a node.
        diameter: edges of the tree's longest path.
        points: n tuples of `dim` mpmath numbers, the space part of Lorentz coordinates.
        headings: float64 (n, dim), the direction of each node from its parent, in frames that are
            transported along the edges; 0 for the root.
    """

    tree: Tree
    curvature: float
    edge_length: float
    dim: int
    precision_bits: int
    least_angle: float
    diameter: int
    points: tuple[tuple[Any, ...], ...]
    headings: Tensor
    _context: Any = field(default=None)

    def __len__(self) -> int:
        return len(self.tree)

    def __repr__(self) -> str:
        return (
            f"SarkarEmbedding({self.tree.name!r}, {len(self)} nodes, dim={self.dim}, "
            f"curvature={self.curvature:g}, edge_length={self.edge_length:g}, "
            f"precision_bits={self.precision_bits})"
        )

    @property
    def distortion_bound(self) -> float:
        """No distance is shorter than edge_length·hops divided by this; infinite if unknown."""
        return distortion_bound(self.least_angle, self._edge, self.diameter)

    @cached_property
    def radii(self) -> Tensor:
        """Distance of each node from the root, which is the origin: float64 (n,)."""
        return self.distances(torch.tensor([0]))[0]

    def distances(self, rows: Tensor | Sequence[int] | None = None) -> Tensor:
        """Distances from some nodes to all, float64, to a relative error of about 1e-14.

        Taken along the paths of the tree (see `sarkar_paths`), so they do not depend on
        `precision_bits`. Where edges are too short for the theorem of `sarkar_bound`, paths may
        double back, and the pairs are computed one by one from the points: some ten thousand a
        second.

        Args:
            rows: nodes to measure from, (s,); None for all.

        Returns:
            (s, n), or a symmetric (n, n).
        """
        sources = self._rows(rows)
        if self._edge < _SHORTEST_EDGE or math.isinf(deficit(self.least_angle, self._edge)):
            return self._distances_of_points(sources, symmetric=rows is None)
        distances = path_distances(self.tree.parent, self.headings, self._edge, sources)
        if rows is None:
            distances = (distances + distances.T) / 2  # equal but for rounding
        return distances / math.sqrt(self.curvature)

    def exact_distance(self, first: int, second: int) -> Any:
        """The distance of two nodes from their points: an mpmath number.

        Its error is at most 2^−64 curvature radii and as much of itself.
        """
        ctx = self._context
        root = ctx.sqrt(self.curvature)
        x, y = ([root * a for a in self.points[node]] for node in (first, second))
        return sarkar_frames.distance(x, y, ctx) / root

    def lorentz(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Points of `geometry.lorentz`, (n, dim). See `convert`."""
        return self._convert("lorentz", dtype)

    def poincare(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Points of `geometry.poincare`, (n, dim). See `convert`."""
        return self._convert("poincare", dtype)

    def tangent(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Tangent vectors at the origin, `log0` of the points, (n, dim). See `convert`."""
        return self._convert("tangent", dtype)

    def convert(self, model: Model, dtype: torch.dtype = torch.float64) -> Tensor:
        """The points rounded to a torch dtype.

        In every model rounding displaces a point at radius r by a chord of about
        eps·sinh(√c r)/(2√c), eps that of the dtype: float64 tells nodes apart as long as √c r stays
        below 36, float32 below 16. Where the furthest node moves by half an edge or more, so that
        nodes may fall together, a `PrecisionWarning` says so. A `ValueError` is raised where points
        cannot be written at all: Lorentz coordinates that overflow, or ball points that round onto
        the border. Tangent vectors can always be written. `moved` measures what happened.
        """
        return self._convert(model, dtype)

    def _convert(self, model: Model, dtype: torch.dtype) -> Tensor:
        if model not in ("lorentz", "poincare", "tangent"):
            raise ValueError(f'model must be "lorentz", "poincare" or "tangent", got {model!r}')
        if not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating point dtype, got {dtype}")
        rows = [[float(a) for a in row] for row in self._coordinates(model)]
        points = torch.tensor(rows, dtype=torch.float64).to(dtype)
        self._check_written(points, model)
        furthest = self.radii.max().item()
        moved = self._rounding(furthest, torch.finfo(dtype).eps)
        if moved >= self.edge_length / 2:
            wanted = math.ceil(furthest * math.sqrt(self.curvature) / math.log(2))
            warnings.warn(
                f"{dtype} moves nodes at radius {furthest:.4g} by about {moved:.2g}, and edges are "
                f"{self.edge_length:.4g} long: nodes may fall together (it would take about "
                f"{wanted} bits). {self._remedy}",
                PrecisionWarning,
                stacklevel=3,
            )
        return points

    def moved(self, points: Tensor, model: Model) -> Tensor:
        """How far rounded points (n, dim) of a model lie from the true ones, float64 (n,).

        Infinite for what is not a point: beyond the border of the ball, or not finite.
        """
        if points.shape != (len(self), self.dim):
            raise ValueError(
                f"points must have the shape {(len(self), self.dim)}, got {tuple(points.shape)}"
            )
        ctx, root = self._context, self._context.sqrt(self.curvature)
        out = []
        for true, row in zip(self.points, points.double().tolist(), strict=True):
            given = _to_lorentz([root * ctx.mpf(a) for a in row], model, ctx)
            if given is None:
                out.append(math.inf)
                continue
            out.append(float(sarkar_frames.distance([root * a for a in true], given, ctx) / root))
        return torch.tensor(out, dtype=torch.float64)

    @property
    def _edge(self) -> float:
        """τ: the edge length in units of the curvature radius."""
        return self.edge_length * math.sqrt(self.curvature)

    @property
    def _remedy(self) -> str:
        return (
            "Use `distances`, which needs no points, or make edges shorter: a larger dim, a larger "
            "max_distortion, or edge_length itself"
        )

    def _rows(self, rows: Tensor | Sequence[int] | None) -> Tensor:
        if rows is None:
            return torch.arange(len(self))
        nodes = torch.as_tensor(rows)
        if nodes.ndim != 1 or nodes.is_floating_point() or nodes.dtype == torch.bool:
            if nodes.numel():
                raise ValueError(
                    f"rows must be a vector of node numbers, got {nodes.dtype} of shape "
                    f"{tuple(nodes.shape)}"
                )
            return torch.empty(0, dtype=torch.int64)
        if nodes.numel() and not 0 <= int(nodes.min()) <= int(nodes.max()) < len(self):
            raise ValueError(
                f"rows must lie in 0..{len(self) - 1}, got {int(nodes.min())}..{int(nodes.max())}"
            )
        return nodes.to(torch.int64)

    def _distances_of_points(self, sources: Tensor, *, symmetric: bool) -> Tensor:
        n = len(self)
        out = torch.zeros(len(sources), n, dtype=torch.float64)
        for row, source in enumerate(sources.tolist()):
            first = row + 1 if symmetric else 0
            out[row, first:] = torch.tensor(
                [float(self.exact_distance(source, node)) for node in range(first, n)],
                dtype=torch.float64,
            )
        return out + out.T if symmetric else out

    def _coordinates(self, model: Model) -> Sequence[Sequence[Any]]:
        if model == "lorentz":
            return self.points
        ctx, c = self._context, self._context.mpf(self.curvature)
        rows = []
        for x in self.points:
            square = c * ctx.fdot(x, x)  # sinh²(√c r)
            if square == 0:
                rows.append(x)
                continue
            if model == "poincare":
                gain = 1 / (1 + ctx.sqrt(1 + square))
            else:
                gain = ctx.asinh(ctx.sqrt(square)) / ctx.sqrt(square)
            rows.append(tuple(gain * a for a in x))
        return rows

    def _rounding(self, radius: float, eps: float) -> float:
        """The distance 2·asinh(chord/2) by which rounding moves a point, chord = eps/2·sinh."""
        scaled = radius * math.sqrt(self.curvature)
        if scaled < _SINH_OVERFLOWS:
            moved = 2 * math.asinh(eps / 4 * math.sinh(scaled))
        else:
            moved = 2 * (scaled + math.log(eps / 4))
        return moved / math.sqrt(self.curvature)

    def _check_written(self, points: Tensor, model: Model) -> None:
        furthest = self.radii.max().item()
        if model == "lorentz" and not bool(points.isfinite().all()):
            raise ValueError(
                f"nodes at radius {furthest:.4g} overflow {points.dtype} in Lorentz coordinates, "
                f"sinh({furthest * math.sqrt(self.curvature):.4g}). {self._remedy}"
            )
        if model == "poincare":
            ctx, rows = self._context, points.double().tolist()
            # exactly: in float64 the norm itself may be rounded back below 1
            outside = sum(self.curvature * ctx.fdot(row, row) >= 1 for row in rows)
            if outside:
                raise ValueError(
                    f"{outside} nodes, out to radius {furthest:.4g}, round onto the "
                    f"border of the ball in {points.dtype}. {self._remedy}"
                )


def sarkar(
    tree: Tree,
    *,
    edge_length: float | None = None,
    max_distortion: float | None = None,
    dim: int = 2,
    precision_bits: int | None = None,
    curvature: float = 1.0,
) -> SarkarEmbedding:
    r"""Place a tree in hyperbolic space by Sarkar's construction.

    The root is the origin. In the plane the neighbours of every node, its parent among them, are
    equally spaced around it, and children keep their order; in more dimensions their directions
    form a `spherical_code`, whose wider angles make do with shorter edges.

    Edges are as short as the bound allows: with α the least angle between two edges at a node
    (2π/k in the plane, for k neighbours) and h the diameter of the tree, hyperbolic distances d of
    nodes that are j edges apart obey

        j·τ/(1 + max_distortion) ≤ d ≤ j·τ    if    τ ≥ δ·(1 + 1/max_distortion)·(h − 1)/h,

    δ = −log(sin²ω + e^{−2τ}·cos²ω), 2ω = α/2 + acos(cos(α/2)·coth(τ/2)), for curvature −1;
    `sarkar_bound` has the proof. The neighbours of a node are then nearer to it than all others, so
    that the mean average precision of the embedding is 1.

    Args:
        tree: a `Tree`; of a `Hierarchy` take `spanning_tree()`, and see `lost_edges`.
        edge_length: the distance between a node and its parent; None for the bound above. Any
            positive length gives an embedding, but below the bound there is no promise.
        max_distortion: ε > 0, by default 0.1; not together with `edge_length`.
        dim: 2 or more.
        precision_bits: of the coordinates; None for as many as it takes to have every point to
            2^−64 curvature radii, √c·τ·depth/log 2 and about 90 more. Fewer are refused.
        curvature: c > 0, for curvature −c.
    """
    _check_tree(tree)
    check_integer("dim", dim, least=2)
    curvature = _check_positive("curvature", curvature)
    if edge_length is not None and max_distortion is not None:
        raise ValueError("give edge_length or max_distortion, not both: one decides the other")
    children = _children(tree)
    angle = _least_angle(children, dim)
    diameter = _diameter(tree)
    if edge_length is None:
        epsilon = 0.1 if max_distortion is None else max_distortion
        tau = edge_length_for(angle, _check_positive("max_distortion", epsilon), diameter)
        edge_length = tau / math.sqrt(curvature)
    edge_length = _check_positive("edge_length", edge_length)
    bits = _check_bits(precision_bits, edge_length * math.sqrt(curvature), max(tree.depth), dim)
    ctx = sarkar_frames.context(bits)
    root = ctx.sqrt(curvature)
    points, headings = sarkar_frames.place(children, root * edge_length, dim, ctx)
    return SarkarEmbedding(
        tree=tree,
        curvature=curvature,
        edge_length=edge_length,
        dim=dim,
        precision_bits=bits,
        least_angle=angle,
        diameter=diameter,
        points=tuple(tuple(a / root for a in row) for row in points),
        headings=headings,
        _context=ctx,
    )


def lost_edges(hierarchy: Hierarchy, tree: Tree | None = None) -> Tensor:
    """The edges of a hierarchy that its spanning tree leaves out, int64 (k, 2): (child, parent).

    A node with several parents keeps one of them in the tree, and what the tree says about its
    distance from the others is an artefact: distances, ranks and precision in a Sarkar embedding
    are exact for the tree only. Empty for a hierarchy that is a tree, or several.

    Args:
        hierarchy: the directed acyclic graph.
        tree: a tree of the same labels; by default `hierarchy.spanning_tree()`.
    """
    tree = hierarchy.spanning_tree() if tree is None else tree
    number = {label: node for node, label in enumerate(hierarchy.labels)}
    parent = torch.full((len(hierarchy),), -1, dtype=torch.int64)
    for label, above in zip(tree.labels, tree.parent, strict=True):
        if label in number and above >= 0:
            parent[number[label]] = number.get(tree.labels[above], -1)
    child, above_it = hierarchy.edges.unbind(-1)
    return hierarchy.edges[parent[child] != above_it]


def _children(tree: Tree) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in range(len(tree))]
    for node, parent in enumerate(tree.parent[1:], start=1):
        children[parent].append(node)
    return children


def _least_angle(children: Sequence[Sequence[int]], dim: int) -> float:
    counts = {len(below) + (node > 0) for node, below in enumerate(children) if below}
    if dim == 2:
        return 2 * math.pi / max(counts | {2})
    # codes are found by search, so more directions need not be closer to one another
    crowded = (spherical_code(count, dim) for count in counts if count > 2)
    return min(map(least_angle, crowded), default=math.pi)


def _diameter(tree: Tree) -> int:
    """Edges of the longest path: the two deepest branches of some node."""
    height = [0] * len(tree)
    longest = 0
    for node in range(len(tree) - 1, 0, -1):
        parent, branch = tree.parent[node], height[node] + 1
        longest = max(longest, height[parent] + branch)
        height[parent] = max(height[parent], branch)
    return longest


def _to_lorentz(row: list[Any], model: Model, ctx: Any) -> list[Any] | None:
    """A row of a model's coordinates, curvature −1, as a Lorentz point; None for no point."""
    if not all(map(ctx.isfinite, row)):
        return None
    square = ctx.fdot(row, row)
    if model == "lorentz" or square == 0:
        return row
    if model == "poincare":
        return [2 * a / (1 - square) for a in row] if square < 1 else None
    norm = ctx.sqrt(square)
    return [ctx.sinh(norm) / norm * a for a in row]


def _check_tree(tree: object) -> None:
    if not isinstance(tree, Tree):
        hint = ": pass hierarchy.spanning_tree(), and see lost_edges"
        hint = hint if isinstance(tree, Hierarchy) else ""
        raise TypeError(f"tree must be a Tree, got {type(tree).__name__}{hint}")


def _check_positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be positive and finite, got {value}")
    return float(value)


def _check_bits(given: int | None, edge: float, depth: int, dim: int) -> int:
    needed = sarkar_frames.bits_needed(edge, depth, dim)
    if needed > _MAX_BITS:
        raise ValueError(
            f"a tree of depth {depth} with edges of {edge:.4g} curvature radii takes {needed} bits "
            f"a coordinate, and {_MAX_BITS} are the most: use a larger dim or max_distortion, or a "
            "shorter edge_length"
        )
    if given is None:
        return needed
    check_integer("precision_bits", given)
    if given < needed:
        raise ValueError(
            f"precision_bits must be at least {needed} for a tree of depth {depth} with edges of "
            f"{edge:.4g} curvature radii, got {given}; leave it out to have just enough"
        )
    return given
