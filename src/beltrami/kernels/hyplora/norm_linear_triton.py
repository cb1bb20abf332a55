r"""`norm_linear` on a GPU: norms from one pass over x, and its gradient from another.

Forwards one kernel takes both and x is read once; of few tokens the product is cuBLAS's, and a
kernel of its own takes the norms. Backwards a program reads a tile of x and writes the same tile of
its gradient. No sum is spread over programs: the same input gives the same bits.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from beltrami.kernels.launch.launcher import cdiv, launch
from beltrami.kernels.launch.triton_math import DTYPES, interpreted, padded, unsupported_devices

ONE_PASS = 4096  # tokens from which on one kernel takes both: fewer leave most of a GPU idle
ONE_PASS_RANK = 64  # above, and for float32, its tiles do not fit every GPU's shared memory
PRODUCT_ROWS, ROWS, COLUMNS = 64, 32, 128  # of tiles that are multiplied, forwards and backwards
NORM_ROWS, NORM_COLUMNS = 4, 512  # of a tile that is only summed
MAX_RANK = 128  # of the weight: a tile's products stay in registers
MOST_COLUMNS = 65_535 * COLUMNS  # what CUDA's grid holds


def unsupported_reason(x: Tensor, weight: Tensor) -> str | None:
    """Why the kernels cannot take these arguments of `norm_linear`; None if they can."""
    if reason := unsupported_devices("x", x, weight):
        return reason
    if x.dtype not in DTYPES:
        return f"it multiplies in float16, bfloat16 or float32, got {x.dtype}"
    if weight.shape[0] > MAX_RANK:
        return f"it takes weights of up to {MAX_RANK} rows, got {weight.shape[0]}"
    if x.shape[-1] > MOST_COLUMNS:
        return f"it takes up to {MOST_COLUMNS} features, got {x.shape[-1]}"
    return None


def product_and_norms(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """`x·Wᵀ`, (..., r), and `|x|²`, (..., 1), in float32."""
    flat, n, row = _as_rows(x)
    rank, columns = weight.shape
    n2 = torch.empty(*x.shape[:-1], 1, dtype=torch.float32, device=x.device)
    if n < ONE_PASS or rank > ONE_PASS_RANK or x.element_size() > 2:
        if n:
            launch(
                _norms,
                (cdiv(n, NORM_ROWS),),
                flat,
                n2,
                n,
                columns,
                row,
                ROWS=NORM_ROWS,
                COLUMNS=NORM_COLUMNS,
            )
        return F.linear(x, weight), n2
    u = torch.empty(*x.shape[:-1], rank, dtype=x.dtype, device=x.device)
    launch(
        _product_and_norms,
        (cdiv(n, PRODUCT_ROWS),),
        flat,
        weight.contiguous(),
        u,
        n2,
        n,
        columns,
        rank,
        row,
        RANK=padded(rank),
        ROWS=PRODUCT_ROWS,
        COLUMNS=COLUMNS,
        WIDEN=interpreted(),
    )
    return u, n2


def input_gradient(
    x: Tensor, weight: Tensor, du: Tensor, dn2: Tensor, add_to: Tensor | None = None
) -> Tensor:
    """`add_to + du·W + 2·dn²·x`, in the shape and dtype of x; rounded once."""
    flat, n, row = _as_rows(x)
    rank, columns = weight.shape
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if n:
        launch(
            _input_gradient,
            (cdiv(n, ROWS), cdiv(columns, COLUMNS)),
            flat,
            weight.contiguous(),
            du.contiguous(),
            dn2.contiguous(),
            dx if add_to is None else add_to.contiguous(),
            dx,
            n,
            columns,
            rank,
            row,
            ADDS=add_to is not None,
            RANK=padded(rank),
            ROWS=ROWS,
            COLUMNS=COLUMNS,
            WIDEN=interpreted(),
        )
    return dx


def _as_rows(x: Tensor) -> tuple[Tensor, int, int]:
    """x with the numbers of a row side by side, how many rows, and how far apart they are."""
    *rows, columns = x.shape
    n = math.prod(rows)  # not numel(), which makes a number of a size that may change
    if x.is_contiguous():
        return x, n, columns
    flat = x.reshape(n, columns)
    flat = flat if flat.stride(1) == 1 else flat.contiguous()
    return flat, n, flat.stride(0)


@triton.jit
def _norms(
    x_ptr: tl.tensor,
    n2_ptr: tl.tensor,
    n: tl.tensor,
    columns: tl.tensor,
    x_row: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real_row = row < n
    squares = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, columns, COLUMNS):
        j = first + tl.arange(0, COLUMNS)
        x = tl.load(
            x_ptr + row[:, None] * x_row + j[None, :],
            mask=real_row[:, None] & (j < columns)[None, :],
            other=0.0,
        ).to(tl.float32)
        squares += x * x
    tl.store(n2_ptr + row, tl.sum(squares, axis=1), mask=real_row)


@triton.jit
def _product_and_norms(
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    u_ptr: tl.tensor,
    n2_ptr: tl.tensor,
    n: tl.tensor,
    columns: tl.tensor,
    rank: tl.tensor,
    x_row: tl.tensor,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDEN: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, RANK)
    real_row, real_k = row < n, k < rank
    u = tl.zeros((ROWS, RANK), tl.float32)
    squares = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, columns, COLUMNS):
        j = first + tl.arange(0, COLUMNS)
        real_column = j < columns
        x = tl.load(
            x_ptr + row[:, None] * x_row + j[None, :],
            mask=real_row[:, None] & real_column[None, :],
            other=0.0,
        )
        weight = tl.load(
            weight_ptr + k[None, :] * columns + j[:, None],
            mask=real_k[None, :] & real_column[:, None],
            other=0.0,
        )
        wide = x.to(tl.float32)
        if WIDEN:  # the interpreter cannot multiply bfloat16
            x, weight = wide, weight.to(tl.float32)
        u = tl.dot(x, weight, u, input_precision="ieee")
        squares += wide * wide
    inside = real_row[:, None] & real_k[None, :]
    at = row[:, None] * rank + k[None, :]
    tl.store(u_ptr + at, u.to(u_ptr.dtype.element_ty), mask=inside)
    tl.store(n2_ptr + row, tl.sum(squares, axis=1), mask=real_row)


@triton.jit
def _input_gradient(
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    du_ptr: tl.tensor,
    dn2_ptr: tl.tensor,
    add_ptr: tl.tensor,
    dx_ptr: tl.tensor,
    n: tl.tensor,
    columns: tl.tensor,
    rank: tl.tensor,
    x_row: tl.tensor,
    ADDS: tl.constexpr,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDEN: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, RANK)
    real_row, real_column, real_k = row < n, j < columns, k < rank
    inside = real_row[:, None] & real_column[None, :]
    x = tl.load(x_ptr + row[:, None] * x_row + j[None, :], mask=inside, other=0.0)
    du = tl.load(
        du_ptr + row[:, None] * rank + k[None, :],
        mask=real_row[:, None] & real_k[None, :],
        other=0.0,
    )
    weight = tl.load(
        weight_ptr + k[:, None] * columns + j[None, :],
        mask=real_k[:, None] & real_column[None, :],
        other=0.0,
    )
    dn2 = tl.load(dn2_ptr + row, mask=real_row, other=0.0)
    at = row[:, None] * columns + j[None, :]
    dx = (2.0 * dn2)[:, None] * x.to(tl.float32)
    if ADDS:
        dx += tl.load(add_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if WIDEN:  # the interpreter cannot multiply bfloat16
        du, weight = du.to(tl.float32), weight.to(tl.float32)
    dx = tl.dot(du, weight, dx, input_precision="ieee")
    tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)
