r"""How much of a set of points lies near each point of another: Σ_j w_ij·e^{−d(x_i, y_j)}.

The sum in the denominator of a ranking loss over many candidates. For Lorentz points no distance
is ever taken: with C = cosh(√c·d), from one matrix product, e^{−√c·d} = 1/(C + √(C² − 1)), and the
gradient in C is −w·e/√(C² − 1), so that the backward pass is two more products:

    C − 1 = τ_x + τ_y + τ_x·τ_y − c·⟨x, y⟩,    τ = √(1 + c|x|²) − 1

In flat space, c = 0, it is d²/2 that comes from the product. All of it is float64 inside, whatever
comes in. A point as near to another as rounding can tell from the same (C − 1 within a few
eps·t_x·t_y) counts as the same, and pushes it nowhere.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from beltrami.geometry.checks import distinct
from beltrami.kernels.launch.dispatch import dispatch
from beltrami.kernels.launch.dtypes import accumulation_dtype, cast
from beltrami.kernels.pairs.gram_distances import (
    ScaledRows,
    check_one_set_each,
    cosh_minus_one,
    pull_back,
)


def distance_mass(
    x: Tensor, y: Tensor, weights: Tensor, c: float = 1.0, *, fused: bool | None = None
) -> Tensor:
    """`Σ_j w_ij·e^{−d(x_i, y_j)}` for Lorentz or flat points, (n, d) and (m, d) to (n,).

    Differentiable in x and y, once. With δ = eps·t_x·t_y, where t = cosh(√c·r) for a point at
    radius r and eps = 2.2e-16, the logarithm of a term is off by at most
    `(min(8δ/sinh(√c·d), 5√δ) + (4 + √c·d)·eps)/√c`: nothing to think of for pairs that are not far
    out and close together at a time, 1e-5 for neighbours at distance 1 and radius 12. In flat space
    the same holds of δ = eps·|x||y|, measured from the middle of y, d for sinh, and c = 1.

    Args:
        x: (n, d). y: (m, d).
        weights: (n, m), at least 0; booleans choose pairs. They get no gradient.
        c: curvature −c, a number; 0 is flat space.
        fused: None takes the Triton kernel on a GPU where it can do the work, False never, True is
            a `ValueError` where it cannot. What `torch.compile` traces is the plain one.

    Returns:
        (n,), float64 for float64 points, else float32.
    """
    flat = not isinstance(c, Tensor | bool) and c == 0
    check_one_set_each(1.0 if flat else c, x, y)
    if not isinstance(weights, Tensor) or weights.is_complex():
        got = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
        raise TypeError(f"weights must be a tensor of real numbers or booleans, got {got}")
    if weights.shape != (x.shape[0], y.shape[0]):
        raise ValueError(
            f"weights must be of shape {(x.shape[0], y.shape[0])}, one a pair, "
            f"got {tuple(weights.shape)}"
        )
    kernel = dispatch("pairs.distance_mass_triton", fused, x, y, weights)
    mass: Tensor = _DistanceMass.apply(*distinct(x, y), weights, c, kernel)
    return mass


class _DistanceMass(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, weights: Tensor, c: float, kernel: ModuleType | None
    ) -> Tensor:
        if c == 0:  # distances do not change, and products lose nothing to a common offset
            middle = y.detach().double().mean(0) if len(y) else 0.0
            a, b = ScaledRows(x.double() - middle, c), ScaledRows(y.double() - middle, c)
        else:
            a, b = ScaledRows(x, c), ScaledRows(y, c)
        mass_and_slope = _mass_and_slope if kernel is None else kernel.mass_and_slope
        mass, slope = mass_and_slope(a, b, weights, c)
        ctx.save_for_backward(a.space, a.time, b.space, b.time, slope)
        ctx.root, ctx.dtypes = c**0.5 if c else 1.0, (x.dtype, y.dtype)
        return cast(mass, accumulation_dtype(torch.promote_types(x.dtype, y.dtype)))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, x_time, y, y_time, slope = ctx.saved_tensors
        gx, gy = pull_back(slope, x, x_time, y, y_time, g.double())
        first, second = ctx.dtypes
        return cast(gx * ctx.root, first), cast(gy * ctx.root, second), None, None, None


def _mass_and_slope(
    a: ScaledRows, b: ScaledRows, weights: Tensor, c: float
) -> tuple[Tensor, Tensor]:
    """Σ_j w·e^{−d}, (n,), and the derivative of each term in cosh(√c·d), (n, m).

    That is −w·e^{−d}/(√c·sinh), and 0 for two points that count as one. In flat space the
    derivative is that in d²/2, −w·e^{−d}/d.
    """
    above, same = cosh_minus_one(a, b)
    if c == 0:
        sinh = above.mul_(2).sqrt_()  # d itself
        near = sinh.neg().exp_()
    else:
        sinh = (above + 2).mul_(above).sqrt_()
        near = above.add_(1).add_(sinh)
        near = near.reciprocal_() if c == 1 else near.pow_(-(c**-0.5))
    near.mul_(weights)
    slope = sinh.masked_fill_(same, torch.inf).reciprocal_().mul_(near)
    return near.sum(-1), slope.mul_(-(c**-0.5) if c else -1.0)
