r"""The law of `beltrami.geometry.Curvature` as one operation for curvatures of single layers,

    c = start·exp(f(raw)),    f(r) = r/(1 + (r/b)⁴)^{1/4},    dc/dr = c·(1 + (r/b)⁴)^{-5/4},

with another b above 0 than below. The reference is `geometry.curvature.law_and_slope`; an adapter
has a curvature a layer, for which the law's operations took longer than the layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from beltrami.geometry.curvature import law_and_slope
from beltrami.kernels.launch.dispatch import dispatch


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
    kernel = dispatch("layers.curvature_law_triton", fused, raw)
    evaluate = law_and_slope if kernel is None else kernel.value_and_slope
    if not torch.is_grad_enabled():
        value: Tensor = evaluate(raw, start, up, down)[0]
        return value
    out: Tensor = _Law.apply(raw, start, up, down, evaluate)
    return out


class _Law(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, raw: Tensor, start: float, up: float, down: float, evaluate: Any
    ) -> Tensor:
        value: Tensor
        value, slope = evaluate(raw, start, up, down)
        ctx.save_for_backward(slope)
        ctx.dtype = raw.dtype
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dc: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return (dc * slope).to(ctx.dtype), None, None, None, None
