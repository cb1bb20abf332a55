r"""A linear map with a time column, `y = W·x + w_τ·τ(x) + b`, as one product and a rank-one term.

    τ(x) = t(x) − R = |x|²/(t + R),     ∂τ/∂x = x/t,     ∂τ/∂R = −τ/t,     R = 1/√c.

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

from beltrami.geometry import radial
from beltrami.geometry.checks import Scalar, check_curvature
from beltrami.geometry.chord import dot
from beltrami.geometry.radial_map import sum_to
from beltrami.kernels.launch.dtypes import (
    accumulation_dtype,
    cast,
    matmul_dtype,
    no_autocast,
    upcast,
)
from beltrami.kernels.launch.saving import load_values, save_values


def time_linear(
    x: Tensor,
    weight: Tensor,
    time_weight: Tensor,
    bias: Tensor | None,
    c: Scalar = 1.0,
    *,
    radius: Scalar | None = None,
) -> Tensor:
    """`x·Wᵀ + τ(x)·w_τ + b` for points x.

    Under autocast the product runs in autocast's dtype, and so does what is kept of x; τ is taken
    in float32 at least.

    Args:
        x: (..., in).
        weight: (out, in); or (E, out, in), with x (E, n, in) and one bias and time column an
            expert, (E, out).
        time_weight: (out,). bias: (out,) or None.
        c: curvature −c; a number or a tensor that broadcasts against x[..., :1].
        radius: 1/√c, in the place of c, from callers that have it.
    """
    dtype = matmul_dtype(x)
    if radius is None:
        radius = check_curvature(c, accumulation_dtype(dtype), x.device) ** -0.5
    elif isinstance(radius, Tensor):
        radius = radius.to(accumulation_dtype(dtype))
    if weight.ndim > 2:
        bias = None if bias is None else bias.unsqueeze(-2)
        return _formula(x.to(dtype), weight.to(dtype), time_weight.unsqueeze(-2), bias, radius)
    if isinstance(radius, Tensor) and radius.ndim > 1:  # one a row
        radius = radius.expand(*x.shape[:-1], 1).reshape(-1, 1)
    rows = x.reshape(-1, x.shape[-1]).to(dtype)
    y: Tensor = _TimeLinear.apply(rows, weight.to(dtype), time_weight, bias, radius)
    return y.view(*x.shape[:-1], weight.shape[0])


def excess_time(x: Tensor, radius: Scalar) -> Tensor:
    """τ(x), (..., 1) in float32 at least, with R = 1/√c as layers have it."""
    s = upcast(x)
    q = dot(s, s)
    return q / (torch.sqrt(q + radius * radius) + radius)


def hyperplane_distances(
    products: Tensor, x: Tensor, weight: Tensor, offset: Tensor, radius: Scalar
) -> Tensor:
    r"""`|u|·sinh(√c·d)/√c` with d the signed distance of x to a hyperplane, a row u of W.

        cosh(z)·(u·x) − |u|·sinh(z)·t(x),     z = √c·a/|u|

    The hyperplane has normal u and lies at distance a/|u| from the origin: a linear map whose time
    column is tied to its rows. Tends to u·x − a as c → 0. (van der Klis et al. 2026.)

    Args:
        products: u·x, (..., out), with a bias if there is one.
        x: points, (..., in).
        weight: rows u, (out, in), none of them 0. offset: a, (out,).
        radius: 1/√c.
    """
    length = torch.linalg.vector_norm(weight, dim=-1, dtype=accumulation_dtype(weight.dtype))
    z = offset / (radius * length)
    far = 1 + excess_time(x, radius) / radius  # √c·t
    return (torch.cosh(z) * products - offset * radial.sinhc(z) * far).to(products.dtype)


def _formula(
    x: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor | None, radius: Scalar
) -> Tensor:
    tau = _times(x, radius)[1]
    if weight.ndim == 2:
        y = F.linear(x, weight, None if bias is None else bias.to(x.dtype))
    else:
        y = x @ weight.mT if bias is None else x @ weight.mT + bias.to(x.dtype)
    return cast(y + tau * time_weight, x.dtype)


def _times(x: Tensor, radius: Scalar) -> tuple[Tensor, Tensor]:
    """(t, τ), (..., 1) each."""
    n = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=accumulation_dtype(x.dtype))
    r = radius if isinstance(radius, Tensor) else n.new_full((1,), radius)
    t = torch.hypot(n, r)
    return t, n * (n / (t + r))


class _TimeLinear(torch.autograd.Function):
    """x (n, in), W (out, in), w_τ (out,), b (out,) or None, R (1,) or (n, 1) or a number."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor | None, radius: Scalar
    ) -> Tensor:
        with no_autocast(x):
            if torch.compiler.is_compiling():
                return _formula(x, weight, time_weight, bias, radius)
            tau = _times(x, radius)[1]
            start = tau * time_weight if bias is None else torch.addcmul(bias, tau, time_weight)
            return start.to(x.dtype).addmm_(x, weight.t())

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        """The formula: what is added to in place above may lack the new dimension."""
        return torch.vmap(_formula, in_dims)(*inputs), 0

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        save_values(ctx, inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, time_weight, bias, radius = load_values(ctx)
        needs_x, needs_w, needs_t, needs_b, needs_r = ctx.needs_input_grad
        t, tau = _times(x, radius)
        with no_autocast(x):
            gx = gw = gt = gb = gr = None
            if torch.compiler.is_compiling():
                slope = (g * time_weight).sum(-1, keepdim=True) / t  # (n, 1)
                if needs_x:
                    gx = (g @ weight + slope * x).to(x.dtype)
            else:
                slope = (g @ time_weight.to(g.dtype).unsqueeze(-1)).to(t.dtype) / t
                if needs_x:
                    gx = torch.addmm((slope * x).to(x.dtype), g, weight)
            if needs_w:
                gw = g.t() @ x
            if needs_t:
                gt = (tau.to(g.dtype).t() @ g).squeeze(0).to(time_weight.dtype)
            if needs_b:
                gb = g.sum(0, dtype=bias.dtype)
            if needs_r and isinstance(radius, Tensor):
                if radius.numel() == 1:
                    gr = torch.addmm(radius.view(1, 1), slope.t(), tau, beta=0, alpha=-1)
                    gr = gr.view_as(radius)
                else:
                    gr = -sum_to(slope * tau, radius)
        return gx, gw, gt, gb, gr
