"""`row_gaps` on a GPU, without the products in memory.

Each program keeps a tile of the product in registers while it walks along k: row k of the symmetric
matrix serves both sides. A strip of columns leaves one number a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from beltrami.kernels.starting import parts, start

ROWS, COLUMNS, STEPS = 64, 64, 8  # of a tile, and steps of k that are unrolled
MOST_STRIPS = 65_535  # what CUDA's grid holds


def why_not(a: Tensor) -> str | None:
    """What keeps the kernel from taking a matrix; None if nothing does."""
    interpreted = not isinstance(_gaps, triton.JITFunction)
    if not (a.is_cuda or interpreted):
        return f"it runs on a CUDA device, and a is on {a.device}"
    if parts(len(a), COLUMNS) > MOST_STRIPS:
        return f"it takes up to {MOST_STRIPS * COLUMNS} rows, got {len(a)}"
    return None


def row_gaps(a: Tensor, first: int, last: int) -> Tensor:
    """The largest gain of each row."""
    n, rows = len(a), last - first
    strips = parts(n, COLUMNS)
    found = a.new_full((rows, strips), -torch.inf)
    if found.numel() and n > 1:
        start(
            _gaps,
            (parts(rows, ROWS), strips),
            a.contiguous(),
            found,
            n,
            first,
            last,
            strips,
            ROWS=ROWS,
            COLUMNS=COLUMNS,
            STEPS=STEPS,
        )
    return found.amax(1)


@triton.jit
def _gaps(
    a_ptr: tl.tensor,
    found_ptr: tl.tensor,
    n: tl.tensor,
    first: tl.tensor,
    last: tl.tensor,
    strips: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEPS: tl.constexpr,
) -> None:
    strip = tl.program_id(1)
    i = first + tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = strip * COLUMNS + tl.arange(0, COLUMNS)
    real_row, real_column = i < last, j < n
    # A tile left of the diagonal has no pair with j > i.
    if strip * COLUMNS + COLUMNS - 1 > first + tl.program_id(0) * ROWS:
        pair = real_row[:, None] & real_column[None, :] & (j[None, :] > i[:, None])
        places = i.to(tl.int64)[:, None] * n + j[None, :]
        own = tl.load(a_ptr + places, mask=pair, other=0.0)
        best = tl.full((ROWS, COLUMNS), float("-inf"), own.dtype)
        for block in range(0, n, STEPS):
            for step in tl.static_range(STEPS):
                k = tl.minimum(block + step, n - 1)  # the last row once more changes nothing
                row = a_ptr + k.to(tl.int64) * n
                left = tl.load(row + i, mask=real_row, other=0.0)
                right = tl.load(row + j, mask=real_column, other=0.0)
                best = tl.maximum(best, tl.minimum(left[:, None], right[None, :]))
        gains = tl.where(pair, best - own, float("-inf"))
        tl.store(
            found_ptr + (i - first).to(tl.int64) * strips + strip, tl.max(gains, 1), mask=real_row
        )
