r"""A linear map between two radial maps, as a gain on its Euclidean result.

`exp0(W·log0(x))` is W·x times one number a token: with u = W·x, f = F(c|x|²) of log0 and
G of exp0,

    exp0(W·log0(x)) = f·G(c·f²·|u|²)·u,

so neither tangent vector is ever made. Only x and u are kept for the backward pass, in the dtype
they came in.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from beltrami.geometry.checks import Scalar, check_curvature
from beltrami.geometry.chord import dot
from beltrami.geometry.radial_map import PROFILES, radial_vjp, sum_to
from beltrami.kernels.launch.dtypes import accumulation_dtype, cast, upcast
from beltrami.kernels.launch.saving import load_values, save_values

# (log0, exp0) of each model, and what its maps multiply |x|² by, in units of c
_MAPS = {
    "lorentz": (PROFILES["asinh"], PROFILES["sinh"], 1.0),
    "poincare": (PROFILES["twice_atanh"], PROFILES["half_tanh"], 0.25),
}


def radial_gain(x: Tensor, u: Tensor, c: Scalar, model: str = "lorentz") -> Tensor:
    """`exp0(f·u)` with the f of `log0(x) = f·x`: for u = W·x this is exp0(W·log0(x)).

    Args:
        x: points, (..., d). u: (..., k), the linear image of their coordinates.
        c: curvature −c.
        model: "lorentz" or "poincare".

    Returns: (..., k) in the dtype of u; computed in float32 at least.
    """
    c = check_curvature(c, accumulation_dtype(u.dtype), u.device)
    out: Tensor = _RadialGain.apply(x, u, c, model)
    return out


class _RadialGain(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, u: Tensor, c: Scalar, model: str) -> Tensor:
        log0, exp0, share = _MAPS[model]
        wide_x, wide_u = upcast(x), upcast(u)
        f = log0.value(c * dot(wide_x, wide_x))
        gain = f * exp0.value(c * share * f * f * dot(wide_u, wide_u))
        return cast(gain * wide_u, u.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        save_values(ctx, inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, u, c, model = load_values(ctx)
        log0, exp0, share = _MAPS[model]
        wide_x, wide_u, wide_g = upcast(x), upcast(u), upcast(g)
        n2 = dot(wide_x, wide_x)
        q = c * n2
        f = log0.value(q)
        a = c * share * f * f
        gu, ga = radial_vjp(wide_u, a, f * wide_g, exp0, True)  # of f·G(a|u|²)·u at fixed f
        slope = exp0.slope(a * dot(wide_u, wide_u))
        by_f = slope * dot(wide_g, wide_u)  # the map along u is f ↦ g₂(f|u|), whose slope it is
        by_q = by_f * log0.prime(q)
        gc = None
        if ctx.needs_input_grad[2] and isinstance(c, Tensor):
            assert ga is not None
            gc = sum_to(by_q * n2 + ga * share * f * f, c).to(c.dtype)
        return (2 * c * by_q * wide_x).to(x.dtype), gu.to(u.dtype), gc, None
