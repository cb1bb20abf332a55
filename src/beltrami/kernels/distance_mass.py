r"""How much of a set of points lies near each point of another: Σ_j w_ij·e^{−d(x_i, y_j)}.

The sum in the denominator of a ranking loss over many candidates. For Lorentz points no distance
is ever taken: with C = cosh(√c·d), from one matrix product, e^{−√c·d} = 1/(C + √(C² − 1)), and the
gradient in C is −w·e/√(C² − 1), so that the backward pass is two more products:

    C − 1 = τ_x + τ_y + τ_x·τ_y − c·⟨x, y⟩,    τ = √(1 + c|x|²) − 1

All of it is float64 inside, whatever comes in. A point as near to another as rounding can tell
from the same (C − 1 within a few eps·t_x·t_y) counts as the same, and pushes it nowhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from beltrami.geometry.checks import prepare
from beltrami.geometry.sets import check_sets
from beltrami.kernels.dtypes import wide_dtype

ROUNDING = 8 * torch.finfo(torch.float64).eps


def distance_mass(x: Tensor, y: Tensor, weights: Tensor, c: float = 1.0) -> Tensor:
    """`Σ_j w_ij·e^{−d(x_i, y_j)}` for Lorentz points, (n, d) and (m, d) to (n,).

    Differentiable in x and y, once. Relative error about 1e-14·e^{r_x + r_y − d} for points at
    radii r: nothing to think of for pairs that are not far out and close together at a time.

    Args:
        x: (n, d). y: (m, d).
        weights: (n, m), at least 0; booleans choose pairs. They get no gradient.
        c: curvature −c, a number.

    Returns:
        (n,), float64 for float64 points, else float32.
    """
    if not isinstance(c, int | float):
        raise TypeError(f"c must be a number here, got {type(c).__name__}")
    (_, _), scale, _ = prepare(c, x=x, y=y)
    check_sets(x, y, scale)
    if weights.shape != (x.shape[0], y.shape[0]):
        raise ValueError(
            f"weights must be of shape {(x.shape[0], y.shape[0])}, one a pair, "
            f"got {tuple(weights.shape)}"
        )
    mass: Tensor = _DistanceMass.apply(x, y, weights, c)
    return mass


class _DistanceMass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, weights: Tensor, c: float) -> Tensor:
        a, b = _Rows(x, c), _Rows(y, c)
        near, slope = _terms(a, b, weights, c)
        ctx.save_for_backward(a.space, a.time, b.space, b.time, slope)
        ctx.root, ctx.dtypes = c**0.5, (x.dtype, y.dtype)
        return near.sum(-1).to(wide_dtype(torch.promote_types(x.dtype, y.dtype)))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, x_time, y, y_time, slope = ctx.saved_tensors
        weight = g.double()
        gx = gy = None
        # Of C = t_x·t_y − x·y: (t_y/t_x)·x − y, and the same with x and y exchanged.
        if ctx.needs_input_grad[0]:
            pull = weight * (slope @ y_time) / x_time
            gx = pull.unsqueeze(-1) * x - weight.unsqueeze(-1) * (slope @ y)
            gx = (gx * ctx.root).to(ctx.dtypes[0])
        if ctx.needs_input_grad[1]:
            pull = (slope.mT @ (weight * x_time)) / y_time
            gy = pull.unsqueeze(-1) * y - slope.mT @ (weight.unsqueeze(-1) * x)
            gy = (gy * ctx.root).to(ctx.dtypes[1])
        return gx, gy, None, None


class _Rows:
    """√c·x, its time, and the time's excess over 1, in float64."""

    def __init__(self, x: Tensor, c: float) -> None:
        self.space = x.detach().double() * c**0.5
        square = self.space.square().sum(-1)
        self.time = (1 + square).sqrt()
        self.excess = square / (1 + self.time)


def _terms(a: _Rows, b: _Rows, weights: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """w·e^{−d}, and its derivative in cosh(√c·d): −w·e^{−d}/(√c·sinh), 0 for pairs that are one."""
    # cosh − 1: the product of times without its 1, so that it does not cancel at the origin.
    above = torch.addmm(torch.outer(1 + a.excess, b.excess), a.space, b.space.mT, alpha=-1)
    above.add_(a.excess.unsqueeze(-1))
    # The largest rounding error of a row; what lies below it may be anything, also negative.
    same = (
        above <= (ROUNDING * b.time.amax() * a.time).unsqueeze(-1) if b.time.numel() else above < 0
    )
    above.masked_fill_(same, 0.0)
    sinh = (above + 2).mul_(above).sqrt_()
    near = above.add_(1).add_(sinh)
    near = near.reciprocal_() if c == 1 else near.pow_(-(c**-0.5))
    near.mul_(weights)
    slope = sinh.masked_fill_(same, torch.inf).reciprocal_().mul_(near)
    return near, slope.mul_(-(c**-0.5))
