"""Rank correlations: does the distance from the root grow with the depth in the hierarchy?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.checks import check_points, check_same_length, numbers
from beltrami.analysis.results import Result
from beltrami.checks import check_integer
from beltrami.geometry.manifold import Manifold


@dataclass(frozen=True)
class DepthCorrelation(Result):
    """Rank correlations of depth and radius, from −1 to 1.

    Args:
        spearman: Spearman's ρ, ties at their mean rank.
        kendall: Kendall's τ-b; over the levels of a taxonomy it is the τ_d of published tables.

    Both are NaN if all depths or all radii are equal.
    """

    spearman: float
    kendall: float


def depth_correlation(depth: Tensor, radius: Tensor) -> DepthCorrelation:
    """Both correlations of depths (n,) and radii (n,), for instance `radii(points, manifold)`."""
    x, y = _checked("depth", depth, "radius", radius)
    return DepthCorrelation(spearman=_spearman(x, y), kendall=_kendall(x, y))


def radii(points: Tensor, manifold: Manifold, *, root: int | None = None) -> Tensor:
    """Distances (n,) of points (n, d) from the origin, or from the point numbered `root`."""
    check_points(points)
    points = points.detach()
    if root is None:
        return manifold.dist0(points)
    check_integer("root", root, 0, len(points) - 1)
    return manifold.dist(points, points[root])


def spearman(x: Tensor, y: Tensor) -> float:
    """Spearman's rank correlation of two vectors; equal values share the mean of their ranks.

    NaN if one of the vectors is constant.
    """
    return _spearman(*_checked("x", x, "y", y))


def kendall_tau(x: Tensor, y: Tensor) -> float:
    """Kendall's τ-b of two vectors, in O(n log² n).

        τ_b = (C − D) / √((N − T_x)(N − T_y)),

    of N = n(n−1)/2 pairs, C ordered alike by both, D ordered oppositely, and T_x, T_y tied in one.
    NaN if one of the vectors is constant.
    """
    return _kendall(*_checked("x", x, "y", y))


def _checked(first: str, x: Tensor, second: str, y: Tensor) -> tuple[Tensor, Tensor]:
    x, y = numbers(first, x), numbers(second, y)
    check_same_length(first, x, second, y)
    return x, y


def _spearman(x: Tensor, y: Tensor) -> float:
    a, b = (rank - rank.mean() for rank in (_mean_ranks(x), _mean_ranks(y)))
    spread = math.sqrt(a.square().sum().item() * b.square().sum().item())
    return _within_one((a @ b).item() / spread) if spread > 0 else math.nan


def _within_one(correlation: float) -> float:
    """Rounding must not carry it beyond its bounds."""
    return min(1.0, max(-1.0, correlation))


def _mean_ranks(x: Tensor) -> Tensor:
    _, which, counts = x.unique(return_inverse=True, return_counts=True)
    before = counts.cumsum(0) - counts
    ranks: Tensor = (before + (counts + 1).to(torch.float64) / 2)[which]
    return ranks


def _kendall(x: Tensor, y: Tensor) -> float:
    _, a, a_counts = x.unique(return_inverse=True, return_counts=True)
    _, b, b_counts = y.unique(return_inverse=True, return_counts=True)
    both = a * len(b_counts) + b
    _, both_counts = both.unique(return_counts=True)
    pairs = len(x) * (len(x) - 1) // 2
    tied_x, tied_y, tied_both = map(_tied_pairs, (a_counts, b_counts, both_counts))
    if pairs in (tied_x, tied_y):
        return math.nan
    # By x, and among equal x by y, so that only pairs that differ in both can be out of order.
    opposite = _inversions(b[torch.argsort(both)])
    surplus = pairs - tied_x - tied_y + tied_both - 2 * opposite
    return _within_one(surplus / math.sqrt((pairs - tied_x) * (pairs - tied_y)))


def _tied_pairs(counts: Tensor) -> int:
    return int((counts * (counts - 1) // 2).sum())


def _inversions(values: Tensor) -> int:
    """How many pairs i < j have values[i] > values[j], by merging sorted runs of doubled length."""
    missing = (1 << (len(values) - 1).bit_length()) - len(values)
    values = torch.cat([values, values.max().expand(missing)])  # behind all, below none of them
    total, run = 0, 1
    while run < len(values):
        first, second = values.view(-1, 2, run).unbind(1)
        not_above = torch.searchsorted(first.contiguous(), second.contiguous(), right=True)
        total += int((run - not_above).sum())
        run *= 2
        values = values.view(-1, run).sort(1).values.flatten()
    return total
