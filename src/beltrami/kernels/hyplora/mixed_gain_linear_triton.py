r"""The rows of `mixed_gain_linear` on a GPU, in one kernel each way, as those of `gained_linear`.

A program goes through the curvatures of its rows one after the other and keeps their sums.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from beltrami.kernels.hyplora import gained_linear_triton
from beltrami.kernels.hyplora.gain import Gain
from beltrami.kernels.hyplora.gained_linear_triton import (
    ROWS,
    gain_and_slopes,
    gram_matrix,
)
from beltrami.kernels.launch.dtypes import overflow_safe_dtype
from beltrami.kernels.launch.launcher import cdiv, launch
from beltrami.kernels.launch.triton_math import padded, rounded

__all__ = ["gram_matrix", "rows", "rows_backward", "unsupported_reason"]

MOST_CURVATURES = 16  # the kernels' code is as long as there are curvatures


def unsupported_reason(
    u: Tensor, weight: Tensor, n2: Tensor, c: Tensor, weights: Tensor | None
) -> str | None:
    """Why the kernels cannot take these arguments of `mixed_gain_linear`; None if they can."""
    if c.shape[-1] > MOST_CURVATURES:
        return f"it takes up to {MOST_CURVATURES} curvatures, got {c.shape[-1]}"
    if weights is not None and weights.device != u.device:
        return f"its tensors must be on one device, got {u.device} and {weights.device}"
    return gained_linear_triton.unsupported_reason(u, weight, n2)


def rows(
    u: Tensor,
    gram: Tensor,
    n2: Tensor,
    gain: Gain,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """z = s·g·u in u's dtype, and m² = |Wu|², (..., 1)."""
    u, n2 = u.contiguous(), n2.contiguous()
    z, m2 = torch.empty_like(u), torch.empty_like(n2)
    c = _readable(gain, u)
    n, rank, count = n2.numel(), u.shape[-1], c.shape[-1]
    if n:
        launch(
            _rows,
            (cdiv(n, ROWS),),
            u,
            gram.contiguous(),
            n2,
            c,
            n2 if weights is None else weights.contiguous(),
            z,
            m2,
            n,
            rank,
            float(gain.scaling),
            gain.cap_squared,
            COUNT=count,
            C_ROW=0 if c.ndim == 1 else count,
            WEIGHED=weights is not None,
            LIMITED=gain.cap is not None,
            RANK=padded(rank),
            ROWS=ROWS,
        )
    return z, m2


