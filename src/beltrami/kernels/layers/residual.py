r"""The Lorentz residual connection: a weighted sum of ambient vectors, scaled back to a point.

    z = x + w·y  (with their times),     out = γ·z/(√c·|z|_L).

With b = t_y/t_x, the vector h = y − b·x and the squared chord Q = |x − y|²_L,

    out = (γ/(1+w))·(x + w·y)/√D,      D = −c⟨z, z⟩/(1+w)² = 1 + w/(1+w)²·c·Q,
    c·Q = m²/b,     m² = c·|h|² + (1 − b)².

With γ = (1 + w)·√E, E = D for y = 0, an empty branch leaves x as it is: E = 1 + 2w/(1 + w)²·τ_x/R.
All terms are positive, and b·x is as long as y but for R = 1/√c, the radius of curvature: nothing
cancels but what the rounding of x and y has lost already. As c → 0 it tends to x + w·y. Nothing but
x and y is kept for the backward pass, in the dtype they came in. The gradient is

    ∂Q/∂x = −2h,     ∂Q/∂y = 2h/b,     ∂(c·Q)/∂c = |h|²/b,
    ∂(τ_x/R)/∂x = x/(R·t_x),     ∂(τ_x/R)/∂R = −|x|²/(R²·t_x).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm

from beltrami.geometry.checks import Scalar, distinct, prepare
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
    keep: bool = False,
    radius: Scalar | None = None,
) -> Tensor:
    """`γ·(x + w·y)/(√c·|x + w·y|_L)` for points x and y, (..., d), broadcasting.

    Args:
        x: the stream. y: the branch.
        weight: w ≥ 0, a number or a tensor that broadcasts against x[..., :1].
        c: curvature −c, a number or a tensor that broadcasts in the same way.
        scale: γ; 1 + w if None.
        keep: take the γ, in the place of a scale, with which an empty branch leaves x as it is.
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
    if keep and scale is not None:
        raise ValueError(f"keep chooses the scale γ, got scale={scale} as well")
    out: Tensor = _Residual.apply(*distinct(x, y), weight, radius, scale, keep, dtype)
    return out


class _Parts(NamedTuple):
    """The quantities of a pair of points; (..., 1) but for h and breadth."""

    h: Tensor  # y − b·x, (..., d)
    length: Tensor  # |h|
    b: Tensor  # t_y/t_x
    breadth: Tensor  # R·(1 + w), in the shape of both
    m: Tensor  # m/(1 + w)
    total: Tensor  # b·D
    gain: Tensor  # of x + w·y
    empty: _Empty | None


class _Empty(NamedTuple):
    """The quantities of an empty branch, for γ with `keep`, (..., 1): E = total/breadth²."""

    time: Tensor  # t_x
    step: Tensor  # w·R
    total: Tensor  # R² + (w·R)² + 2w·R·t_x


def _parts(
    x: Tensor, y: Tensor, w: Scalar, radius: Scalar, scale: float | None, keep: bool
) -> _Parts:
    if not isinstance(radius, Tensor):
        radius = x.new_full((1,), radius)
    nx = vector_norm(x, dim=-1, keepdim=True)
    tx = torch.hypot(nx, radius)
    ty = torch.hypot(vector_norm(y, dim=-1, keepdim=True), radius)
    b = ty / tx
    h = torch.addcmul(y, b, x, value=-1)
    length = vector_norm(h, dim=-1, keepdim=True)
    breadth = _multiply_add(radius, w, radius)
    m = torch.hypot(length, torch.addcmul(radius, b, radius, value=-1)) / breadth  # m/(1 + w)
    total = torch.addcmul(b, w * m, m)
    empty = None
    if keep:
        step = radius * w
        square = torch.addcmul(radius * radius, step, step)
        empty = _Empty(tx, step, torch.addcmul(square, step, tx, value=2))
        gain = torch.sqrt(b * empty.total / total) / breadth
    else:
        gain = torch.sqrt(b / total)
    if scale is not None:
        gain = gain * (scale / (1 + w))
    return _Parts(h, length, b, breadth, m, total, gain, empty)


def _multiply_add(a: Tensor, w: Scalar, b: Tensor) -> Tensor:
    """a + w·b."""
    return torch.addcmul(a, w, b) if isinstance(w, Tensor) else torch.add(a, b, alpha=w)


class _Residual(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        y: Tensor,
        w: Scalar,
        radius: Scalar,
        scale: float | None,
        keep: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        x, y = upcast(x), upcast(y)
        gain = _parts(x, y, w, radius, scale, keep).gain
        return cast(gain * _multiply_add(x, w, y), dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        save_values(ctx, inputs[:-1])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x_in, y_in, w, radius, scale, keep = load_values(ctx)
        x, y, g = upcast(x_in), upcast(y_in), upcast(g)
        p = _parts(x, y, w, radius, scale, keep)
        by_gain = p.gain * dot(g, _multiply_add(x, w, y))  # of log gain
        share = by_gain / p.total
        by_y = share * (w / (p.breadth * p.breadth))
        by_x = by_y * p.b  # −∂/∂Q, twice
        scaled = p.gain * g
        gx = torch.addcmul(scaled, by_x, p.h)
        gy = torch.addcmul(w * scaled, by_y, p.h, value=-1)
        pull: Any = None
        if p.empty is not None:
            pull = by_gain * (p.empty.step / (p.empty.time * p.empty.total))
            gx = torch.addcmul(gx, pull, x)
        gw = gr = None
        if ctx.needs_input_grad[2]:
            # 1 − 1/D = w·m²/total, whose w goes into the sum: there are starts with w near 0.
            by_chord = sum_to(share * (p.m * p.m), w)
            gw = torch.addcmul(sum_to(scaled * y, w), by_chord, (1 - w) / (1 + w), value=-0.5)
            if p.empty is not None:
                rise = radius * (p.empty.step + p.empty.time) / p.empty.total - 1 / (1 + w)
                gw = gw + sum_to(by_gain * rise, w)
            elif scale is not None:
                gw = gw - sum_to(by_gain, w) / (1 + w)
        if ctx.needs_input_grad[3]:
            by_radius = by_y * p.length
            if radius.numel() == 1:
                by_radius = torch.dot(by_radius.flatten(), p.length.flatten()).view_as(radius)
            else:
                by_radius = sum_to(by_radius * p.length, radius)
            if p.empty is not None:
                by_radius = by_radius - sum_to(pull * dot(x, x), radius)
            gr = by_radius / radius
        return sum_to(gx, x).to(x_in.dtype), sum_to(gy, y).to(y_in.dtype), gw, gr, *[None] * 3
