r"""The rows of `gained_linear` on a GPU: all but the products with W, in one kernel each way.

A program takes a few rows of u and the whole of G = WᵀW, as small as u is short. Written out with
tensors, the gain alone takes some forty operations a token. Nothing is summed over rows: the same
input gives the same bits.
"""

from __future__ import annotations

import functools
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from beltrami.kernels.hyplora import lorentz_gain
from beltrami.kernels.hyplora.gain import Gain
from beltrami.kernels.hyplora.norm_linear_triton import MAX_RANK
from beltrami.kernels.launch.dtypes import overflow_safe_dtype
from beltrami.kernels.launch.launcher import cdiv, is_traced, launch
from beltrami.kernels.launch.triton_math import (
    DTYPES,
    asinhc,
    asinhc_prime,
    hyperbolic,
    padded,
    ratio,
    root,
    rounded,
    single,
    sinhc_prime,
    unsupported_devices,
)

ROWS = 32  # of a program
SMALL_RANK = 64  # the most on GPUs with little shared memory
_TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
_TRACES_OUT_DTYPE = _TORCH >= (2, 10)  # before, torch.compile does not know it

_FAR = tl.constexpr(lorentz_gain.FAR)
_LARGEST = tl.constexpr(lorentz_gain.LARGEST_GAIN)
_LOG_LARGEST = tl.constexpr(math.log(lorentz_gain.LARGEST_GAIN))


def unsupported_reason(u: Tensor, weight: Tensor, n2: Tensor) -> str | None:
    """Why the kernels cannot take these arguments of `gained_linear`; None if they can."""
    if reason := unsupported_devices("u", u, weight, n2):
        return reason
    if u.dtype not in DTYPES or n2.dtype == torch.float64:
        return f"it computes in float32, got {u.dtype} and norms of {n2.dtype}"
    return unsupported_rank(u.shape[-1], u)


def unsupported_rank(rank: int, where: Tensor) -> str | None:
    """Why the kernels cannot take so long rows on a tensor's device; None if they can."""
    most = MAX_RANK if not where.is_cuda or _has_room(where.device) else SMALL_RANK
    if rank > most:
        return f"it takes ranks of up to {most} there, got {rank}"
    return None


@functools.cache
def _has_room(device: torch.device) -> bool:
    """Whether the shared memory of a GPU holds the largest tiles: not before Ampere."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


def gram_matrix(weight: Tensor) -> Tensor:
    """WᵀW in float32; without a copy of W in float32 where cuBLAS can do without."""
    may = not is_traced() or _TRACES_OUT_DTYPE
    if weight.is_cuda and weight.dtype != torch.float32 and may:
        return torch.mm(weight.mT, weight, out_dtype=torch.float32)
    wide = weight.float()
    return wide.mT @ wide


def rows(u: Tensor, gram: Tensor, n2: Tensor, gain: Gain) -> tuple[Tensor, Tensor]:
    """z = s·g·u in u's dtype, and m² = |Wu|², (..., 1)."""
    u, n2 = u.contiguous(), n2.contiguous()
    z, m2 = torch.empty_like(u), torch.empty_like(n2)
    n, rank = n2.numel(), u.shape[-1]
    if n:
        launch(
            _rows,
            (cdiv(n, ROWS),),
            u,
            gram.contiguous(),
            n2,
            readable(gain.c, u),
            z,
            m2,
            n,
            rank,
            float(gain.scaling),
            gain.cap_squared,
            **kernel_constants(gain),
            RANK=padded(rank),
            ROWS=ROWS,
        )
    return z, m2


