"""Rotary positions: pairs of coordinates turned by an angle."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs of coordinates of x, (..., T, heads, size), by cos and sin, (..., T, r/2).

    Computed in the dtype of the table at least, returned in that of x. The first r coordinates are
    turned, the halves split as in Llama, and the rest are left alone.
    """
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    half = cos.shape[-1]
    a, b = x[..., :half], x[..., half : 2 * half]
    parts = [a * cos - b * sin, b * cos + a * sin]
    if 2 * half < x.shape[-1]:
        parts.append(x[..., 2 * half :])
    return torch.cat(parts, dim=-1).to(x.dtype)
