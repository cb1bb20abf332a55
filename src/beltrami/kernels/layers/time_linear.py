r"""A linear map with a time column, `y = W·x + w_τ·τ(x) + b`, as one product and a rank-one term.

    τ(x) = t(x) − 1/√c = |x|²/(t + 1/√c),     ∂τ/∂x = x/t.

In eager mode the rank-one term takes the place of the bias that the matrix product would start from
anyway, so the forward pass costs one more reading of x. A compiler does better with the term
after the product, where it melts into whatever reads y next; it gets that. Only x and the
parameters are kept; |x| is taken again in the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.geometry.checks import Scalar, check_curvature
from beltrami.geometry.chord import times_of
from beltrami.geometry.radial_map import sum_to
from beltrami.kernels.launch.dtypes import cast, matmul_dtype, wide_dtype
from beltrami.kernels.launch.saving import load_inputs, save_inputs


def time_linear(
    x: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor | None, c: Scalar
) -> Tensor:
    """`x·Wᵀ + τ(x)·w_τ + b` for points x.

    Under autocast the product runs in autocast's dtype, and so does what is kept of x; τ is taken
    in float32 at least.

    Args:
        x: (..., in).
        weight: (out, in). time_weight: (out,). bias: (out,) or None.
        c: curvature −c; a number or a tensor of one element.
    """
    dtype = matmul_dtype(x)
    c = check_curvature(c, wide_dtype(dtype), x.device)
    rows = x.reshape(-1, x.shape[-1]).to(dtype)
    y: Tensor = _TimeLinear.apply(rows, weight.to(dtype), time_weight, bias, c)
    return y.view(*x.shape[:-1], weight.shape[0])


def _formula(
    x: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor | None, c: Scalar
) -> Tensor:
    _, tau = times_of(_norm_sq(x), c)
    y = F.linear(x, weight, None if bias is None else bias.to(x.dtype))
    return cast(y + tau * time_weight, x.dtype)


def _norm_sq(x: Tensor) -> Tensor:
    n = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide_dtype(x.dtype))
    out: Tensor = n * n
    return out


class _TimeLinear(torch.autograd.Function):
    """x (n, in), W (out, in), w_τ (out,), b (out,) or None, c."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor | None, c: Scalar
    ) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            if torch.compiler.is_compiling():
                return _formula(x, weight, time_weight, bias, c)
            _, tau = times_of(_norm_sq(x), c)
            start = tau * time_weight if bias is None else torch.addcmul(bias, tau, time_weight)
            return start.to(x.dtype).addmm_(x, weight.t())

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        """The formula: what is added to in place above may lack the new dimension."""
        return torch.vmap(_formula, in_dims)(*inputs), 0

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        save_inputs(ctx, inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, time_weight, bias, c = load_inputs(ctx)
        needs_x, needs_w, needs_t, needs_b, needs_c = ctx.needs_input_grad
        t, tau = times_of(_norm_sq(x), c)
        with torch.autocast(x.device.type, enabled=False):
            gx = gw = gt = gb = gc = None
            if torch.compiler.is_compiling():
                g_tau = (g * time_weight).sum(-1, keepdim=True)  # (n, 1)
                if needs_x:
                    gx = (g @ weight + (g_tau / t) * x).to(x.dtype)
            else:
                g_tau = (g @ time_weight.to(g.dtype).unsqueeze(-1)).to(t.dtype)
                if needs_x:
                    gx = torch.addmm(((g_tau / t) * x).to(x.dtype), g, weight)
            if needs_w:
                gw = g.t() @ x
            if needs_t:
                gt = (tau.to(g.dtype).t() @ g).squeeze(0).to(time_weight.dtype)
            if needs_b:
                gb = g.sum(0, dtype=bias.dtype)
        if needs_c and isinstance(c, Tensor):
            # ∂τ/∂c = −1/(2c²t) + 1/(2c√c) = τ/(2c√c·t)
            gc = sum_to(g_tau * tau / t, c) / (2 * c * c**0.5)
        return gx, gw, gt, gb, gc
