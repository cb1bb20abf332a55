r"""`adapted_linear` on a GPU: what is done to tokens, in as few kernels as there can be.

Many tokens: forwards one kernel takes u = A·x, n² and the gain; backwards one takes dy·B and the
gain's gradients. Few tokens without gradients, as when text is generated: the time of such layers
is that of starting kernels, so that three do all beside the layer itself, and no Gram matrix is
made. No sum is spread over programs: the same input gives the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from beltrami.kernels.hyplora import gained_linear_triton, norm_linear_triton
from beltrami.kernels.hyplora.gain import Gain
from beltrami.kernels.hyplora.gained_linear_triton import (
    gained,
    gained_backward,
    gram_matrix,
    kernel_constants,
    limited_gain,
    readable,
    unsupported_rank,
)
from beltrami.kernels.hyplora.norm_linear_triton import (
    COLUMNS,
    ONE_PASS,
    ONE_PASS_RANK,
)
from beltrami.kernels.launch.dtypes import overflow_safe_dtype, under_autocast
from beltrami.kernels.launch.launcher import cdiv, launch
from beltrami.kernels.launch.triton_math import (
    DTYPES,
    interpreted,
    padded,
    power_of_2,
    rounded,
    unsupported_devices,
)

__all__ = [
    "few",
    "gradient_rows",
    "gram_matrix",
    "input_gradient",
    "rows",
    "takes_few",
    "unsupported_reason",
]

input_gradient = norm_linear_triton.input_gradient

FORWARD_ROWS, BACKWARD_ROWS = 64, 64  # of a program's tile
MOST_OF_FOUR_WARPS = 32  # ranks above need more registers for their rows
FEW = 32  # tokens up to which each has programs of its own
CHUNK, MOST_CHUNKS = 1024, 64  # features of x of a program with few tokens, and how many such
UP_COLUMNS, GAIN_COLUMNS = 64, 1024  # outputs of a program with few tokens


def unsupported_reason(x: Tensor, weight: Tensor, down: Tensor, up: Tensor) -> str | None:
    """Why the kernels cannot take these arguments of `adapted_linear`; None if they can."""
    if reason := unsupported_devices("x", x, weight, down, up):
        return reason
    if under_autocast(x):
        return "it takes tensors as they are, not as autocast would"
    for t in (weight, down, up):
        if t.dtype != x.dtype:
            return f"its tensors must have one dtype, got {x.dtype} and {t.dtype}"
    if x.dtype not in DTYPES:
        return f"it multiplies in float16, bfloat16 or float32, got {x.dtype}"
    return unsupported_rank(len(down), x)


def rows(
    x: Tensor,
    down: Tensor,
    gram: Tensor,
    gain: Gain,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """u = A·x, n² = |x|², z = s·g·u and m² = |B·u|² of tokens, (n, ·) each."""
    n, columns = x.shape
    rank = len(down)
    if not _in_one_pass(n, rank, x):
        u, n2 = norm_linear_triton.product_and_norms(x, down)
        return u, n2, *gained_linear_triton.rows(u, gram, n2, gain)
    if x.stride(1) != 1:
        x = x.contiguous()
    u, z = x.new_empty(n, rank), x.new_empty(n, rank)
    n2, m2 = (x.new_empty(n, 1, dtype=torch.float32) for _ in range(2))
    launch(
        _rows,
        (cdiv(n, FORWARD_ROWS),),
        x,
        down.contiguous(),
        gram,
        readable(gain.c, x),
        u,
        n2,
        z,
        m2,
        n,
        columns,
        rank,
        x.stride(0),
        float(gain.scaling),
        gain.cap_squared,
        **_constants(rank, FORWARD_ROWS, gain),
    )
    return u, n2, z, m2


def gradient_rows(
    dy: Tensor,
    up: Tensor,
    u: Tensor,
    gram: Tensor,
    n2: Tensor,
    m2: Tensor,
    gain: Gain,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """du, dn², z, w·u, and each token's share of dc if c is a tensor."""
    n, columns = dy.shape
    rank = u.shape[-1]
    if not _in_one_pass(n, rank, dy):
        dz = torch.mm(dy, up)
        return gained_linear_triton.rows_backward(dz, u, gram, n2, m2, gain)
    if dy.stride(1) != 1:
        dy = dy.contiguous()
    du, z = torch.empty_like(u), torch.empty_like(u)
    wu = torch.empty_like(u, dtype=overflow_safe_dtype(u.dtype))
    dn2 = torch.empty_like(n2)
    by_c = None if gain.c_tensor is None else torch.empty_like(n2)
    launch(
        _gradient_rows,
        (cdiv(n, BACKWARD_ROWS),),
        dy,
        up.contiguous(),
        u,
        gram,
        n2,
        m2,
        readable(gain.c, u),
        du,
        dn2,
        z,
        wu,
        n2 if by_c is None else by_c,  # not written then
        n,
        columns,
        rank,
        dy.stride(0),
        float(gain.scaling),
        gain.cap_squared,
        **_constants(rank, BACKWARD_ROWS, gain),
    )
    return du, dn2, z, wu, by_c


