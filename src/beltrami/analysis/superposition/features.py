r"""What a table of features W (n, m) represents, and how much n directions in m dimensions overlap.

A row Wᵢ is the direction of feature i. Trained rows of the toy model are near 0 or near 1, so that
a feature counts as represented where |Wᵢ| > ½; φ½ is the share of those, and φ₁ the share with
|Wᵢ| > 1 (Liu et al. 2025, arXiv 2505.10465). A feature that is not represented costs what its
variance is: with x = u·v, u = 1 with probability p and v uniform in 0..2, that is 4p/3 − p².

The mean of cos² over pairs of different directions is at least (n − d)/(d(n − 1)) for n > d
(Welch, 1974), and 0 is reached for n ≤ d. Where every pair has just that, κ², they are an
equiangular tight frame (ETF). Random directions have 1/d.
"""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.analysis.checks import check_tensor
from beltrami.checks import check_integer
from beltrami.geometry.checks import check_finite

HALF = 0.5  # rows are represented above it


def represented(w: Tensor, above: float = HALF) -> Tensor:
    """Share of rows that are longer than `above`: φ½, or φ₁ with `above=1`.

    Args:
        w: (n, m), or a stack of such, (..., n, m).

    Returns:
        (...), float64; a single number for one matrix.
    """
    return (_norms(w) > above).double().mean(-1)


def unlearned_loss(w: Tensor, frequencies: Tensor, above: float = HALF) -> Tensor:
    """What the features without a row of their own cost: Σ 4p/3 − p² over |Wᵢ| ≤ `above`.

    Args:
        w: (..., n, m).
        frequencies: pᵢ, the probability that a feature is active, (..., n), from 0 to 1.

    Returns:
        (...), float64.
    """
    norms = _norms(w)
    check_tensor("frequencies", frequencies)
    check_finite(frequencies=frequencies)
    if frequencies.shape[-1:] != norms.shape[-1:]:
        raise ValueError(
            f"there must be a frequency for each of {norms.shape[-1]} features, got shape "
            f"{tuple(frequencies.shape)}"
        )
    p = frequencies.detach().double()
    if float(p.min()) < 0 or float(p.max()) > 1:
        raise ValueError(
            f"frequencies are probabilities, from 0 to 1, got {float(p.min()):g} to "
            f"{float(p.max()):g}"
        )
    return torch.where(norms > above, 0.0, 4 / 3 * p - p.square()).sum(-1)


def welch_bound(n: int, d: int) -> float:
    """κ², the least mean of cos² that n directions in d dimensions can have."""
    check_integer("n", n, 2)
    check_integer("d", d)
    return 0.0 if n <= d else (n - d) / (d * (n - 1))


def expected_kappa(n: int, m: int) -> float:
    """κ² of the features that a strong toy model represents well, with rows longer than 1.

    They are about ν = min(n, m²/2) of n, as many as can be nearly equiangular in m dimensions, so
    that κ² = (ν − m)/(m(ν − 1)). From the dashed line of Liu et al. 2025, figure 6d, whose ν is
    not written down: it has 0.082 at m = 10, which is ν = 50.
    """
    check_integer("n", n, 2)
    check_integer("m", m)
    nu = min(n, m * m / 2)
    return 0.0 if nu <= m else (nu - m) / (m * (nu - 1))


def _norms(w: Tensor) -> Tensor:
    """Lengths of rows, (..., n), float64."""
    check_tensor("w", w)
    if w.ndim < 2 or not w.is_floating_point() or w.numel() == 0:
        raise ValueError(
            f"w must be floating point rows (..., n, m), at least one, got {w.dtype} of shape "
            f"{tuple(w.shape)}"
        )
    check_finite(w=w)
    norms: Tensor = torch.linalg.vector_norm(w.detach(), dim=-1, dtype=torch.float64)
    return norms