def rows_backward(
    dz: Tensor, u: Tensor, gram: Tensor, n2: Tensor, m2: Tensor, gain: Gain
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """du, dn², z, w·u, and each token's share of dc if c is a tensor."""
    u, n2 = u.contiguous(), n2.contiguous()
    du, z, dn2 = torch.empty_like(u), torch.empty_like(u), torch.empty_like(n2)
    wu = torch.empty_like(u, dtype=overflow_safe_dtype(u.dtype))
    by_c = None if gain.c_tensor is None else torch.empty_like(n2)
    n, rank = n2.numel(), u.shape[-1]
    if n:
        launch(
            _rows_backward,
            (cdiv(n, ROWS),),
            dz.contiguous(),
            u,
            gram.contiguous(),
            n2,
            m2.contiguous(),
            readable(gain.c, u),
            du,
            dn2,
            z,
            wu,
            n2 if by_c is None else by_c,  # not written then
            n,
            rank,
            float(gain.scaling),
            gain.cap_squared,
            **kernel_constants(gain),
            RANK=padded(rank),
            ROWS=ROWS,
        )
    return du, dn2, z, wu, by_c


def readable(c: Tensor | float, u: Tensor) -> Tensor | float:
    """A tensor where the kernel can read it, so that nobody waits to learn it."""
    if isinstance(c, Tensor):
        return c.detach().to(u.device, torch.float32, non_blocking=True).reshape(1)
    return float(c)


def kernel_constants(gain: Gain) -> dict[str, bool]:
    """What the kernels are compiled for."""
    return {
        "C_STORED": gain.c_tensor is not None,
        "LIMITED": gain.cap is not None,
        "STEREOGRAPHIC": gain.stereographic,
    }


@triton.jit
def _near(p: tl.tensor, q: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """`lorentz_gain._near`."""
    s, rise, _ = hyperbolic(p)
    v = s * root(q)
    small = v < 1.0
    squared = tl.where(small, v * tl.where(small, v, 0.0), 1.0)
    large = tl.where(small, 1.0, v)
    inverse = ratio(tl.full(q.shape, 1.0, tl.float32), large)
    stretch = root(1.0 + inverse * inverse)  # √(1 + v^−2)
    far_out = ratio(tl.log(large) + tl.log(1.0 + stretch), large)
    g = s * tl.where(small, asinhc(squared), far_out)
    top = tl.where(small, 1.0, inverse)
    r = ratio(top, tl.where(small, root(1.0 + squared), stretch))
    by_p = r * sinhc_prime(p, s, 1.0 + rise)
    closed = ratio(s * r - g, 2.0 * tl.where(small, 1.0, q))
    by_q = tl.where(small, s * s * s * asinhc_prime(squared), closed)
    return g, by_p, by_q


@triton.jit
def _far(p: tl.tensor, q: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """`lorentz_gain._far`: S is given by its logarithm."""
    a = root(p)
    log_s = a - tl.log(2.0 * a)
    none = q == 0
    log_q = tl.log(tl.where(none, 1.0, q))
    log_v = tl.where(none, float("-inf"), log_s + log_q / 2)
    large = log_v > 0
    over = tl.where(large, log_v, 0.0)
    v2 = tl.exp(2.0 * tl.where(large, 0.0, log_v))
    stretch = root(1.0 + tl.exp(-2.0 * over))  # √(1 + v^−2)
    inverse = ratio(tl.full(q.shape, 1.0, tl.float32), root(tl.where(large, q, 1.0)))
    s = tl.exp(tl.where(log_s > _LOG_LARGEST, _LOG_LARGEST, log_s))
    g = tl.where(large, (over + tl.log(1.0 + stretch)) * inverse, s * asinhc(v2))
    capped = g >= _LARGEST * (1 - 1e-5)
    g = tl.where(capped, _LARGEST, g)
    s_r = ratio(tl.where(large, inverse, s), tl.where(large, stretch, root(1.0 + v2)))
    by_p = ratio(s_r * (a - 1.0), 2.0 * p)
    closed = ratio(s_r - g, 2.0 * tl.where(large, q, 1.0))
    cube = tl.exp(3.0 * tl.where(log_s > _LOG_LARGEST / 3, _LOG_LARGEST / 3, log_s))
    by_q = tl.where(large, closed, cube * asinhc_prime(v2))
    return g, tl.where(capped, 0.0, by_p), tl.where(capped, 0.0, by_q)


@triton.jit
def gain_and_slopes(p: tl.tensor, q: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The same as `lorentz_gain.gain_and_slopes`."""
    far = p > _FAR
    g, by_p, by_q = _near(tl.where(far, 0.0, p), q)
    far_g, far_by_p, far_by_q = _far(tl.where(far, p, _FAR), q)
    return tl.where(far, far_g, g), tl.where(far, far_by_p, by_p), tl.where(far, far_by_q, by_q)


@triton.jit
def _stereographic(p: tl.tensor, q: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The same as `stereographic_gain.gain_and_slopes`."""
    unit = tl.full(p.shape, 1.0, tl.float32)
    lift = ratio(unit, unit - p * 0.25)
    stretch = root(1.0 + lift * lift * q)
    share = ratio(lift, 1.0 + stretch)
    return (
        2.0 * share,
        ratio(share * lift, 2.0 * stretch),
        -ratio(share * share * lift, stretch),
    )


@triton.jit
def _either(
    p: tl.tensor, q: tl.tensor, STEREOGRAPHIC: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    if STEREOGRAPHIC:
        g, by_p, by_q = _stereographic(p, q)
    else:
        g, by_p, by_q = gain_and_slopes(p, q)
    return g, by_p, by_q


@triton.jit
def gained(
    u: tl.tensor,
    gram: tl.tensor,
    n2: tl.tensor,
    c: tl.tensor,
    scaling: tl.tensor,
    cap_squared: tl.tensor,
    LIMITED: tl.constexpr,
    STEREOGRAPHIC: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """s·g and m² of each row."""
    c, scaling, cap_squared = single(c), single(scaling), single(cap_squared)
    m2 = tl.sum(u * tl.dot(u, gram, input_precision="ieee"), axis=1)
    m2 = tl.where(m2 < 0, 0.0, m2)  # by rounding
    return scaling * limited_gain(n2, m2, c, cap_squared, LIMITED, STEREOGRAPHIC), m2


@triton.jit
def limited_gain(
    n2: tl.tensor,
    m2: tl.tensor,
    c: tl.tensor,
    cap_squared: tl.tensor,
    LIMITED: tl.constexpr,
    STEREOGRAPHIC: tl.constexpr,
) -> tl.tensor:
    """The gain of each row."""
    p = c * n2
    if LIMITED:
        p = tl.where(p > cap_squared, cap_squared, p)
    g, _, _ = _either(p, c * m2, STEREOGRAPHIC)
    return g


@triton.jit
def gained_backward(
    dz: tl.tensor,
    u: tl.tensor,
    gram: tl.tensor,
    n2: tl.tensor,
    m2: tl.tensor,
    c: tl.tensor,
    scaling: tl.tensor,
    cap_squared: tl.tensor,
    LIMITED: tl.constexpr,
    STEREOGRAPHIC: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """du, dn², s·g, w and its share of dc, of each row."""
    c, scaling, cap_squared = single(c), single(scaling), single(cap_squared)
    p = c * n2
    clipped = p > cap_squared
    if LIMITED:
        p = tl.where(clipped, cap_squared, p)
    g, by_p, by_q = _either(p, c * m2, STEREOGRAPHIC)
    if LIMITED:
        by_p = tl.where(clipped, 0.0, by_p)
    dg = scaling * tl.sum(dz * u, axis=1)
    dp, dq = dg * by_p, dg * by_q
    scale, w = scaling * g, c * dq
    du = scale[:, None] * dz + (2.0 * w)[:, None] * tl.dot(u, gram, input_precision="ieee")
    return du, c * dp, scale, w, dp * n2 + dq * m2


@triton.jit
def _rows(
    u_ptr: tl.tensor,
    gram_ptr: tl.tensor,
    n2_ptr: tl.tensor,
    c_or_ptr: tl.tensor,
    z_ptr: tl.tensor,
    m2_ptr: tl.tensor,
    n: tl.tensor,
    rank: tl.tensor,
    scaling: tl.tensor,
    cap_squared: tl.tensor,
    C_STORED: tl.constexpr,
    LIMITED: tl.constexpr,
    STEREOGRAPHIC: tl.constexpr,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j, k = tl.arange(0, RANK)[None, :], tl.arange(0, RANK)[:, None]
    real = row < n
    inside = real[:, None] & (j < rank)
    at = row[:, None] * rank + j
    u = tl.load(u_ptr + at, mask=inside, other=0.0).to(tl.float32)
    gram = tl.load(gram_ptr + k * rank + j, mask=(k < rank) & (j < rank), other=0.0)
    n2 = tl.load(n2_ptr + row, mask=real, other=0.0)
    c = tl.load(c_or_ptr) if C_STORED else c_or_ptr
    scale, m2 = gained(u, gram, n2, c, scaling, cap_squared, LIMITED, STEREOGRAPHIC)
    z = scale[:, None] * u
    tl.store(z_ptr + at, rounded(z, z_ptr.dtype.element_ty), mask=inside)
    tl.store(m2_ptr + row, m2, mask=real)


@triton.jit
def _rows_backward(
    dz_ptr: tl.tensor,
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
    rank: tl.tensor,
    scaling: tl.tensor,
    cap_squared: tl.tensor,
    C_STORED: tl.constexpr,
    LIMITED: tl.constexpr,
    STEREOGRAPHIC: tl.constexpr,
    RANK: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j, k = tl.arange(0, RANK)[None, :], tl.arange(0, RANK)[:, None]
    real = row < n
    inside = real[:, None] & (j < rank)
    at = row[:, None] * rank + j
    u = tl.load(u_ptr + at, mask=inside, other=0.0).to(tl.float32)
    dz = tl.load(dz_ptr + at, mask=inside, other=0.0).to(tl.float32)
    gram = tl.load(gram_ptr + k * rank + j, mask=(k < rank) & (j < rank), other=0.0)
    n2 = tl.load(n2_ptr + row, mask=real, other=0.0)
    m2 = tl.load(m2_ptr + row, mask=real, other=0.0)
    c = tl.load(c_or_ptr) if C_STORED else c_or_ptr
    du, dn2, scale, w, by_c = gained_backward(
        dz, u, gram, n2, m2, c, scaling, cap_squared, LIMITED, STEREOGRAPHIC
    )
    tl.store(du_ptr + at, du.to(du_ptr.dtype.element_ty), mask=inside)
    tl.store(dn2_ptr + row, dn2, mask=real)
    tl.store(z_ptr + at, rounded(scale[:, None] * u, z_ptr.dtype.element_ty), mask=inside)
    tl.store(wu_ptr + at, (w[:, None] * u).to(wu_ptr.dtype.element_ty), mask=inside)
    if C_STORED:
        tl.store(by_c_ptr + row, by_c, mask=real)