def _constants(rank: int, rows: int, gain: Gain) -> dict[str, Any]:
    return {
        **kernel_constants(gain),
        "RANK": padded(rank),
        "ROWS": rows,
        "COLUMNS": COLUMNS,
        "WIDEN": interpreted(),
        "num_warps": 8 if rank > MOST_OF_FOUR_WARPS else 4,
    }


def takes_few(x: Tensor, up: Tensor) -> bool:
    """Whether `few` is the way to take these tokens."""
    n, columns = x.shape
    return 0 < n <= FEW and up.shape[1] <= ONE_PASS_RANK and columns <= MOST_CHUNKS * CHUNK


def few(
    x: Tensor,
    down: Tensor,
    up: Tensor,
    gain: Gain,
    out: Tensor,
) -> None:
    """Add the map of few tokens to `out`, in place; what is between the kernels is float32."""
    x = x.contiguous()  # of few rows; else a kernel would be compiled for every distance of theirs
    n, inputs = x.shape
    outputs, rank = up.shape
    chunks, blocks = cdiv(inputs, CHUNK), cdiv(outputs, UP_COLUMNS)
    # Of each token: parts of u and of n² by chunks, B·u, and parts of m² by blocks.
    room = chunks * (rank + 1) + outputs + blocks
    between = x.new_empty(n * room, dtype=torch.float32)
    # Sizes are compiled in: a model has few of them, and each number handed over takes time.
    launch(
        _few_down,
        (n, chunks),
        x,
        down.contiguous(),
        between,
        INPUTS=inputs,
        CHUNKS=chunks,
        RANK=rank,
        ROOM=room,
        TILE=padded(rank),
        CHUNK=CHUNK,
        COLUMNS=COLUMNS,
    )
    launch(
        _few_up,
        (n, blocks),
        up.contiguous(),
        between,
        CHUNKS=chunks,
        OUTPUTS=outputs,
        RANK=rank,
        ROOM=room,
        CHUNK_TILE=power_of_2(chunks),
        TILE=padded(rank),
        COLUMNS=UP_COLUMNS,
    )
    launch(
        _few_gain,
        (n, cdiv(outputs, GAIN_COLUMNS)),
        out,
        between,
        readable(gain.c, x),
        float(gain.scaling),
        gain.cap_squared,
        CHUNKS=chunks,
        BLOCKS=blocks,
        OUTPUTS=outputs,
        RANK=rank,
        ROOM=room,
        **kernel_constants(gain),
        CHUNK_TILE=power_of_2(chunks),
        BLOCK_TILE=power_of_2(blocks),
        COLUMNS=GAIN_COLUMNS,
    )


def _in_one_pass(n: int, rank: int, x: Tensor) -> bool:
    """Fewer tokens leave most of a GPU idle; larger tiles do not fit its shared memory."""
    return n >= ONE_PASS and rank <= ONE_PASS_RANK and x.element_size() <= 2


