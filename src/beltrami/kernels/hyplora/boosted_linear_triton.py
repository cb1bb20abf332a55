r"""The rows of `boosted_linear` on a GPU: all but the products with [B b], in one kernel each way.

[B b] gets columns of zeros up to a multiple of 8, without which cuBLAS takes no tensor cores. In a
kernel the time coordinate is apart from the others, so that a tile is as wide as u and no wider.
What is summed over tokens is summed by each program over its own, and then by torch: the same input
gives the same bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from beltrami.kernels.hyplora import boosted_linear, gained_linear_triton
from beltrami.kernels.hyplora.gain import Gain
from beltrami.kernels.hyplora.gained_linear_triton import (
    ROWS,
    gram_matrix,
    readable,
)
from beltrami.kernels.launch.dtypes import overflow_safe_dtype
from beltrami.kernels.launch.launcher import cdiv, launch
from beltrami.kernels.launch.triton_math import (
    asinhc,
    asinhc_prime,
    hyperbolic,
    padded,
    ratio,
    root,
    rounded,
    sinhc_prime,
)

__all__ = ["both", "gram_matrix", "rows", "rows_backward", "unsupported_reason"]

ALIGNED = 8  # numbers of 16 bits, which tensor cores read at once
WEIGHT_ROWS = 32  # of a tile of [B b]

_ALIGNED = tl.constexpr(ALIGNED)
_LARGEST = tl.constexpr(boosted_linear.LARGEST_SLOPE)
_LOG_LARGEST_CUBED = tl.constexpr(boosted_linear.LOG_LARGEST_CUBED)


def unsupported_reason(
    u: Tensor, weight: Tensor, n2: Tensor, time_in: Tensor, time_out: Tensor
) -> str | None:
    """Why the kernels cannot take these arguments of `boosted_linear`; None if they can."""
    for column in (time_in, time_out):
        if column.device != u.device:
            return f"its tensors must be on one device, got {u.device} and {column.device}"
    return gained_linear_triton.unsupported_reason(u, weight, n2)


def both(weight: Tensor, time_out: Tensor, dtype: torch.dtype) -> Tensor:
    """[B b 0], (out, a multiple of 8)."""
    n, rank = weight.shape
    width = ALIGNED * cdiv(rank + 1, ALIGNED)
    out = torch.empty(n, width, dtype=dtype, device=weight.device)
    launch(
        _both,
        (cdiv(n, WEIGHT_ROWS),),
        weight.contiguous(),
        time_out.contiguous(),
        out,
        n,
        rank,
        width,
        RANK=padded(rank),
        ROWS=WEIGHT_ROWS,
    )
    return out


def rows(u: Tensor, gram: Tensor, n2: Tensor, gain: Gain, time_in: Tensor) -> Tensor:
    """s·ĝ·ŷ in u's dtype, as wide as [B b 0]."""
    n, rank, width = n2.numel(), u.shape[-1], gram.shape[-1]
    y = u.new_empty(*u.shape[:-1], width)
    if n:
        launch(
            _rows,
            (cdiv(n, ROWS),),
            u.contiguous(),
            gram.contiguous(),
            n2.contiguous(),
            readable(gain.c, u),
            time_in.contiguous(),
            y,
            n,
            rank,
            width,
            float(gain.scaling),
            gain.cap_squared,
            C_STORED=gain.c_tensor is not None,
            RANK=padded(rank),
            ROWS=ROWS,
        )
    return y


