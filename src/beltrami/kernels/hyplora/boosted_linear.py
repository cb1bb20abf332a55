r"""A linear map between exp0 and log0 that takes time coordinates in and out: `a + s·g·[B b]·y`.

Tokens come as u = A·x and n² = |x|², and A has a column α for the time of exp0(x). With p = c·n²,

    z = sinhc(√p)·u + cosh(√p)/√c·α,    y = (z, √(|z|² + 1/c)),    g = asinhc(√c·|[B b]·y|).

The norm comes from the Gram matrix G of [B b], as in `gained_linear`. sinh and cosh grow until
their squares leave float32, so that y is kept as ŷ = e^−√p·y. The result does not depend on that
factor, and its derivatives need not either. With ĝ(q) = asinh(e^√p·√q)/√q of q = c·ŷᵀGŷ, and hats
on all that has the factor e^−√p in it,

    out = s·ĝ·[B b]·ŷ,    do = dout·[B b],    dq = ĝ'·s·⟨do, ŷ⟩,    v = c·dq,
    dŷ = s·ĝ·do + 2v·Gŷ,    dẑ = dŷ_z + ẑ·dŷ_t/t̂,    du = Ŝ·dẑ,    dα = Σ Ĉ/√c·dẑ,
    dp = ⟨dẑ, Ŝ'·u + Ŝ/(2√c)·α⟩,    dn² = c·dp,
    dc = Σ n²·dp + q/c·dq − Ĉ/(2c√c)·⟨dẑ, α⟩ − e^−2√p·dŷ_t/(2c²·t̂),
    d[B b] = doutᵀ·(s·ĝ·ŷ) + 2·[B b]·(Ŷᵀ diag(v) Ŷ),

where S is sinhc and C is cosh. Kept for the backward pass are u, n² and matrices without tokens.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from beltrami.geometry import radial
from beltrami.kernels.hyplora.gain import Gain
from beltrami.kernels.hyplora.gained_linear import gram_matrix, rounded, weight_gradient
from beltrami.kernels.hyplora.lorentz_gain import LARGEST_GAIN
from beltrami.kernels.launch.dispatch import dispatch
from beltrami.kernels.launch.dtypes import (
    accumulation_dtype,
    cast,
    overflow_safe_dtype,
    upcast,
    without_autocast,
)
from beltrami.kernels.launch.shapes import as_matrix, as_result

CAP = 40.0  # of √p: e^−80, and that over c, is still a normal float32
LARGEST_SLOPE = LARGEST_GAIN  # of ĝ: infinity times an update of 0 is not a number
LOG_LARGEST_CUBED = math.log(LARGEST_SLOPE) / 3


@without_autocast  # it would round the Gram matrix
def boosted_linear(
    u: Tensor,
    weight: Tensor,
    n2: Tensor,
    c: Tensor | float,
    time_in: Tensor,
    time_out: Tensor,
    *,
    scaling: float = 1.0,
    cap: float | None = None,
    add_to: Tensor | None = None,
    fused: bool | None = None,
) -> Tensor:
    """`add_to + scaling·log0([B b]·(z, time of z))` with z = sinhc(√p)·u + cosh(√p)/√c·α.

    Args:
        u: (..., r). weight: B, (out, r), cast to u's dtype.
        n2: (..., 1), the squared norms of what u was made of; p = c·n².
        c: curvature −c: a number, or a tensor of one, which then gets a gradient.
        time_in: α, (r,). time_out: b, (out,).
        scaling: of the whole map.
        cap: √p above this counts as this, and gets no gradient; at most 40.
        add_to: (..., out) to add the map to; the gradient goes through.
        fused: as in `norm_linear`.

    Returns: (..., out), in the dtype of u, or of add_to if there is one.
    """
    _check(u, weight, n2, time_in, time_out)
    kernel = dispatch("hyplora.boosted_linear_triton", fused, u, weight, n2, time_in, time_out)
    n2 = cast(n2, accumulation_dtype(n2.dtype))
    c = cast(c, accumulation_dtype(u.dtype)) if isinstance(c, Tensor) else c
    gain = Gain(c, scaling, CAP if cap is None else min(cap, CAP))
    gain.check()
    # Of another dtype, add_to is added outside: the product must not be rounded to it first.
    inside = add_to if add_to is None or add_to.dtype == u.dtype else None
    out: Tensor
    if torch.is_grad_enabled():
        tensor, constants = gain.c_tensor, gain.constants
        out = _BoostedLinear.apply(
            u, weight, n2, tensor, time_in, time_out, constants, inside, kernel
        )
    else:
        out = _forward(u, weight, n2, gain, time_in, time_out, inside, kernel)[0]
    return out if add_to is None or inside is not None else (add_to + out).to(add_to.dtype)


def _check(u: Tensor, weight: Tensor, n2: Tensor, time_in: Tensor, time_out: Tensor) -> None:
    if u.shape[-1] != weight.shape[-1] or n2.shape != (*u.shape[:-1], 1):
        raise ValueError(
            f"u (..., r), weight (out, r) and n2 (..., 1) must fit together, got shapes "
            f"{tuple(u.shape)}, {tuple(weight.shape)} and {tuple(n2.shape)}"
        )
    if time_in.shape != weight.shape[1:] or time_out.shape != weight.shape[:1]:
        raise ValueError(
            f"time_in and time_out must have shapes {tuple(weight.shape[1:])} and "
            f"{tuple(weight.shape[:1])}, got {tuple(time_in.shape)} and {tuple(time_out.shape)}"
        )


def _forward(
    u: Tensor,
    weight: Tensor,
    n2: Tensor,
    gain: Gain,
    time_in: Tensor,
    time_out: Tensor,
    add_to: Tensor | None,
    kernel: ModuleType | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, [B b] and its Gram matrix."""
    both = (_both if kernel is None else kernel.both)(weight, time_out, u.dtype)
    gram = (gram_matrix if kernel is None else kernel.gram_matrix)(both)
    rows = _rows if kernel is None else kernel.rows
    y = rows(u, gram, n2, gain, time_in)
    if add_to is None:
        return y @ both.mT, both, gram
    flat = torch.addmm(as_matrix(add_to), as_matrix(y), both.mT)
    return as_result(flat, add_to.shape), both, gram


