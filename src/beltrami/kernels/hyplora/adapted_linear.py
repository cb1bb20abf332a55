r"""A linear layer and the map with a gain beside it, in one operation:

    y = x·Wᵀ + bias + s·g·(x·Aᵀ)·Bᵀ,    g = lorentz_gain(c·|x|², c·|B·A·x|²).

It is `norm_linear`, the layer and `gained_linear`. On a GPU their time is that of starting what
they consist of: as one operation they are one node of autograd, need fewer kernels, and nothing as
wide as y is copied. Kept for the backward pass are x, u = A·x, two numbers a token, and weights.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.kernels.hyplora.adapted_linear_operator import adapted_linear_operator, takes_operator
from beltrami.kernels.hyplora.adapted_linear_passes import backward_pass, forward_pass
from beltrami.kernels.hyplora.gain import Gain
from beltrami.kernels.hyplora.gained_linear import gained_linear
from beltrami.kernels.hyplora.norm_linear import norm_linear_beside
from beltrami.kernels.launch.dispatch import dispatch
from beltrami.kernels.launch.shapes import as_matrix, as_result


def adapted_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    down: Tensor,
    up: Tensor,
    c: Tensor | float,
    *,
    scaling: float = 1.0,
    cap: float | None = None,
    stereographic: bool = False,
    fused: bool | None = None,
) -> Tensor:
    """`x·Wᵀ + bias + scaling·g·(x·Aᵀ)·Bᵀ`.

    Args:
        x: (..., d). weight: (out, d). bias: (out,) or None.
        down: A, (r, d). up: B, (out, r).
        c, scaling, cap, stereographic: of the gain, as in `gained_linear`.
        fused: as in `norm_linear`; but `torch.compile`, too, is given the kernels where it can
            be (see `adapted_linear_operator`).

    Returns: (..., out).
    """
    # Not where `torch.export` traces: what it writes is to run without this package.
    traced = torch.compiler.is_dynamo_compiling() and takes_operator(x, weight, down, up, fused)
    kernel = dispatch("hyplora.adapted_linear_triton", fused, x, weight, down, up)
    if kernel is None and not traced:
        x, u, n2 = norm_linear_beside(x, down, fused=fused)
        base = F.linear(x, weight, bias)
        return gained_linear(
            u,
            up,
            n2,
            c,
            scaling=scaling,
            cap=cap,
            stereographic=stereographic,
            add_to=base,
            fused=fused,
        )
    gain = Gain(c, scaling, cap, stereographic)
    gain.check()
    if kernel is None:
        return adapted_linear_operator(x, weight, bias, down, up, gain)
    out: Tensor
    if torch.is_grad_enabled():
        tensor, constants = gain.c_tensor, gain.constants
        out = _AdaptedLinear.apply(x, weight, bias, down, up, tensor, constants, kernel)
        return out
    tokens, shape = as_matrix(x), (*x.shape[:-1], len(weight))
    if not kernel.takes_few(tokens, up):
        return forward_pass(tokens, weight, bias, down, up, gain, kernel)[0].view(shape)
    out = F.linear(tokens, weight, bias)
    kernel.few(tokens, down, up, gain, out)
    return out.view(shape)


class _AdaptedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        down: Tensor,
        up: Tensor,
        c: Tensor | None,
        gain: Gain,
        kernel: ModuleType,
    ) -> Tensor:
        # As a matrix here: outside, it and its gradient would be two more nodes of autograd.
        out, *computed = forward_pass(as_matrix(x), weight, bias, down, up, gain.at(c), kernel)
        ctx.save_for_backward(x, weight, down, up, *computed, c)
        ctx.gain, ctx.kernel = gain, kernel
        return as_result(out, (*x.shape[:-1], len(weight)))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, *others = ctx.saved_tensors
        saved = (as_matrix(x), *others)
        dx, *gradients = backward_pass(
            as_matrix(dy), saved, ctx.gain, ctx.needs_input_grad, ctx.kernel
        )
        return None if dx is None else dx.view(x.shape), *gradients, None, None
