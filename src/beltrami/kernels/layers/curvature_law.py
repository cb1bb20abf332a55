r"""A learned curvature from what is learned: the law of `beltrami.geometry.Curvature` as one
operation,

    c = start·exp(f(raw)),    f(r) = r/(1 + (r/b)⁴)^{1/4},    dc/dr = c·(1 + (r/b)⁴)^{-5/4},

with another b above 0 than below. Every layer may have its own: as operations of autograd, all for
one number, the law took longer than the layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from beltrami.kernels.launch.dispatch import fused_module
from beltrami.kernels.launch.dtypes import wide


def learned_curvature(
    raw: Tensor, start: float, up: float, down: float, *, fused: bool | None = None
) -> Tensor:
    """The curvature in float32 at least, in the shape of raw.

    Args:
        raw: 0 at the start.
        start: the curvature there.
        up, down: how far its logarithm can go, both ways.
        fused: as in `norm_linear`.
    """
    kernel = fused_module("layers.curvature_law_triton", fused, raw, raw)
    found = _value_and_slope if kernel is None else kernel.value_and_slope
    if not torch.is_grad_enabled():
        value: Tensor = found(raw, start, up, down)[0]
        return value
    out: Tensor = _Law.apply(raw, start, up, down, found)
    return out


def _value_and_slope(raw: Tensor, start: float, up: float, down: float) -> tuple[Tensor, Tensor]:
    r = wide(raw)
    bound = torch.where(r > 0, torch.full_like(r, up), -down)
    t = r / bound  # not negative
    inside = t < 1
    v = torch.where(inside, t, 1 / t)  # whose fourth power does not overflow
    shrink = (1 + v.square().square()) ** -0.25
    value = start * torch.exp(torch.where(inside, r, bound) * shrink)
    return value, value * (torch.where(inside, 1.0, v) * shrink) ** 5


class _Law(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, raw: Tensor, start: float, up: float, down: float, found: Any) -> Tensor:
        value: Tensor
        value, slope = found(raw, start, up, down)
        ctx.save_for_backward(slope)
        ctx.dtype = raw.dtype
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dc: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return (dc * slope).to(ctx.dtype), None, None, None, None
