"""Arguments of functions on sets of points, (..., n, d): weights, curvature, pairs of sets."""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.geometry.checks import Scalar, check_finite, debugging


def as_weights(weights: Tensor | None, x: Tensor) -> Tensor:
    """Weights as (..., n, 1), checked against points x (..., n, d)."""
    if x.ndim < 2:
        raise ValueError(
            f"x must hold the points to average along its next to last dimension, (..., n, d), "
            f"got shape {tuple(x.shape)}"
        )
    if weights is None:
        return torch.ones_like(x[..., :1])
    if not isinstance(weights, Tensor) or not weights.is_floating_point():
        raise TypeError("weights must be a floating point tensor or None")
    if weights.ndim == 0 or weights.shape[-1] != x.shape[-2]:
        raise ValueError(
            f"weights must have shape (..., n) with n = {x.shape[-2]} for points of shape "
            f"{tuple(x.shape)}, got {tuple(weights.shape)}"
        )
    if debugging():
        check_finite(weights=weights)
    return weights.to(x.dtype).unsqueeze(-1)


def curvature_of_set(c: Scalar) -> Scalar:
    """c with a dimension for the points of a set, since it broadcasts against the result."""
    return c.unsqueeze(-2) if isinstance(c, Tensor) and c.ndim > 1 else c


def check_sets(x: Tensor, y: Tensor, c: Scalar) -> None:
    """Check that x and y are sets of rows, (..., n, d), with one curvature a set."""
    if x.ndim < 2 or y.ndim < 2:
        raise ValueError(
            f"x and y must hold rows of points, (..., n, d), got shapes {tuple(x.shape)} and "
            f"{tuple(y.shape)}"
        )
    if isinstance(c, Tensor) and c.ndim > 1 and c.shape[-2] != 1:
        raise ValueError(
            f"pairwise_dist takes one curvature a set, of shape (1,) or (..., 1, 1), got "
            f"{tuple(c.shape)}"
        )