class _BoostedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        weight: Tensor,
        n2: Tensor,
        c: Tensor | None,
        time_in: Tensor,
        time_out: Tensor,
        gain: Gain,
        add_to: Tensor | None,
        kernel: ModuleType | None,
    ) -> Tensor:
        out, both, gram = _forward(u, weight, n2, gain.at(c), time_in, time_out, add_to, kernel)
        ctx.save_for_backward(u, both, n2, gram, time_in, c)
        ctx.gain, ctx.kernel, ctx.adds = gain, kernel, add_to is not None
        ctx.dtypes = (weight.dtype, time_out.dtype)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(dout, ctx)


@without_autocast
def _backward(dout: Tensor, ctx: Any) -> tuple[Tensor | None, ...]:
    u, both, n2, gram, time_in, c = ctx.saved_tensors
    rank = u.shape[-1]
    rows = _rows_backward if ctx.kernel is None else ctx.kernel.rows_backward
    dout_rows = as_matrix(dout)
    do = torch.mm(dout_rows, both).view(*u.shape[:-1], both.shape[-1])
    du, dn2, scaled, y, vy, shares = rows(do, u, gram, n2, ctx.gain.at(c), time_in)
    dw = dt_out = dt_in = dc = None
    if ctx.needs_input_grad[1] or ctx.needs_input_grad[5]:
        dboth = weight_gradient(dout_rows, both, y, scaled, vy)
        dw, dt_out = cast(dboth[:, :rank], ctx.dtypes[0]), cast(dboth[:, rank], ctx.dtypes[1])
    if ctx.needs_input_grad[4] or ctx.needs_input_grad[3]:
        sums = shares.sum(0)
        dt_in = cast(sums[:rank], time_in.dtype)
        if c is not None:
            dc = sums[rank].reshape(c.shape).to(c)
    return du, dw, dn2, dc, dt_in, dt_out, None, dout if ctx.adds else None, None


def _both(weight: Tensor, time_out: Tensor, dtype: torch.dtype) -> Tensor:
    """[B b], (out, r + 1)."""
    return cast(torch.cat([weight, time_out.unsqueeze(-1)], -1), dtype)


def _rows(u: Tensor, gram: Tensor, n2: Tensor, gain: Gain, time_in: Tensor) -> Tensor:
    """s·ĝ·ŷ, (..., r + 1), in u's dtype."""
    w = upcast(u)
    p, _ = gain.capped(n2)
    low, sinhc, cosh = _hyperbolic(p.to(w.dtype))
    y = _lifted(w, time_in, sinhc, cosh, low, gain.c)
    _, q = _products(y, gram, gain.c)
    return rounded(gain.scaling * _gain(low, q) * y, u.dtype)


