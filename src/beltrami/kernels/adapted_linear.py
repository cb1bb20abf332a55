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

from beltrami.kernels.fusing import fused_module
from beltrami.kernels.gained_linear import check_reach, gained_linear, weight_gradient
from beltrami.kernels.norm_linear import norm_linear_beside
from beltrami.kernels.shapes import as_matrix


def adapted_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    down: Tensor,
    up: Tensor,
    c: Tensor | float,
    *,
    scaling: float = 1.0,
    longest: float | None = None,
    stereographic: bool = False,
    fused: bool | None = None,
) -> Tensor:
    """`x·Wᵀ + bias + scaling·g·(x·Aᵀ)·Bᵀ`.

    Args:
        x: (..., d). weight: (out, d). bias: (out,) or None.
        down: A, (r, d). up: B, (out, r).
        c, scaling, longest, stereographic: of the gain, as in `gained_linear`.
        fused: as in `norm_linear`.

    Returns: (..., out).
    """
    kernel = fused_module("adapted_linear_triton", fused, x, x, weight, down, up)
    if kernel is None:
        x, u, n2 = norm_linear_beside(x, down, fused=fused)
        base = F.linear(x, weight, bias)
        return gained_linear(
            u,
            up,
            n2,
            c,
            scaling=scaling,
            longest=longest,
            stereographic=stereographic,
            add_to=base,
            fused=fused,
        )
    check_reach(longest, stereographic)
    if isinstance(c, Tensor) and c.numel() != 1:
        raise ValueError(f"c must be one number, got a tensor of shape {tuple(c.shape)}")
    # As a matrix once: with more dimensions, every product would make one of it.
    tokens, shape = as_matrix(x), (*x.shape[:-1], len(weight))
    arguments = (tokens, weight, bias, down, up, c, scaling, longest, stereographic, kernel)
    if torch.is_grad_enabled():
        out: Tensor = _AdaptedLinear.apply(*arguments)
    elif not kernel.takes_few(tokens, up):
        out = _forward(*arguments)[0]
    else:
        out = F.linear(tokens, weight, bias)
        kernel.few(tokens, down, up, c, scaling, longest, stereographic, out)
    return out.view(shape)


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    down: Tensor,
    up: Tensor,
    c: Tensor | float,
    scaling: float,
    longest: float | None,
    stereographic: bool,
    kernel: ModuleType,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The result, u, n², m² and the Gram matrix of B."""
    out = F.linear(x, weight, bias)  # first: a GPU is busy with it while the rest is started
    gram = kernel.gram_matrix(up)
    u, n2, z, m2 = kernel.rows(x, down, gram, c, scaling, longest, stereographic)
    return out.addmm_(z, up.mT), u, n2, m2, gram


class _AdaptedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        down: Tensor,
        up: Tensor,
        c: Tensor | float,
        scaling: float,
        longest: float | None,
        stereographic: bool,
        kernel: ModuleType,
    ) -> Tensor:
        number = c.detach() if isinstance(c, Tensor) else c
        out, *kept = _forward(
            x, weight, bias, down, up, number, scaling, longest, stereographic, kernel
        )
        ctx.save_for_backward(x, weight, down, up, *kept, c if isinstance(c, Tensor) else None)
        ctx.numbers = (c if not isinstance(c, Tensor) else None, scaling, longest, stereographic)
        ctx.kernel = kernel
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_autocast_enabled(dy.device.type):  # it would round what is not rounded forwards
            with torch.autocast(dy.device.type, enabled=False):
                return _backward(ctx, dy)
        return _backward(ctx, dy)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, down, up, u, n2, m2, gram, c_tensor = ctx.saved_tensors
    c, *settings = ctx.numbers
    wanted = ctx.needs_input_grad
    through = torch.mm(dy, weight) if wanted[0] else None  # first, as forwards
    du, dn2, z, wu, by_c = ctx.kernel.gradient_rows(
        dy, up, u, gram, n2, m2, c if c_tensor is None else c_tensor, *settings
    )
    dx = d_weight = d_bias = d_down = d_up = dc = None
    if wanted[0]:
        dx = ctx.kernel.input_gradient(x, down, du, dn2, through)
    if wanted[1]:
        d_weight = torch.mm(dy.mT, x)
    if wanted[2]:
        d_bias = dy.sum(0)
    if wanted[3]:
        d_down = torch.mm(du.mT, x)
    if wanted[4]:
        d_up = weight_gradient(dy, up, u, z, wu)
    if c_tensor is not None and wanted[5]:
        dc = by_c.sum().reshape(c_tensor.shape).to(c_tensor)
    return dx, d_weight, d_bias, d_down, d_up, dc, None, None, None, None
