"""How often features occur: probabilities that fall off by some law, most frequent first.

All functions return float64 (n,) whose sum, the mean number of features of a sample, is `density`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.checks import check_integer, check_number, check_positive
from beltrami.geometry.checks import check_finite


def power_law(n: int, exponent: float, *, density: float = 1.0) -> Tensor:
    """p_i ∝ i^−exponent; 0 is the same for all."""
    check_integer("n", n)
    check_number("exponent", exponent, low=0)
    return _scaled(torch.arange(1, n + 1, dtype=torch.float64) ** -exponent, density)


def linear(n: int, *, density: float = 1.0) -> Tensor:
    """p_i ∝ n + 1 − i: falls to nearly 0 along a line."""
    check_integer("n", n)
    return _scaled(torch.arange(n, 0, -1, dtype=torch.float64), density)


def exponential(n: int, scale: float, *, density: float = 1.0) -> Tensor:
    """p_i ∝ exp(−i/scale)."""
    check_integer("n", n)
    check_positive("scale", scale)
    return _scaled(torch.exp(-torch.arange(1, n + 1, dtype=torch.float64) / scale), density)


def empirical(counts: Tensor, *, density: float = 1.0) -> Tensor:
    """p_i ∝ counts, (n,), such as those of tokens in a text, in falling order."""
    if not isinstance(counts, Tensor) or counts.ndim != 1 or len(counts) == 0:
        got = tuple(counts.shape) if isinstance(counts, Tensor) else type(counts).__name__
        raise ValueError(f"counts must be a vector (n,), got {got}")
    check_finite(counts=counts)
    if not float(counts.min()) > 0:
        raise ValueError(f"counts must be positive, got {float(counts.min()):g}")
    return _scaled(counts.detach().cpu().double().sort(descending=True).values, density)


def denser(p: Tensor, share: float) -> Tensor:
    """The same law with more features a sample: 0 leaves p, at 1 the first is always there.

    p times 1 + share·(1/p₁ − 1).
    """
    check_number("share", share, low=0, high=1)
    return p * (1 + share * (1 / float(p.max()) - 1))


def _scaled(weights: Tensor, density: float) -> Tensor:
    check_positive("density", density)
    p = weights * (density / weights.sum())
    if float(p.max()) > 1:
        most = density / float(p.max())
        raise ValueError(
            f"density {density:g} would make the first feature more frequent than always; at most "
            f"{most:g} features a sample fit this law"
        )
    return p
