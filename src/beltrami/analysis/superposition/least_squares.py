"""Least squares of models that are not linear, from many starts at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Model = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Residuals (s, n) of parameters (s, p), and their derivatives (s, n, q) by the first q of them."""

_RIDGE = 1e-12  # beside the diagonal of JᵀJ, which is 0 where a parameter has no effect


class Stop(NamedTuple):
    """When a descent ends: after so many steps, or once none wins this share of the squares."""

    steps: int
    gain: float


CONVERGED = Stop(steps=200, gain=1e-14)
# For sums of squares that are only compared with a bound.
COARSE = Stop(steps=40, gain=1e-9)


def descend(
    model: Model,
    start: Tensor,
    *,
    project: Callable[[Tensor], Tensor] = lambda p: p,
    stop: Stop = CONVERGED,
) -> tuple[Tensor, Tensor]:
    """Levenberg and Marquardt's method.

    Args:
        model: residuals and derivatives; parameters without derivatives stay as they are.
        start: (s, p).
        project: brings parameters back to where they may be.
        stop: when to end.

    Returns:
        The parameters, (s, p), and the sums of squares, (s,).
    """
    p = start.clone()
    residuals, jacobian = model(p)
    squares = _finite(residuals.square().sum(-1))
    damping = torch.full_like(squares, 1e-3)
    for _ in range(stop.steps):
        normal = jacobian.mT @ jacobian
        slope = (jacobian.mT @ residuals[..., None])[..., 0]
        diagonal = normal.diagonal(dim1=-2, dim2=-1)
        ridge = diagonal * damping[:, None] + _RIDGE * diagonal.sum(-1, keepdim=True)
        step, _ = torch.linalg.solve_ex(normal + torch.diag_embed(ridge), slope)
        tried = p.clone()
        tried[:, : step.shape[1]] -= step
        tried = project(tried)
        new_residuals, new_jacobian = model(tried)
        new = _finite(new_residuals.square().sum(-1))
        better = new < squares
        arrived = ~better | (squares - new <= stop.gain * squares)
        p = torch.where(better[:, None], tried, p)
        residuals = torch.where(better[:, None], new_residuals, residuals)
        jacobian = torch.where(better[:, None, None], new_jacobian, jacobian)
        squares = torch.where(better, new, squares)
        damping = torch.where(better, damping / 5, damping * 4)
        # Those that do not get better are done once they have tried short steps, too.
        if bool((arrived & ((damping > 1e8) | better)).all()):
            break
    return p, squares


def inverse_root(jacobian: Tensor) -> Tensor:
    """R⁻¹ of J = QR, so that R⁻¹·R⁻ᵀ = (JᵀJ)⁻¹ without squaring J's condition."""
    r = torch.linalg.qr(jacobian, mode="r").R
    root: Tensor = torch.linalg.solve_triangular(r, torch.eye(len(r), dtype=r.dtype), upper=True)
    return root


def covariance(jacobian: Tensor) -> Tensor:
    """(JᵀJ)⁻¹; infinite where J does not have full rank."""
    size = torch.linalg.qr(jacobian, mode="r").R.diagonal().abs()
    if float(size.min()) <= torch.finfo(torch.float64).eps * float(size.max()):
        return torch.full((len(size), len(size)), math.inf, dtype=jacobian.dtype)
    root = inverse_root(jacobian)
    return root @ root.mT


def _finite(squares: Tensor) -> Tensor:
    """Where a step went out of the numbers, it is worse than any."""
    return torch.where(torch.isfinite(squares), squares, math.inf)
