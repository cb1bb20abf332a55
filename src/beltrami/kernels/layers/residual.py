r"""The Lorentz residual connection: a weighted sum of ambient vectors, scaled back to a point.

    z = x + w·y  (with their times),     out = γ·z/(√c·|z|_L),     γ = gain·(1 + w) or `scale`.

With s = w/(1+w)² and the squared chord Q = |x − y|²_L,

    out = (γ/(1+w))·(x + w·y)/√D,      D = −c⟨z, z⟩/(1+w)² = 1 + s·c·Q,
    Q = (t_lo/t_hi)·(|h|² + (R·r/t_lo)²),     r = t_x − t_y = ⟨x − y, x + y⟩/(t_x + t_y),
    h = (x − y) − (r/t_lo)·lo,

where R = 1/√c is the radius of curvature and lo the point of smaller time. All terms are positive
and all differences are taken of the points themselves, so nothing cancels, near or far; as c → 0
it tends to x + w·y. (This Q is that of `geometry.chord` with times in place of norms, which are
never 0: no case distinction, a third of the operators.) Nothing but x and y is kept for the
backward pass, in the dtype they came in. The gradient is

    ∂Q/∂x = 2((x − y) − (r/t_x)·x),     ∂Q/∂y = −2((x − y) − (r/t_y)·y),
    ∂(c·Q)/∂c = (t_lo/t_hi)·|h|².
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm

from beltrami.geometry.checks import Scalar, prepare
from beltrami.geometry.chord import dot
from beltrami.geometry.radial_map import sum_to
from beltrami.kernels.launch.dtypes import accumulation_dtype, cast, upcast
from beltrami.kernels.launch.saving import load_values, save_values


def residual(
    x: Tensor,
    y: Tensor,
    weight: Scalar = 1.0,
    c: Scalar = 1.0,
    scale: float | None = None,
    *,
    gain: float = 1.0,
    radius: Scalar | None = None,
) -> Tensor:
    """`γ·(x + w·y)/(√c·|x + w·y|_L)` for points x and y, (..., d), broadcasting.

    Args:
        x: the stream. y: the branch.
        weight: w ≥ 0, a number or a tensor that broadcasts against x[..., :1].
        c: curvature −c, a number or a tensor that broadcasts in the same way.
        scale: γ; gain·(1 + w) if None.
        gain: a constant of γ, in the place of a scale.
        radius: 1/√c, in the place of c, from callers that have it.

    Returns: (..., d) in the promoted dtype of x and y; computed in float32 at least.
    """
    if radius is None:
        _, c, dtype = prepare(c, x=x, y=y)
        radius = c**-0.5
    else:
        dtype = x.dtype if x.dtype == y.dtype else torch.promote_types(x.dtype, y.dtype)
        if isinstance(radius, Tensor):
            radius = radius.to(accumulation_dtype(dtype))
    weight = upcast(weight) if isinstance(weight, Tensor) else weight
    out: Tensor = _Residual.apply(x, y, weight, radius, scale, gain, dtype)
    return out


class _Pair(NamedTuple):
    """The quantities of a pair of points; (..., 1) but for delta."""

    delta: Tensor  # x − y, (..., d)
    tx: Tensor
    ty: Tensor
    rise: Tensor  # r = t_x − t_y
    ratio: Tensor  # t_lo/t_hi
    gap: Tensor  # |h|
    chord: Tensor  # Q


def _pair(x: Tensor, y: Tensor, radius: Scalar) -> _Pair:
    if not isinstance(radius, Tensor):
        radius = x.new_full((1,), radius)
    delta = x - y
    tx = torch.hypot(vector_norm(x, dim=-1, keepdim=True), radius)
    ty = torch.hypot(vector_norm(y, dim=-1, keepdim=True), radius)
    total = tx + ty
    rise = dot(delta, x + y) / total
    x_is_lo = tx <= ty
    lo = torch.where(x_is_lo, tx, ty)
    ratio = lo / (total - lo)
    turn = rise / lo
    h = torch.addcmul(delta, turn, torch.where(x_is_lo, x, y), value=-1)
    gap = vector_norm(h, dim=-1, keepdim=True)
    along = turn * radius
    chord = ratio * torch.addcmul(along * along, gap, gap)
    return _Pair(delta, tx, ty, rise, ratio, gap, chord)


def _front(w: Any, scale: float | None, gain: float) -> Any:
    """γ/(1 + w)."""
    return gain if scale is None else scale / (1 + w)


class _Residual(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        y: Tensor,
        w: Scalar,
        radius: Scalar,
        scale: float | None,
        constant: float,
        dtype: torch.dtype,
    ) -> Tensor:
        x, y = upcast(x), upcast(y)
        chord = _pair(x, y, radius).chord
        gain = torch.rsqrt(1 + w / ((1 + w) * radius) ** 2 * chord)
        front = _front(w, scale, constant)
        if isinstance(front, Tensor) or front != 1:
            gain = gain * front
        z = torch.addcmul(x, w, y) if isinstance(w, Tensor) else torch.add(x, y, alpha=w)
        return cast(gain * z, dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        save_values(ctx, inputs[:-1])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x_in, y_in, w, radius, scale, constant = load_values(ctx)
        x, y, g = upcast(x_in), upcast(y_in), upcast(g)
        p = _pair(x, y, radius)
        share = w / ((1 + w) * radius) ** 2  # s·c
        d = 1 + share * p.chord
        gain, front = torch.rsqrt(d), _front(w, scale, constant)
        if isinstance(front, Tensor) or front != 1:
            gain = gain * front
        g_y = dot(g, y)
        g_z = torch.addcmul(dot(g, x), w, g_y) if isinstance(w, Tensor) else dot(g, x) + w * g_y
        by_gain = gain * g_z  # of log gain
        by_chord = by_gain / d * -share  # twice the gradient of Q
        scaled, along = gain * g, by_chord * p.delta
        turn = by_chord * p.rise
        gx = torch.addcmul(scaled + along, turn / p.tx, x, value=-1)
        gy = torch.addcmul(w * scaled - along, turn / p.ty, y)
        gw = gr = None
        if ctx.needs_input_grad[2]:
            slope = (1 - w) / (1 + w) / w
            by_w = torch.addcmul(gain * g_y, by_chord * p.chord, slope / 2)
            if scale is not None:
                by_w = by_w - by_gain / (1 + w)
            gw = sum_to(by_w, w)
        if ctx.needs_input_grad[3]:
            by_r = by_chord * p.ratio * (p.gap * p.gap)
            gr = sum_to(by_r, radius) / -radius
        return sum_to(gx, x).to(x_in.dtype), sum_to(gy, y).to(y_in.dtype), gw, gr, *[None] * 3
