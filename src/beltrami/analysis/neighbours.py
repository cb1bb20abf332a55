"""The nearest points of each point, a block of rows at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.analysis.matrices import FlatMetric, directions
from beltrami.analysis.rows import check_points
from beltrami.geometry.checks import check_integer

BLOCK = 1 << 22  # distances at once


def nearest_points(x: Tensor, k: int, *, metric: FlatMetric = "euclidean") -> tuple[Tensor, Tensor]:
    """Distances and numbers of the k nearest other points, (n, k) each, the nearest first.

    Args:
        x: (n, d) floating point rows.
        k: how many, below n.
        metric: "euclidean", or "angle" between rows; a row of zeros has none.
    """
    check_points(x)
    check_integer("k", k)
    if metric not in ("euclidean", "angle"):
        raise ValueError(f'metric must be "euclidean" or "angle", got {metric!r}')
    if k >= len(x):
        raise ValueError(f"k must be below the number of points, {len(x)}, got {k}")
    x = x.detach().double()
    x = directions(x) if metric == "angle" else x - x.mean(0)  # which would cost digits
    rows = max(1, BLOCK // len(x))
    found = []
    for first in range(0, len(x), rows):
        some = x[first : first + rows]
        d = torch.cdist(some, x)
        local = torch.arange(len(some), device=x.device)
        d[local, first + local] = torch.inf  # not itself
        numbers = d.topk(k, dim=1, largest=False).indices
        # By their difference: from a product, points that coincide are 1e-7 apart.
        near = torch.stack([(some - x[numbers[:, i]]).norm(dim=-1) for i in range(k)], 1)
        near, order = near.sort(dim=1, stable=True)
        found.append((near, numbers.gather(1, order)))
    distances, numbers = (torch.cat(parts) for parts in zip(*found, strict=True))
    if metric == "angle":  # from the chord
        distances = 2 * torch.asin((distances / 2).clamp(max=1.0))
    return distances, numbers
