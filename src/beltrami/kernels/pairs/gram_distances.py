r"""All distances between two sets of Lorentz points from one matrix product, in float64.

    cosh(√c·d) − 1 = τ_x + τ_y + τ_x·τ_y − c·⟨x, y⟩,    τ = √(1 + c|x|²) − 1

Much quicker than `pairwise_dist` on float64 points, which goes pair by pair to keep its digits for
neighbours far out. Here the left side is known up to a few eps·t_x·t_y, t being the scaled times;
pairs below that count as one point, with distance and gradient 0. Losses that compare a node with
thousands of others can live with that.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from beltrami.geometry.checks import distinct, prepare
from beltrami.kernels.launch.dtypes import accumulation_dtype, cast

ROUNDING = 8 * torch.finfo(torch.float64).eps


class ScaledRows:
    """√c·x, its time, and the time's excess over 1, in float64.

    In flat space, c = 0: x, 1 and |x|²/2. What is cosh(√c·d) − 1 otherwise is d²/2 then.
    """

    def __init__(self, x: Tensor, c: float) -> None:
        self.space = x.detach().double() * (c**0.5 if c else 1.0)
        square = self.space.square().sum(-1)
        self.time = (1 + square).sqrt() if c else torch.ones_like(square)
        self.excess = square / (1 + self.time)
        self.blur = self.time if c else square.sqrt()
        """The product of two of them, times a few eps, is the rounding error of a pair."""


def cosh_minus_one(a: ScaledRows, b: ScaledRows) -> tuple[Tensor, Tensor]:
    """cosh(√c·d) − 1 of all pairs, (n, m), and which of them count as one point."""
    times = torch.outer(a.time, b.excess)
    above = torch.addmm(times, a.space, b.space.mT, alpha=-1)
    above.add_(a.excess.unsqueeze(-1))
    # What lies below the rounding error of a pair may be anything, also negative.
    same = above <= torch.outer(ROUNDING * a.blur, b.blur, out=times)
    return above.masked_fill_(same, 0.0), same


def pull_back(
    slope: Tensor,
    x: Tensor,
    x_time: Tensor,
    y: Tensor,
    y_time: Tensor,
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients in the scaled x and y of a sum whose slope in cosh of each pair is given.

    Of cosh = t_x·t_y − x·y: (t_y/t_x)·x − y, and the same with x and y exchanged. `scale`, (n,),
    multiplies the rows of the slope, without a pass over it.
    """
    a, b = torch.column_stack([x, x_time]), torch.column_stack([y, y_time])
    if scale is not None:
        a = a * scale.unsqueeze(-1)
    near_y, near_x = slope @ b, slope.mT @ a
    if scale is not None:
        near_y.mul_(scale.unsqueeze(-1))
    gx = (near_y[:, -1:] / x_time.unsqueeze(-1)) * x - near_y[:, :-1]
    gy = (near_x[:, -1:] / y_time.unsqueeze(-1)) * y - near_x[:, :-1]
    return gx, gy


def check_one_set_each(c: float, x: Tensor, y: Tensor) -> None:
    """Raise unless x and y are (n, d) and (m, d), and c a number."""
    if not isinstance(c, int | float):
        raise TypeError(f"c must be a number here, got {type(c).__name__}")
    prepare(c, x=x, y=y)
    if x.ndim != 2 or y.ndim != 2:
        raise ValueError(
            "x and y must be one set of points each, (n, d) and (m, d), got shapes "
            f"{tuple(x.shape)} and {tuple(y.shape)}"
        )


def gram_distances(x: Tensor, y: Tensor, c: float = 1.0) -> Tensor:
    """Distances between all pairs of Lorentz points, (n, d) and (m, d) to (n, m).

    Differentiable in x and y, once. With δ = eps·t_x·t_y the error of a distance is at most
    `(min(8δ/sinh(√c·d), 5√δ) + (4 + √c·d)·eps)/√c`.

    Args:
        x: (n, d). y: (m, d).
        c: curvature −c, a number.

    Returns:
        (n, m), float64 for float64 points, else float32.
    """
    check_one_set_each(c, x, y)
    distances: Tensor = _GramDistances.apply(*distinct(x, y), c)
    return distances


class _GramDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, c: float) -> Tensor:
        a, b = ScaledRows(x, c), ScaledRows(y, c)
        above, same = cosh_minus_one(a, b)
        sinh = (above + 2).mul_(above).sqrt_()
        distances = above.add_(sinh).log1p_().mul_(c**-0.5)
        ctx.save_for_backward(a.space, a.time, b.space, b.time, sinh.masked_fill_(same, torch.inf))
        ctx.dtypes = (x.dtype, y.dtype)
        return cast(distances, accumulation_dtype(torch.promote_types(x.dtype, y.dtype)))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, x_time, y, y_time, sinh = ctx.saved_tensors
        # The 1/√c of the distance and the √c of the scaled points cancel.
        gx, gy = pull_back(g.double() / sinh, x, x_time, y, y_time)
        first, second = ctx.dtypes
        return cast(gx, first), cast(gy, second), None