@triton.jit
def _rows(
    x_ptr: tl.tensor,
    down_ptr: tl.tensor,
    gram_ptr: tl.tensor,
    c_or_ptr: tl.tensor,
    u_ptr: tl.tensor,
    n2_ptr: tl.tensor,
    z_ptr: tl.tensor,
    m2_ptr: tl.tensor,
    n: tl.tensor,
    columns: tl.tensor,
    rank: tl.tensor,
    x_row: tl.tensor,
    scaling: tl.tensor,
    cap_squared: tl.tensor,
    C_STORED: tl.constexpr,
    LIMITED: tl.constexpr,
    STEREOGRAPHIC: tl.constexpr,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDEN: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, RANK)
    real_row, real_k = row < n, k < rank
    product = tl.zeros((ROWS, RANK), tl.float32)
    squares = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, columns, COLUMNS):
        j = first + tl.arange(0, COLUMNS)
        real_column = j < columns
        x = tl.load(
            x_ptr + row[:, None] * x_row + j[None, :],
            mask=real_row[:, None] & real_column[None, :],
            other=0.0,
        )
        down = tl.load(
            down_ptr + k[None, :] * columns + j[:, None],
            mask=real_k[None, :] & real_column[:, None],
            other=0.0,
        )
        wide = x.to(tl.float32)
        if WIDEN:  # the interpreter cannot multiply bfloat16
            x, down = wide, down.to(tl.float32)
        product = tl.dot(x, down, product, input_precision="ieee")
        squares += wide * wide
    n2 = tl.sum(squares, axis=1)
    at = row[:, None] * rank + k[None, :]
    inside = real_row[:, None] & real_k[None, :]
    narrow = product.to(u_ptr.dtype.element_ty)
    tl.store(u_ptr + at, narrow, mask=inside)
    tl.store(n2_ptr + row, n2, mask=real_row)
    u = narrow.to(tl.float32)  # as it is kept, and multiplied by B
    gram = _square(gram_ptr, rank, RANK)
    c = tl.load(c_or_ptr) if C_STORED else c_or_ptr
    scale, m2 = gained(u, gram, n2, c, scaling, cap_squared, LIMITED, STEREOGRAPHIC)
    tl.store(z_ptr + at, rounded(scale[:, None] * u, z_ptr.dtype.element_ty), mask=inside)
    tl.store(m2_ptr + row, m2, mask=real_row)


@triton.jit
def _gradient_rows(
    dy_ptr: tl.tensor,
    up_ptr: tl.tensor,
    u_ptr: tl.tensor,
    gram_ptr: tl.tensor,
    n2_ptr: tl.tensor,
    m2_ptr: tl.tensor,
    c_or_ptr: tl.tensor,
    du_ptr: tl.tensor,
    dn2_ptr: tl.tensor,
    z_ptr: tl.tensor,
    wu_ptr: tl.tensor,
    by_c_ptr: tl.tensor,
    n: tl.tensor,
    columns: tl.tensor,
    rank: tl.tensor,
    dy_row: tl.tensor,
    scaling: tl.tensor,
    cap_squared: tl.tensor,
    C_STORED: tl.constexpr,
    LIMITED: tl.constexpr,
    STEREOGRAPHIC: tl.constexpr,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDEN: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, RANK)
    real_row, real_k = row < n, k < rank
    dz = tl.zeros((ROWS, RANK), tl.float32)
    for first in range(0, columns, COLUMNS):
        j = first + tl.arange(0, COLUMNS)
        real_column = j < columns
        dy = tl.load(
            dy_ptr + row[:, None] * dy_row + j[None, :],
            mask=real_row[:, None] & real_column[None, :],
            other=0.0,
        )
        up = tl.load(
            up_ptr + j[:, None] * rank + k[None, :],
            mask=real_column[:, None] & real_k[None, :],
            other=0.0,
        )
        if WIDEN:  # the interpreter cannot multiply bfloat16
            dy, up = dy.to(tl.float32), up.to(tl.float32)
        dz = tl.dot(dy, up, dz, input_precision="ieee")
    at = row[:, None] * rank + k[None, :]
    inside = real_row[:, None] & real_k[None, :]
    u = tl.load(u_ptr + at, mask=inside, other=0.0).to(tl.float32)
    gram = _square(gram_ptr, rank, RANK)
    n2 = tl.load(n2_ptr + row, mask=real_row, other=0.0)
    m2 = tl.load(m2_ptr + row, mask=real_row, other=0.0)
    c = tl.load(c_or_ptr) if C_STORED else c_or_ptr
    du, dn2, scale, w, by_c = gained_backward(
        dz, u, gram, n2, m2, c, scaling, cap_squared, LIMITED, STEREOGRAPHIC
    )
    tl.store(du_ptr + at, du.to(du_ptr.dtype.element_ty), mask=inside)
    tl.store(dn2_ptr + row, dn2, mask=real_row)
    tl.store(z_ptr + at, rounded(scale[:, None] * u, z_ptr.dtype.element_ty), mask=inside)
    tl.store(wu_ptr + at, (w[:, None] * u).to(wu_ptr.dtype.element_ty), mask=inside)
    if C_STORED:
        tl.store(by_c_ptr + row, by_c, mask=real_row)


@triton.jit
def _square(gram_ptr: tl.tensor, rank: tl.tensor, RANK: tl.constexpr) -> tl.tensor:
    """The Gram matrix, with zeros around it."""
    j, k = tl.arange(0, RANK)[None, :], tl.arange(0, RANK)[:, None]
    return tl.load(gram_ptr + k * rank + j, mask=(k < rank) & (j < rank), other=0.0)


