"""The nearest points of each point, a block of rows at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.analysis.checks import check_points
from beltrami.analysis.matrices import NeighbourMetric, check_distances, directions
from beltrami.analysis.rows import row_slices
from beltrami.checks import check_choice, check_integer


def nearest_points(
    x: Tensor, k: int, *, metric: NeighbourMetric = "euclidean"
) -> tuple[Tensor, Tensor]:
    """Distances and numbers of the k nearest other points, (n, k) each, the nearest first.

    Args:
        x: (n, d) floating point rows, or distances (n, n).
        k: how many, below n.
        metric: "euclidean"; "angle" between rows, of which a row of zeros has none; "precomputed"
            (or "distances") if x has distances.
    """
    check_integer("k", k)
    check_choice("metric", metric, ("euclidean", "angle", "distances", "precomputed"))
    precomputed = metric in ("distances", "precomputed")
    (check_distances if precomputed else check_points)(x)
    if k >= len(x):
        raise ValueError(f"k must be below the number of points, {len(x)}, got {k}")
    x = x.detach().double()
    if not precomputed:  # what all points share would cost the distances digits
        x = directions(x) if metric == "angle" else x - x.mean(0)
    blocks = []
    for rows in row_slices(len(x)):
        block = x[rows]
        d = block.clone() if precomputed else torch.cdist(block, x)
        d[:, rows].fill_diagonal_(torch.inf)  # not itself
        near, numbers = d.topk(k, dim=1, largest=False)
        if not precomputed:
            # By their difference: from a product, points that coincide are 1e-7 apart.
            near = torch.stack([(block - x[numbers[:, i]]).norm(dim=-1) for i in range(k)], 1)
        near, order = near.sort(dim=1, stable=True)
        blocks.append((near, numbers.gather(1, order)))
    distances, numbers = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    if metric == "angle":  # from the chord
        distances = 2 * torch.asin((distances / 2).clamp(max=1.0))
    return distances, numbers
