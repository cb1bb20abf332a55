"""Shapes that matrix products take and give."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def as_matrix(t: Tensor) -> Tensor:
    """(..., d) as (n, d), with nothing spent on what is one already."""
    return t if t.ndim == 2 else t.reshape(-1, t.shape[-1])


def as_result(matrix: Tensor, shape: Sequence[int]) -> Tensor:
    """(n, d) in the shape of what a `Function` returns.

    Not as a view: autograd does not let anyone change a view in place that a `Function` made.
    """
    if matrix.ndim == len(shape):
        return matrix
    result: Tensor = torch.ops.aten._unsafe_view(matrix, shape)
    return result


def as_number(number: float | Tensor, like: Tensor) -> Tensor:
    """A number as a tensor of one element, in float32 if it is not one already."""
    if isinstance(number, Tensor):
        return number
    return like.new_full((1,), number, dtype=torch.float32)