@triton.jit
def _few_down(
    x_ptr: tl.tensor,
    down_ptr: tl.tensor,
    between_ptr: tl.tensor,
    INPUTS: tl.constexpr,
    CHUNKS: tl.constexpr,
    RANK: tl.constexpr,
    ROOM: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """A chunk's part of u and of n²."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k = tl.arange(0, TILE)
    products = tl.zeros((TILE, COLUMNS), tl.float32)
    squares = tl.zeros((COLUMNS,), tl.float32)
    for first in range(0, CHUNK, COLUMNS):
        j = chunk * CHUNK + first + tl.arange(0, COLUMNS)
        real = j < INPUTS
        x = tl.load(x_ptr + row * INPUTS + j, mask=real, other=0.0).to(tl.float32)
        down = tl.load(
            down_ptr + k[:, None] * INPUTS + j[None, :],
            mask=(k < RANK)[:, None] & real[None, :],
            other=0.0,
        ).to(tl.float32)
        products += down * x[None, :]
        squares += x * x
    here = between_ptr + row * ROOM
    tl.store(here + chunk * RANK + k, tl.sum(products, axis=1), mask=k < RANK)
    tl.store(here + CHUNKS * RANK + chunk, tl.sum(squares, axis=0))


@triton.jit
def _few_up(
    up_ptr: tl.tensor,
    between_ptr: tl.tensor,
    CHUNKS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    RANK: tl.constexpr,
    ROOM: tl.constexpr,
    CHUNK_TILE: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """A block's part of B·u, and the sum of its squares."""
    here, block = between_ptr + tl.program_id(0).to(tl.int64) * ROOM, tl.program_id(1)
    k, chunk = tl.arange(0, TILE), tl.arange(0, CHUNK_TILE)
    u = tl.load(
        here + chunk[:, None] * RANK + k[None, :],
        mask=(chunk < CHUNKS)[:, None] & (k < RANK)[None, :],
        other=0.0,
    )
    u = tl.sum(u, axis=0).to(up_ptr.dtype.element_ty).to(tl.float32)  # as for more tokens
    j = block * COLUMNS + tl.arange(0, COLUMNS)
    up = tl.load(
        up_ptr + j[:, None] * RANK + k[None, :],
        mask=(j < OUTPUTS)[:, None] & (k < RANK)[None, :],
        other=0.0,
    ).to(tl.float32)
    mapped = tl.sum(up * u[None, :], axis=1)
    after = here + CHUNKS * (RANK + 1)
    tl.store(after + j, mapped, mask=j < OUTPUTS)
    tl.store(after + OUTPUTS + block, tl.sum(mapped * mapped, axis=0))


@triton.jit
def _few_gain(
    out_ptr: tl.tensor,
    between_ptr: tl.tensor,
    c_or_ptr: tl.tensor,
    scaling: tl.tensor,
    cap_squared: tl.tensor,
    CHUNKS: tl.constexpr,
    BLOCKS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    RANK: tl.constexpr,
    ROOM: tl.constexpr,
    C_STORED: tl.constexpr,
    LIMITED: tl.constexpr,
    STEREOGRAPHIC: tl.constexpr,
    CHUNK_TILE: tl.constexpr,
    BLOCK_TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """The gain, and the sum."""
    row = tl.program_id(0).to(tl.int64)
    here = between_ptr + row * ROOM
    after = here + CHUNKS * (RANK + 1)
    chunk, block = tl.arange(0, CHUNK_TILE), tl.arange(0, BLOCK_TILE)
    squares = tl.load(here + CHUNKS * RANK + chunk, mask=chunk < CHUNKS, other=0.0)
    mapped_squares = tl.load(after + OUTPUTS + block, mask=block < BLOCKS, other=0.0)
    # In blocks of one: the functions are for blocks.
    n2 = tl.sum(squares[None, :], axis=1)
    m2 = tl.sum(mapped_squares[None, :], axis=1)
    c = tl.load(c_or_ptr) if C_STORED else c_or_ptr
    scale = scaling * limited_gain(n2, m2, c, cap_squared, LIMITED, STEREOGRAPHIC)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    real = j < OUTPUTS
    mapped = tl.load(after + j, mask=real, other=0.0)
    base = tl.load(out_ptr + row * OUTPUTS + j, mask=real, other=0.0).to(tl.float32)
    total = base + tl.sum(scale, axis=0) * mapped
    tl.store(out_ptr + row * OUTPUTS + j, rounded(total, out_ptr.dtype.element_ty), mask=real)