def rows_backward(
    do: Tensor, u: Tensor, gram: Tensor, n2: Tensor, gain: Gain, time_in: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """du, dn², s·ĝ·ŷ, ŷ, v·ŷ, and each program's share of dα and dc, (programs, r + 1)."""
    do, u, n2 = do.contiguous(), u.contiguous(), n2.contiguous()
    n, rank, width = n2.numel(), u.shape[-1], gram.shape[-1]
    programs = cdiv(n, ROWS)
    du, dn2, scaled = torch.empty_like(u), torch.empty_like(n2), torch.empty_like(do)
    y, vy = (torch.empty_like(do, dtype=overflow_safe_dtype(u.dtype)) for _ in range(2))
    shares = n2.new_empty(programs, rank + 1)
    if n:
        launch(
            _rows_backward,
            (programs,),
            do,
            u,
            gram.contiguous(),
            n2,
            readable(gain.c, u),
            time_in.contiguous(),
            du,
            dn2,
            scaled,
            y,
            vy,
            shares,
            n,
            rank,
            width,
            float(gain.scaling),
            gain.cap_squared,
            C_STORED=gain.c_tensor is not None,
            RANK=padded(rank),
            ROWS=ROWS,
        )
    return du, dn2, scaled, y, vy, shares


@triton.jit
def _store(
    ptr: tl.tensor,
    space: tl.tensor,
    time: tl.tensor,
    n: tl.tensor,
    rank: tl.tensor,
    width: tl.tensor,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Rows (space, time, 0, ..., 0), `width` numbers each."""
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    j, k = tl.arange(0, RANK)[None, :], tl.arange(0, _ALIGNED)[None, :]
    dtype: tl.constexpr = ptr.dtype.element_ty
    at = ptr + row * width
    tl.store(at + j, rounded(space, dtype), mask=(row < n) & (j < rank))
    rest = tl.where(k == 0, time[:, None], 0.0)
    tl.store(at + rank + k, rounded(rest, dtype), mask=(row < n) & (rank + k < width))


@triton.jit
def _both(
    weight_ptr: tl.tensor,
    time_ptr: tl.tensor,
    out_ptr: tl.tensor,
    n: tl.tensor,
    rank: tl.tensor,
    width: tl.tensor,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, RANK)[None, :]
    inside = (row < n)[:, None] & (j < rank)
    space = tl.load(weight_ptr + row[:, None] * rank + j, mask=inside, other=0.0).to(tl.float32)
    time = tl.load(time_ptr + row, mask=row < n, other=0.0).to(tl.float32)
    _store(out_ptr, space, time, n, rank, width, RANK, ROWS)


@triton.jit
def _gain_and_slope(p: tl.tensor, low: tl.tensor, q: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """`boosted_linear._gain` and `_slope`; `low` is e^−√p."""
    unit = tl.full(q.shape, 1.0, tl.float32)
    log_lift, lift, side = root(p), ratio(unit, low), root(q)
    v = lift * side
    small = v < 1.0
    squared = tl.where(small, v * tl.where(small, v, 0.0), 1.0)
    large, far_side = tl.where(small, 1.0, v), tl.where(small, 1.0, side)
    inverse = ratio(unit, large)
    stretch = root(1.0 + inverse * inverse)  # √(1 + v^−2)
    far_out = ratio(tl.log(large) + tl.log(1.0 + stretch), far_side)
    g = tl.where(small, lift * asinhc(squared), far_out)
    fall, run = ratio(unit, far_side * stretch) - g, 2.0 * tl.where(small, 1.0, q)
    steep = fall * (1 / _LARGEST) < -run
    closed = tl.where(steep, -_LARGEST, ratio(fall, tl.where(steep, 1.0, run)))
    cube = tl.exp(3.0 * tl.where(log_lift > _LOG_LARGEST_CUBED, _LOG_LARGEST_CUBED, log_lift))
    return g, tl.where(small, cube * asinhc_prime(squared), closed)


@triton.jit
def _radius(p: tl.tensor, c: tl.tensor) -> tl.tensor:
    """1/√c, for each row."""
    unit = tl.full(p.shape, 1.0, tl.float32)
    return ratio(unit, root(unit * c))


@triton.jit
def _lifted(
    u: tl.tensor,
    alpha: tl.tensor,
    sinhc: tl.tensor,
    time_in: tl.tensor,
    low: tl.tensor,
    radius: tl.tensor,
) -> tuple[tl.tensor, tl.tensor]:
    """ẑ and t̂ = √(|ẑ|² + e^−2√p/c)."""
    z = sinhc[:, None] * u + time_in[:, None] * alpha[None, :]
    least = low * radius
    return z, root(tl.sum(z * z, axis=1) + least * least)


@triton.jit
def _products(
    z: tl.tensor,
    time: tl.tensor,
    gram: tl.tensor,
    mixed: tl.tensor,
    corner: tl.tensor,
    c: tl.tensor,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Gŷ, its time apart, and q = c·ŷᵀGŷ."""
    gram_z = tl.dot(z, gram, input_precision="ieee") + time[:, None] * mixed[None, :]
    gram_time = tl.sum(z * mixed[None, :], axis=1) + time * corner
    q = c * (tl.sum(z * gram_z, axis=1) + time * gram_time)
    return gram_z, gram_time, tl.where(q < 0, 0.0, q)  # by rounding


@triton.jit
def _rows(
    u_ptr: tl.tensor,
    gram_ptr: tl.tensor,
    n2_ptr: tl.tensor,
    c_or_ptr: tl.tensor,
    time_in_ptr: tl.tensor,
    y_ptr: tl.tensor,
    n: tl.tensor,
    rank: tl.tensor,
    width: tl.tensor,
    scaling: tl.tensor,
    cap_squared: tl.tensor,
    C_STORED: tl.constexpr,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, RANK)
    j, k = i[None, :], i[:, None]
    real = row < n
    inside = real[:, None] & (j < rank)
    u = tl.load(u_ptr + row[:, None] * rank + j, mask=inside, other=0.0).to(tl.float32)
    gram = tl.load(gram_ptr + k * width + j, mask=(k < rank) & (j < rank), other=0.0)
    mixed = tl.load(gram_ptr + i * width + rank, mask=i < rank, other=0.0)  # Bᵀb
    corner = tl.load(gram_ptr + rank * width + rank)  # |b|²
    alpha = tl.load(time_in_ptr + i, mask=i < rank, other=0.0).to(tl.float32)
    n2 = tl.load(n2_ptr + row, mask=real, other=0.0)
    c = tl.load(c_or_ptr) if C_STORED else c_or_ptr
    p = c * n2
    p = tl.where(p > cap_squared, cap_squared, p)
    sinhc, rise, low = hyperbolic(p)
    radius = _radius(p, c)
    z, time = _lifted(u, alpha, low * sinhc, low * (1.0 + rise) * radius, low, radius)
    _, _, q = _products(z, time, gram, mixed, corner, c)
    g, _ = _gain_and_slope(p, low, q)
    scale = scaling * g
    _store(y_ptr, scale[:, None] * z, scale * time, n, rank, width, RANK, ROWS)


@triton.jit
def _rows_backward(
    do_ptr: tl.tensor,
    u_ptr: tl.tensor,
    gram_ptr: tl.tensor,
    n2_ptr: tl.tensor,
    c_or_ptr: tl.tensor,
    time_in_ptr: tl.tensor,
    du_ptr: tl.tensor,
    dn2_ptr: tl.tensor,
    scaled_ptr: tl.tensor,
    y_ptr: tl.tensor,
    vy_ptr: tl.tensor,
    shares_ptr: tl.tensor,
    n: tl.tensor,
    rank: tl.tensor,
    width: tl.tensor,
    scaling: tl.tensor,
    cap_squared: tl.tensor,
    C_STORED: tl.constexpr,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, RANK)
    j, k = i[None, :], i[:, None]
    real = row < n
    inside = real[:, None] & (j < rank)
    at = row[:, None] * rank + j
    u = tl.load(u_ptr + at, mask=inside, other=0.0).to(tl.float32)
    do = tl.load(do_ptr + row[:, None] * width + j, mask=inside, other=0.0).to(tl.float32)
    do_time = tl.load(do_ptr + row * width + rank, mask=real, other=0.0).to(tl.float32)
    gram = tl.load(gram_ptr + k * width + j, mask=(k < rank) & (j < rank), other=0.0)
    mixed = tl.load(gram_ptr + i * width + rank, mask=i < rank, other=0.0)  # Bᵀb
    corner = tl.load(gram_ptr + rank * width + rank)  # |b|²
    alpha = tl.load(time_in_ptr + i, mask=i < rank, other=0.0).to(tl.float32)
    n2 = tl.load(n2_ptr + row, mask=real, other=0.0)
    c = tl.load(c_or_ptr) if C_STORED else c_or_ptr
    p = c * n2
    clipped = p > cap_squared
    p = tl.where(clipped, cap_squared, p)
    sinhc, rise, low = hyperbolic(p)
    by_p = low * sinhc_prime(p, sinhc, 1.0 + rise)
    sinhc = low * sinhc
    radius = _radius(p, c)
    time_in = low * (1.0 + rise) * radius
    z, time = _lifted(u, alpha, sinhc, time_in, low, radius)
    gram_z, gram_time, q = _products(z, time, gram, mixed, corner, c)
    g, slope = _gain_and_slope(p, low, q)
    scale = scaling * g
    dq = slope * scaling * (tl.sum(do * z, axis=1) + do_time * time)
    v = c * dq
    by_time = ratio(scale * do_time + 2.0 * v * gram_time, tl.where(time > 0, time, 1.0))
    dz = scale[:, None] * do + (2.0 * v)[:, None] * gram_z + by_time[:, None] * z
    of_u, of_alpha = tl.sum(dz * u, axis=1), tl.sum(dz * alpha[None, :], axis=1)
    dp = tl.where(clipped, 0.0, by_p * of_u + sinhc * radius * of_alpha / 2)
    # Less what the radius 1/√c is worth, in time before and after A.
    shrunk = (time_in * of_alpha + low * radius * (low * radius) * by_time) / 2
    dc = n2 * dp + (q * dq - shrunk) * (radius * radius)
    tl.store(du_ptr + at, (sinhc[:, None] * dz).to(du_ptr.dtype.element_ty), mask=inside)
    tl.store(dn2_ptr + row, c * dp, mask=real)
    _store(scaled_ptr, scale[:, None] * z, scale * time, n, rank, width, RANK, ROWS)
    _store(y_ptr, z, time, n, rank, width, RANK, ROWS)
    _store(vy_ptr, v[:, None] * z, v * time, n, rank, width, RANK, ROWS)
    share = shares_ptr + tl.program_id(0).to(tl.int64) * (rank + 1)
    tl.store(share + i, tl.sum(time_in[:, None] * dz, axis=0), mask=i < rank)
    tl.store(share + rank, tl.sum(dc, axis=0))
