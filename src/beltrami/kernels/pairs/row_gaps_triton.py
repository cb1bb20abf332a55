"""`row_gaps` on a GPU, without the products in memory.

Each program keeps a tile of the product in registers while it walks along k, some steps at a time.
A thread has one column of the tile and all its rows, so that the maximum over the steps stays
inside it: taken one step at a time, or in a tile whose columns are fewer than the threads, the
numbers go from thread to thread through memory. A strip of columns leaves one number a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from beltrami.kernels.launch.launcher import cdiv, launch
from beltrami.kernels.launch.triton_math import unsupported_devices

COLUMNS, WARPS = 128, 4  # a thread a column
ROWS_AND_STEPS = {torch.float32: (32, 8), torch.float64: (16, 4)}  # that registers hold
MOST_STRIPS = 65_535  # what CUDA's grid holds


def unsupported_reason(a: Tensor) -> str | None:
    """Why the kernel cannot take a matrix; None if it can."""
    if reason := unsupported_devices("a", a):
        return reason
    if cdiv(len(a), COLUMNS) > MOST_STRIPS:
        return f"it takes up to {MOST_STRIPS * COLUMNS} rows, got {len(a)}"
    return None


def row_gaps(a: Tensor, first: int, last: int) -> Tensor:
    """The largest gain of each row."""
    n, rows = len(a), last - first
    strips = cdiv(n, COLUMNS)
    tile, steps = ROWS_AND_STEPS[a.dtype]
    gaps = a.new_full((rows, strips), -torch.inf)
    if gaps.numel() and n > 1:
        launch(
            _gaps,
            (cdiv(rows, tile), strips),
            a.contiguous(),
            gaps,
            n,
            first,
            last,
            strips,
            ROWS=tile,
            COLUMNS=COLUMNS,
            STEPS=steps,
            num_warps=WARPS,
        )
    return gaps.amax(1)


@triton.jit(do_not_specialize=["first", "last", "strips"])  # or some blocks compile it anew
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
    top = first + tl.program_id(0) * ROWS
    i = top + tl.arange(0, ROWS)
    j = strip * COLUMNS + tl.arange(0, COLUMNS)
    real_row, real_column = i < last, j < n
    # A tile left of the diagonal has no pair with j > i.
    if strip * COLUMNS + COLUMNS - 1 > top:
        rows = tl.where(real_row, i, 0).to(tl.int64)[:, None] * n
        columns = tl.where(real_column, j, 0)[None, :]
        best = tl.full((ROWS, COLUMNS), float("-inf"), a_ptr.dtype.element_ty)
        for block in range(0, n, STEPS):
            k = tl.minimum(block + tl.arange(0, STEPS), n - 1)  # the last once more changes nothing
            left = tl.load(a_ptr + rows + k[None, :])
            right = tl.load(a_ptr + k.to(tl.int64)[:, None] * n + columns)
            through = tl.minimum(left[:, :, None], right[None, :, :])
            best = tl.maximum(best, tl.max(through, 1))
        pair = real_row[:, None] & real_column[None, :] & (j[None, :] > i[:, None])
        # Their places once more, which kept from above would take registers all the way.
        places = i.to(tl.int64)[:, None] * n + j[None, :]
        own = tl.load(a_ptr + places, mask=pair, other=0.0)
        gains = tl.where(pair, best - own, float("-inf"))
        tl.store(
            found_ptr + (i - first).to(tl.int64) * strips + strip, tl.max(gains, 1), mask=real_row
        )
