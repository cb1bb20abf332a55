"""Tables of rows, a block after another, for kernels that work in place."""

from __future__ import annotations

from collections.abc import Iterator
from types import EllipsisType

import torch
from torch import Tensor

from beltrami.geometry.checks import Scalar
from beltrami.geometry.chord import dot
from beltrami.kernels.launch.dtypes import upcast

# Elements of a block: what is computed on the way then stays in a CPU's cache.
_BLOCK_ELEMENTS = 1 << 18


def row_blocks(x: Tensor, c: Scalar) -> Iterator[slice | EllipsisType]:
    """Indices of parts of the first dimension; all at once on a GPU and in compiled code.

    All at once too where the first dimension is the one that several curvatures belong to.
    """
    whole = x.is_cuda or torch.compiler.is_compiling() or x.numel() <= _BLOCK_ELEMENTS
    if whole or x.ndim < 2 or (isinstance(c, Tensor) and c.ndim >= x.ndim):
        yield ...
        return
    rows = max(1, _BLOCK_ELEMENTS * len(x) // x.numel())
    for first in range(0, len(x), rows):
        yield slice(first, first + rows)


def in_range(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """Whether the dtype holds a row and the squares that distances from it are made of, (..., 1).

    Those are up to 4c|x|², so in float32 a point of hyperbolic space has √c·radius < 44.
    """
    x = upcast(x)
    return torch.isfinite(4 * (1 + c) * dot(x, x))


def fits(x: Tensor, dtype: torch.dtype) -> Tensor | bool:
    """Whether rows stay finite in the dtype they are stored in, (..., 1); float16 ends at 65504."""
    if torch.finfo(dtype).max >= torch.finfo(torch.bfloat16).max:
        return True
    return torch.isfinite(x.to(dtype)).all(-1, keepdim=True)


def keep_bad_rows(fine: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """`new` in the rows that are fine, `old` in the others; waits for no device.

    On a CPU, where looking costs nothing, `new` itself if all are fine.
    """
    if fine.device.type == "cpu" and not torch.compiler.is_compiling() and bool(fine.all()):
        return new
    return torch.where(fine, new, old)
