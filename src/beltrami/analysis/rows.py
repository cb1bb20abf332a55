"""Distances a few rows at a time: what the measures are given, and how many rows they ask for.

A measure over n nodes never holds the n × n matrix. It is given a function that returns the
distances from some nodes to all, and asks it for as many rows as fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from beltrami.analysis.checks import check_points, check_tensor
from beltrami.checks import check_integer
from beltrami.geometry import poincare
from beltrami.geometry.checks import no_autocast
from beltrami.geometry.manifold import Euclidean, Lorentz, Manifold, PoincareBall
from beltrami.kernels.pairs.chords import left, right, rows_of

Distances = Callable[[Tensor], Tensor]
"""distance(rows): from nodes (b,) to all n nodes, float32 or float64 of shape (b, n)."""

# Elements of a block of rows: on a CPU what stays in its caches, on a GPU what keeps it busy while
# a dozen float64 matrices of this size still fit any card.
_CPU_ELEMENTS = 1 << 20
_GPU_ELEMENTS = 1 << 25
_SLICE_ELEMENTS = 1 << 22  # of distances computed from all points, which are read less often so

# A chord of float32 points below this share of √(|x||y|) is made of rounding: half an eps.
_UNRESOLVED = torch.finfo(torch.float32).eps / 2

# The square of a chord of float64 points is known up to this times their norms, from a product.
_PRODUCT_ERROR = 8 * torch.finfo(torch.float64).eps
_MOST_ERROR = 1e-4  # in sinh²(√c·d/2), up to which such squares order points well enough


def rows_at_once(count: int, device: torch.device, chunk: int | None) -> int:
    """How many rows of `count` distances to work on at a time; `chunk` if it is given."""
    if chunk is not None:
        check_integer("chunk", chunk)
        return chunk
    elements = _CPU_ELEMENTS if device.type == "cpu" else _GPU_ELEMENTS
    return max(1, elements // count)


def row_slices(count: int, width: int | None = None) -> Iterator[slice]:
    """All of `count` rows of `width` numbers, by default `count`, as many at a time as fit."""
    rows = max(1, _SLICE_ELEMENTS // max(1, count if width is None else width))
    for first in range(0, count, rows):
        yield slice(first, min(count, first + rows))


def checked_rows(distance: Distances, rows: Tensor, count: int) -> Tensor:
    """Call the function and check the shape, type and device of what it returns."""
    block = distance(rows)
    check_tensor("the result of distance", block)
    if block.shape != (len(rows), count):
        raise ValueError(
            f"distance must return a row of {count} numbers for each of {len(rows)} nodes, got "
            f"shape {tuple(block.shape)}"
        )
    if block.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"distance must return float32 or float64, got {block.dtype}")
    return block.detach()


def check_rows_finite(block: Tensor, rows: Tensor) -> None:
    """Raise if a distance from one node to another is not finite; waits for the device."""
    bad = ~torch.isfinite(block)
    local = torch.arange(len(rows), device=block.device)
    bad[local, rows.to(block.device)] = False  # to itself it may be anything
    if bool(bad.any()):
        row, other = bad.nonzero()[0].tolist()
        raise ValueError(
            f"distance has {int(bad.sum())} entries that are not finite; the first is "
            f"{block[row, other].item()} between nodes {int(rows[row])} and {other}"
        )


def point_distances(points: Tensor, manifold: Manifold) -> Distances:
    """Distances among points (n, d) of a manifold, as the measures take them."""
    check_points(points)
    points = points.detach()
    return lambda rows: manifold.pairwise_dist(points[rows], points)


def point_order(points: Tensor, manifold: Manifold) -> Distances:
    """Numbers that order the points (n, d) about each of them as their distances do.

    Points of the Lorentz model, the Poincaré ball and flat space are compared by the squares of
    their chords, `sinh²(√c·d/2)`, from one float64 matrix product (`kernels.chords`): some twenty
    times faster than the distances, and for float32 points finer far out, where their distances are
    rounded to 1e-6. Points closer to each other than float32 coordinates resolve, or for float64
    points the product, are tied: far out, those within 0.02. Compared by their distances are points
    of other manifolds, float64 points of flat space, and those so far out that a square would be
    wrong by 1e-4, at √c·r = 13.8.
    """
    check_points(points)
    points = points.detach()
    curved = type(manifold) in (Lorentz, PoincareBall)
    if curved or (type(manifold) is Euclidean and points.dtype != torch.float64):
        with torch.no_grad(), no_autocast(points):
            order = _chord_order(points, manifold)
        if order is not None:
            return order
    return point_distances(points, manifold)


def _chord_order(points: Tensor, manifold: Manifold) -> Distances | None:
    """See `point_order`; None for several curvatures and float64 points that are too far out."""
    wide, narrow = points.double(), points.dtype != torch.float64
    c = manifold.c
    if isinstance(c, Tensor):
        if c.numel() != 1:
            return None
        c = c.detach().double().reshape(())
    if isinstance(manifold, PoincareBall):
        wide = poincare.to_lorentz(wide, c)
    scale = 1.0 if isinstance(manifold, Euclidean) else c / 4  # so that float32 holds the square
    rows = rows_of(wide, c)
    # Near pairs have nearly equal norms, so a floor for each row is one for each pair.
    if narrow:
        floor = (scale * (_UNRESOLVED * rows.norm).square()).float()
    else:
        floor = _PRODUCT_ERROR * scale * rows.norm.square()
        if bool((floor > _MOST_ERROR).any()):
            return None
    a, b = scale * left(rows), right(rows)
    column = None
    if not narrow:  # a product may round equal columns differently, where float32 forgives it
        different, column = points.unique(dim=0, return_inverse=True)
        if len(different) == len(points):
            column = None
        else:
            first = torch.empty(len(different), dtype=torch.int64, device=column.device)
            first[column] = torch.arange(len(points), device=column.device)  # any will do
            b = b[first]
    b = b.t().contiguous()

    def order(nodes: Tensor) -> Tensor:
        with no_autocast(a):
            chord = (a[nodes] @ b).abs_()
            chord = chord if column is None else chord[:, column]
            chord = chord.float() if narrow else chord
            return torch.maximum(chord, floor[nodes], out=chord)

    return order