def rows_backward(
    dz: Tensor,
    u: Tensor,
    gram: Tensor,
    n2: Tensor,
    m2: Tensor,
    gain: Gain,
    weights: Tensor | None,
    by_c: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """du, dn², z, v·u, dc of each token, (..., k), if it is wanted, and dweights."""
    u, n2 = u.contiguous(), n2.contiguous()
    du, z, dn2 = torch.empty_like(u), torch.empty_like(u), torch.empty_like(n2)
    vu = torch.empty_like(u, dtype=overflow_safe_dtype(u.dtype))
    c = _readable(gain, u)
    n, rank, count = n2.numel(), u.shape[-1], c.shape[-1]
    dc = n2.new_empty(*n2.shape[:-1], count) if by_c else None
    weights = None if weights is None else weights.contiguous()
    dweights = None if weights is None else torch.empty_like(weights)
    if n:
        launch(
            _rows_backward,
            (cdiv(n, ROWS),),
            dz.contiguous(),
            u,
            gram.contiguous(),
            n2,
            m2.contiguous(),
            c,
            n2 if weights is None else weights,
            du,
            dn2,
            z,
            vu,
            dn2 if dc is None else dc,
            dn2 if dweights is None else dweights,
            n,
            rank,
            float(gain.scaling),
            gain.cap_squared,
            COUNT=count,
            C_ROW=0 if c.ndim == 1 else count,
            BY_C=by_c,
            WEIGHED=weights is not None,
            LIMITED=gain.cap is not None,
            RANK=padded(rank),
            ROWS=ROWS,
        )
    return du, dn2, z, vu, dc, dweights


def _readable(gain: Gain, u: Tensor) -> Tensor:
    """The curvatures where the kernel can read them."""
    assert isinstance(gain.c, Tensor)
    return gain.c.to(u.device, torch.float32, non_blocking=True).contiguous()


@triton.jit
def _rows(
    u_ptr: tl.tensor,
    gram_ptr: tl.tensor,
    n2_ptr: tl.tensor,
    c_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    z_ptr: tl.tensor,
    m2_ptr: tl.tensor,
    n: tl.tensor,
    rank: tl.tensor,
    scaling: tl.tensor,
    cap_squared: tl.tensor,
    COUNT: tl.constexpr,
    C_ROW: tl.constexpr,
    WEIGHED: tl.constexpr,
    LIMITED: tl.constexpr,
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
    m2 = tl.sum(u * tl.dot(u, gram, input_precision="ieee"), axis=1)
    m2 = tl.where(m2 < 0, 0.0, m2)  # by rounding
    g = tl.zeros((ROWS,), tl.float32)
    for i in tl.static_range(COUNT):
        c = tl.load(c_ptr + row * C_ROW + i, mask=real, other=0.0)
        p = c * n2
        if LIMITED:
            p = tl.where(p > cap_squared, cap_squared, p)
        part, _, _ = gain_and_slopes(p, c * m2)
        if WEIGHED:
            weight = tl.load(weights_ptr + row * COUNT + i, mask=real, other=0.0)
            part = part * weight.to(tl.float32)
        g += part
    z = (scaling * g)[:, None] * u
    tl.store(z_ptr + at, rounded(z, z_ptr.dtype.element_ty), mask=inside)
    tl.store(m2_ptr + row, m2, mask=real)


@triton.jit
def _rows_backward(
    dz_ptr: tl.tensor,
    u_ptr: tl.tensor,
    gram_ptr: tl.tensor,
    n2_ptr: tl.tensor,
    m2_ptr: tl.tensor,
    c_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    du_ptr: tl.tensor,
    dn2_ptr: tl.tensor,
    z_ptr: tl.tensor,
    vu_ptr: tl.tensor,
    dc_ptr: tl.tensor,
    dweights_ptr: tl.tensor,
    n: tl.tensor,
    rank: tl.tensor,
    scaling: tl.tensor,
    cap_squared: tl.tensor,
    COUNT: tl.constexpr,
    C_ROW: tl.constexpr,
    BY_C: tl.constexpr,
    WEIGHED: tl.constexpr,
    LIMITED: tl.constexpr,
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
    dg = scaling * tl.sum(dz * u, axis=1)
    g = tl.zeros((ROWS,), tl.float32)
    dn2 = tl.zeros((ROWS,), tl.float32)
    v = tl.zeros((ROWS,), tl.float32)
    for i in tl.static_range(COUNT):
        c = tl.load(c_ptr + row * C_ROW + i, mask=real, other=0.0)
        p = c * n2
        clipped = p > cap_squared
        if LIMITED:
            p = tl.where(clipped, cap_squared, p)
        part, by_p, by_q = gain_and_slopes(p, c * m2)
        if LIMITED:
            by_p = tl.where(clipped, 0.0, by_p)
        share = dg
        if WEIGHED:
            at_weight = row * COUNT + i
            weight = tl.load(weights_ptr + at_weight, mask=real, other=0.0).to(tl.float32)
            to_weight = (dg * part).to(dweights_ptr.dtype.element_ty)
            tl.store(dweights_ptr + at_weight, to_weight, mask=real)
            share, part = dg * weight, part * weight
        dp, dq = share * by_p, share * by_q
        g += part
        dn2 += c * dp
        v += c * dq
        if BY_C:
            tl.store(dc_ptr + row * COUNT + i, dp * n2 + dq * m2, mask=real)
    scale = scaling * g
    du = scale[:, None] * dz + (2.0 * v)[:, None] * tl.dot(u, gram, input_precision="ieee")
    tl.store(du_ptr + at, du.to(du_ptr.dtype.element_ty), mask=inside)
    tl.store(dn2_ptr + row, dn2, mask=real)
    tl.store(z_ptr + at, rounded(scale[:, None] * u, z_ptr.dtype.element_ty), mask=inside)
    tl.store(vu_ptr + at, (v[:, None] * u).to(vu_ptr.dtype.element_ty), mask=inside)
