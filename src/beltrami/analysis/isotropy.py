r"""Whether rows point everywhere alike, and how much they overlap.

mean cosine           of pairs of different rows: 0 if they point everywhere, 1 if all one way
mean squared cosine   their overlap; 1/d for directions drawn at random, and no less than
                      (n − d)/(d(n − 1)) for n > d rows (Welch)
effective dimensions  (Σλ)²/Σλ² of the covariance's eigenvalues λ: d if all are equal
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.checks import check_points
from beltrami.analysis.results import Result
from beltrami.analysis.rows import row_slices
from beltrami.analysis.superposition.features import welch_bound


@dataclass(frozen=True)
class Isotropy(Result):
    """Directions of rows; see the head of this file.

    Args:
        mean_cosine, mean_squared_cosine: of pairs of different rows.
        random_overlap: 1/d. least_overlap: what n rows in d dimensions must have.
        effective_dimensions: of the covariance. first_share: of its largest eigenvalue. NaN for
            rows that are all alike.
        dimensions: d. used: rows that are not 0, and have a direction. points: all rows.
    """

    mean_cosine: float
    mean_squared_cosine: float
    random_overlap: float
    least_overlap: float
    effective_dimensions: float
    first_share: float
    dimensions: int
    used: int
    points: int


def isotropy(x: Tensor) -> Isotropy:
    """Of rows x, (n, d), exactly over all pairs, in one pass and (d, d) memory."""
    check_points(x)
    if len(x) < 2:
        raise ValueError(f"isotropy compares rows, and there are {len(x)}")
    n, d = x.shape
    # Sums over all pairs of rows are sums over coordinates: Σ(u·v) = |Σu|², Σ(u·v)² = |Σuuᵀ|².
    centre = x.detach().mean(0, dtype=torch.float64)
    unit_sum, unit_products = torch.zeros_like(centre), centre.new_zeros(d, d)
    scatter = torch.zeros_like(unit_products)
    used = 0
    for block in row_slices(n, d):
        rows = x[block].detach().double()
        moved = rows - centre
        scatter += moved.mT @ moved
        length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        unit = rows[length[:, 0] > 0] / length[length[:, 0] > 0]
        used += len(unit)
        unit_sum += unit.sum(0)
        unit_products += unit.mT @ unit
    pairs = used * (used - 1)
    cosine = (float(unit_sum.square().sum()) - used) / pairs if pairs else math.nan
    squared = (float(unit_products.square().sum()) - used) / pairs if pairs else math.nan
    values = torch.linalg.eigvalsh(scatter)
    # Rows that are all alike differ from their mean by what it was rounded.
    rounding = n * d * float(centre.square().sum()) * torch.finfo(torch.float64).eps ** 2
    values = torch.where(values > rounding, values, 0.0)
    total = float(values.sum())
    return Isotropy(
        mean_cosine=cosine,
        mean_squared_cosine=squared,
        random_overlap=1 / d,
        least_overlap=welch_bound(used, d) if used > 1 else math.nan,
        effective_dimensions=total**2 / float(values.square().sum()) if total > 0 else math.nan,
        first_share=float(values.max()) / total if total > 0 else math.nan,
        dimensions=d,
        used=used,
        points=n,
    )
