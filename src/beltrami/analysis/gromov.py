"""How tree-like distances are: Gromov's δ, relative to the diameter."""

from __future__ import annotations

import torch
from torch import Tensor

MOST_NUMBERS = 1 << 24  # in a tile of the (max, min) product
# The δ of the Poincaré disk of curvature −1, in the units in which Khrulkov et al. 2020 compare.
DISK = 0.144


def relative_delta(distances: Tensor, *, base: int = 0) -> float:
    """2δ/diameter at one base point: 0 for trees, up to 1.

    With the Gromov products `(i|j) = (d(i,b) + d(j,b) − d(i,j))/2` of the base b, δ is the largest
    `min((i|k), (k|j)) − (i|j)`. A fixed base gives at least half of the δ over all of them. Points
    that are all equally far apart are a star, hence a tree, so that noise in many dimensions has a
    small δ, too: compare with a null model before you call data hyperbolic.

    Args:
        distances: (n, n), symmetric.
        base: the point b.
    """
    if distances.dim() != 2 or distances.shape[0] != distances.shape[1]:
        raise ValueError(f"distances must be (n, n), got {tuple(distances.shape)}")
    n = len(distances)
    if not -n <= base < n:
        raise ValueError(f"base must be one of {n} points, got {base}")
    d = distances.double()
    if not bool(torch.isfinite(d).all()):
        raise ValueError("distances must be finite")
    diameter = float(d.max()) if n else 0.0
    if not diameter > 0:
        return 0.0
    products = (d[base].unsqueeze(0) + d[base].unsqueeze(1) - d) / 2
    largest = 0.0
    rows = max(1, MOST_NUMBERS // (n * n))
    for some in products.split(rows):
        best = torch.minimum(some.unsqueeze(2), products.unsqueeze(0)).amax(1)
        largest = max(largest, float((best - some).max()))
    return 2 * largest / diameter


def curvature_estimate(delta: float, *, least: float = 0.01, most: float = 10.0) -> float:
    """The c of −c at which the Poincaré disk is as tree-like: `(0.144/δ)²`, within bounds.

    A rule of thumb (Khrulkov et al. 2020, arXiv 1904.02239).

    Args:
        delta: relative.
        least, most: the bounds.
    """
    if delta < 0:
        raise ValueError(f"delta must not be negative, got {delta}")
    return most if delta == 0 else min(most, max(least, (DISK / delta) ** 2))
