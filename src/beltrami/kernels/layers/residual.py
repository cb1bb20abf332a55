r"""The Lorentz residual connection: a weighted sum of ambient vectors, scaled back to a point.

    z = x + w·y  (with their times),     out = γ·z/(√c·|z|_L),     γ = 1 + w unless given.

`−⟨z,z⟩ = (1+w)²/c + w·|x − y|²_L` is a sum of terms that are not negative for w ≥ 0, so with the
squared chord Q of `geometry.chord`

    out = (γ/(1+w))·(x + w·y)/√(1 + c·w·Q/(1+w)²),

which tends to x + w·y as c → 0 and has nothing that could cancel. Nothing but x and y is kept for
the backward pass, in the dtype they came in.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from beltrami.geometry.checks import Scalar, prepare
from beltrami.geometry.chord import (
    chord_gradient,
    chord_of_parts,
    chord_parts,
    curvature_derivative,
    dot,
    swap_parts,
)
from beltrami.geometry.radial_map import sum_to
from beltrami.kernels.launch.dtypes import cast, wide
from beltrami.kernels.launch.saving import load_inputs, save_inputs


def residual(
    x: Tensor, y: Tensor, weight: Scalar = 1.0, c: Scalar = 1.0, scale: float | None = None
) -> Tensor:
    """`γ·(x + w·y)/(√c·|x + w·y|_L)` for points x and y, (..., d), broadcasting.

    Args:
        x: the stream. y: the branch.
        weight: w ≥ 0, a number or a tensor that broadcasts against x[..., :1].
        c: curvature −c.
        scale: γ; 1 + w if None.

    Returns: (..., d) in the promoted dtype of x and y; computed in float32 at least.
    """
    _, c, dtype = prepare(c, x=x, y=y)
    weight = wide(weight) if isinstance(weight, Tensor) else weight
    out: Tensor = _Residual.apply(x, y, weight, c, scale)
    return out if out.dtype == dtype else out.to(dtype)


class _Residual(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, w: Scalar, c: Scalar, scale: float | None) -> Tensor:
        dtype = torch.promote_types(x.dtype, y.dtype)
        x, y = wide(x), wide(y)
        chord = chord_of_parts(x, y, chord_parts(x, y, c), c)
        gain = torch.rsqrt(1 + (c * w / (1 + w) ** 2) * chord)
        if scale is not None:
            gain = gain * (scale / (1 + w))
        return cast(gain * (x + w * y), dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        save_inputs(ctx, inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, y, w, c, scale = load_inputs(ctx)
        needs_x, needs_y, needs_w, needs_c, _ = ctx.needs_input_grad
        gx, gy, gw, gc = _vjp(
            wide(x), wide(y), w, c, scale, wide(g), needs_w, needs_c and isinstance(c, Tensor)
        )
        return (
            sum_to(gx, x).to(x.dtype) if needs_x else None,
            sum_to(gy, y).to(y.dtype) if needs_y else None,
            gw,
            gc,
            None,
        )


def _vjp(
    x: Tensor,
    y: Tensor,
    w: Any,
    c: Any,
    scale: float | None,
    g: Tensor,
    needs_w: bool,
    needs_c: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    p = chord_parts(x, y, c)
    chord = chord_of_parts(x, y, p, c)
    share = w / (1 + w) ** 2
    denominator = 1 + (c * share) * chord
    front = 1.0 if scale is None else scale / (1 + w)
    gain = front * torch.rsqrt(denominator)
    g_y = dot(g, y)
    g_z = dot(g, x) + w * g_y
    by_denominator = -gain * g_z / (2 * denominator)
    by_chord = by_denominator * (c * share)
    gx = gain * g + chord_gradient(x, y, c, p, by_chord, 1)
    gy = (gain * w) * g + chord_gradient(y, x, c, swap_parts(p), by_chord, -1)
    gw = gc = None
    if needs_w:
        by_w = gain * g_y + by_denominator * chord * (c * (1 - w) / (1 + w) ** 3)
        if scale is not None:
            by_w = by_w - gain * g_z / (1 + w)
        gw = sum_to(by_w, w).to(w.dtype)
    if needs_c:
        by_c = chord + c * curvature_derivative(p.shift, p.n, p.m, p.tx, p.ty, c)
        gc = sum_to(by_denominator * share * by_c, c).to(c.dtype)
    return gx, gy, gw, gc