def _rows_backward(
    do: Tensor, u: Tensor, gram: Tensor, n2: Tensor, gain: Gain, time_in: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """du, dn², s·ĝ·ŷ, ŷ, v·ŷ, and each token's share of dα and dc, (tokens, r + 1)."""
    rank, c, scaling = u.shape[-1], gain.c, gain.scaling
    wide_u, wide_do = upcast(u), upcast(do)
    alpha = cast(time_in, wide_u.dtype)
    p, clipped = gain.capped(n2)
    p = p.to(wide_u.dtype)
    low, sinhc, cosh = _hyperbolic(p)
    y = _lifted(wide_u, time_in, sinhc, cosh, low, c)
    gram_y, q = _products(y, gram, c)
    g = _gain(low, q)
    dq = _slope(p, low, q, g) * scaling * (wide_do * y).sum(-1, keepdim=True)
    dy = scaling * g * wide_do + 2 * c * dq * gram_y
    z, time = y[..., :rank], y[..., rank:]
    by_time = dy[..., rank:] / torch.where(time > 0, time, 1.0)  # it is 0 where z and e^−√p are
    dz = dy[..., :rank] + by_time * z
    of_u, of_alpha = ((dz * t).sum(-1, keepdim=True) for t in (wide_u, alpha))
    root = c**0.5
    dp = low * radial.sinhc_sq_prime(p) * of_u + sinhc / (2 * root) * of_alpha
    dp = dp if clipped is None else torch.where(clipped, 0.0, dp)
    dc = n2 * dp + q / c * dq - (cosh / root * of_alpha + low * low / c * by_time) / (2 * c)
    room = overflow_safe_dtype(u.dtype)
    return (
        cast(sinhc * dz, u.dtype),
        cast(c * dp, n2.dtype),
        rounded(scaling * g * y, u.dtype),
        cast(y, room),
        cast(c * dq * y, room),
        as_matrix(torch.cat([cosh / root * dz, dc], -1)),
    )


def _hyperbolic(p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """e^−√p, and sinhc(√p) and cosh √p times it."""
    a = p.sqrt()
    low, half = torch.exp(-a), torch.expm1(-2 * a) / 2
    return low, torch.where(a > 0, -half / a, 1.0), 1 + half


def _lifted(
    u: Tensor, time_in: Tensor, sinhc: Tensor, cosh: Tensor, low: Tensor, c: Tensor | float
) -> Tensor:
    """ŷ = (ẑ, t̂)."""
    z = sinhc * u + cosh / c**0.5 * cast(time_in, u.dtype)
    time = torch.sqrt((z * z).sum(-1, keepdim=True) + low * low / c)
    return torch.cat([z, time], -1)


def _products(y: Tensor, gram: Tensor, c: Tensor | float) -> tuple[Tensor, Tensor]:
    """Gŷ, and q = c·ŷᵀGŷ: not negative but for rounding, which is taken for 0."""
    gram_y = y @ gram
    q = c * (y * gram_y).sum(-1, keepdim=True)
    return gram_y, torch.where(q < 0, 0.0, q)


def _gain(low: Tensor, q: Tensor) -> Tensor:
    """ĝ = asinh(v)/√q with v = e^√p·√q."""
    root = q.sqrt()
    return torch.where(root > 0, torch.asinh(root / low) / root, 1 / low)


def _slope(p: Tensor, low: Tensor, q: Tensor, g: Tensor) -> Tensor:
    """ĝ' = (e^√p/√(1 + v²) − ĝ)/(2q): −e^{3√p}/6 at 0, but not beyond `LARGEST_SLOPE`."""
    a, root = p.sqrt(), q.sqrt()
    v = root / low
    small = v < 1.0
    squared = torch.where(small, v * v, 1.0)
    large, far_root = torch.where(small, 1.0, v), torch.where(small, 1.0, root)
    fall = 1 / (far_root * torch.sqrt(1 + large**-2)) - g
    run = torch.where(small, 1.0, 2 * q)
    steep = fall / LARGEST_SLOPE < -run
    closed = torch.where(steep, -LARGEST_SLOPE, fall / torch.where(steep, 1.0, run))
    cube = torch.exp(3 * torch.where(a > LOG_LARGEST_CUBED, LOG_LARGEST_CUBED, a))
    return torch.where(small, cube * radial.asinhc_sq_prime(squared), closed)
