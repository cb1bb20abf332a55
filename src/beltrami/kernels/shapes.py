"""Shapes that matrix products take."""

from __future__ import annotations

from torch import Tensor


def as_matrix(t: Tensor) -> Tensor:
    """(..., d) as (n, d), with nothing spent on what is one already."""
    return t if t.ndim == 2 else t.reshape(-1, t.shape[-1])
