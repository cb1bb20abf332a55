"""The solvable group on the accuracy grid."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import torch
from torch import Tensor

from beltrami.geometry import solvable
from tests.accuracy import mp
from tests.accuracy.grid import (
    Bound,
    Case,
    Cell,
    directions,
    exp_type,
    near_mean,
    near_pairs,
    points,
    well_conditioned,
)

_BALL = {torch.float32: 15.0, torch.float64: 35.0}


# Beyond these, rounding a tangent vector in coordinates (a, f) leaves nothing of what was meant.
_TANGENT = {torch.float32: 10.0, torch.float64: 20.0}
# Squares of the Lorentz coordinates of y⁻¹·x overflow float32 beyond a distance of 44.
_LOG = {torch.float32: 20.0, torch.float64: 40.0}


def rounded_elements(bound: Bound) -> Bound:
    """For gradients: rounding a and f moves those of some elements by far more than eps.

    Measured: about 1 in 70 exceeds the plain bound, the worst of many thousand draws by 71, and
    none by more than twice what rounding the inputs does to the exact gradient.
    """
    return lambda cell: 100 * bound(cell)


# --- inputs: (a, f) of Lorentz points of the cell, which has no unit ------------------------------


def _elements(cell: Cell, n: int, g: torch.Generator, scale: float = 1.0) -> Tensor:
    return solvable.from_lorentz(points(cell, n, g, scale), cell.c)


def element(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    return [_elements(cell, n, g)]


def lorentz_point(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    return [points(cell, n, g)]


def ball_point(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    return [directions(n, cell.dim, g) * (math.tanh(cell.radius / 2) / math.sqrt(cell.c))]


def tangent(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    return [directions(n, cell.dim, g) * (cell.radius / math.sqrt(cell.c))]


def algebra(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    return [directions(n, cell.dim, g) * cell.radius]


def pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """Opposite sides, radii 1 and 0.8 times the cell's."""
    x = points(cell, n, g)
    y = -x * (math.sinh(0.8 * cell.radius) / math.sinh(cell.radius))
    y = y + 0.3 * y.norm(dim=-1, keepdim=True) * directions(n, cell.dim, g)
    return [solvable.from_lorentz(x, cell.c), solvable.from_lorentz(y, cell.c)]


def close_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """y a hundredth of min(radius, 1) from x."""
    x = _elements(cell, n, g)
    step = directions(n, cell.dim, g) * (0.01 * min(cell.radius, 1.0))
    return [x, solvable.product(x, solvable.exp0(step))]


def element_and_step(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A tangent vector of length half the radius, at most 1/2."""
    x = _elements(cell, n, g)
    w = directions(n, cell.dim, g) * (0.5 * min(cell.radius, 1.0))
    return [x, torch.cat([w[:, :1], w[:, 1:] - w[:, :1] * x[:, 1:]], -1)]


def element_and_turn(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A rotation of 120° in a random plane (on a line: the reflection)."""
    x = _elements(cell, n, g)
    t = directions(n, max(cell.dim - 1, 1), g)[:, : cell.dim - 1]
    first = torch.full((n, 1), -0.5 if cell.dim > 1 else -1.0, dtype=t.dtype)
    return [x, torch.cat([first, math.sqrt(0.75) * t], -1)]


# --- references -----------------------------------------------------------------------------------


def _to_unit_lorentz(x: mp.Vector) -> mp.Vector:
    a, f = x[0], x[1:]
    return [mpmath.sinh(a) + mpmath.exp(a) * mp.dot(f, f) / 2, *f]


def _from_unit_lorentz(x: mp.Vector) -> mp.Vector:
    return [-mpmath.log(mpmath.sqrt(1 + mp.dot(x, x)) - x[0]), *x[1:]]


def _mp_product(y: mp.Vector, x: mp.Vector) -> mp.Vector:
    decay = mpmath.exp(-x[0])
    return [x[0] + y[0], *(p + decay * q for p, q in zip(x[1:], y[1:], strict=True))]


def _mp_norm(x: mp.Vector) -> Any:
    a, f = x[0], x[1:]
    return mpmath.acosh((mpmath.exp(-a) + mpmath.exp(a) * (1 + mp.dot(f, f))) / 2)


def _mp_relative(y: mp.Vector, x: mp.Vector) -> mp.Vector:
    return _mp_product([-y[0], *(-mpmath.exp(y[0]) * v for v in y[1:])], x)


def _mp_dist(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    return _mp_norm(_mp_relative(y, x)) / mpmath.sqrt(c)


def _mp_dist_sq(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    return _mp_dist(x, y, c) ** 2


def _mp_dist0(x: mp.Vector, c: Any) -> Any:
    return _mp_norm(x) / mpmath.sqrt(c)


def _mp_to_lorentz(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((1 / mpmath.sqrt(c), _to_unit_lorentz(x)))


def _mp_from_lorentz(x: mp.Vector, c: Any) -> mp.Vector:
    return _from_unit_lorentz(mp.combine((mpmath.sqrt(c), x)))


def _mp_to_poincare(x: mp.Vector, c: Any) -> mp.Vector:
    y = _to_unit_lorentz(x)
    return mp.combine((1 / ((1 + mpmath.sqrt(1 + mp.dot(y, y))) * mpmath.sqrt(c)), y))


def _mp_from_poincare(x: mp.Vector, c: Any) -> mp.Vector:
    return _mp_from_lorentz(mp.combine((2 / (1 - c * mp.dot(x, x)), x)), c)


def _mp_exp0(v: mp.Vector, c: Any) -> mp.Vector:
    return _mp_from_lorentz(mp.exp0(v, c), c)


def _mp_log0(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.log0(_mp_to_lorentz(x, c), c)


def _mp_exp(x: mp.Vector, v: mp.Vector, c: Any) -> mp.Vector:
    w = [v[0], *(q + v[0] * p for p, q in zip(x[1:], v[1:], strict=True))]
    return _mp_product(x, _mp_exp0(w, mpmath.mpf(1)))


def _mp_log(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    w = _mp_log0(_mp_relative(x, y), mpmath.mpf(1))
    return [w[0], *(q - w[0] * p for p, q in zip(x[1:], w[1:], strict=True))]


def _mp_group_exp(v: mp.Vector, c: Any) -> mp.Vector:
    return [v[0], *((1 - mpmath.exp(-v[0])) / v[0] * q for q in v[1:])]


def _mp_group_log(x: mp.Vector, c: Any) -> mp.Vector:
    return [x[0], *(x[0] / (1 - mpmath.exp(-x[0])) * q for q in x[1:])]


def _mp_rotation(x: mp.Vector, theta: mp.Vector, c: Any) -> mp.Vector:
    if len(theta) == 1:
        return [-x[0]]
    unit = mp.combine((1 / mp.size(theta), theta))
    t0, t = unit[0], unit[1:]
    y = _to_unit_lorentz(x)
    tf = mp.dot(t, y[1:])
    turned = mp.combine((1, y[1:]), (-(y[0] + tf / (1 + t0)), t))
    return _from_unit_lorentz([t0 * y[0] + tf, *turned])


def _without_c(function: Any) -> Any:
    """The coordinates have no unit, so many functions take no curvature."""
    return lambda *args: function(*args[:-1])


S = solvable
CASES = [
    Case(
        "solvable dist0",
        S.dist0,
        _mp_dist0,
        element,
        gradient_bound=rounded_elements(well_conditioned),
        strict_c=True,
    ),
    Case(
        "solvable dist",
        S.dist,
        _mp_dist,
        pair,
        gradient_bound=rounded_elements(well_conditioned),
        strict_c=True,
    ),
    Case(
        "solvable dist_sq",
        S.dist_sq,
        _mp_dist_sq,
        pair,
        gradient_bound=rounded_elements(well_conditioned),
        strict_c=True,
    ),
    Case(
        "solvable dist near", S.dist, _mp_dist, close_pair, near_pairs, rounded_elements(near_pairs)
    ),
    Case("to_lorentz", S.to_lorentz, _mp_to_lorentz, element, near_pairs),
    Case("from_lorentz", S.from_lorentz, _mp_from_lorentz, lorentz_point),
    Case("to_poincare", S.to_poincare, _mp_to_poincare, element, near_pairs, max_radius=_BALL),
    Case(
        "from_poincare",
        S.from_poincare,
        _mp_from_poincare,
        ball_point,
        near_pairs,
        max_radius=_BALL,
    ),
    Case("solvable exp0", S.exp0, _mp_exp0, tangent, exp_type),
    Case("solvable log0", S.log0, _mp_log0, element, near_pairs),
    Case(
        "solvable exp",
        _without_c(S.exp),
        _mp_exp,
        element_and_step,
        near_pairs,
        max_radius=_TANGENT,
    ),
    Case("solvable log", _without_c(S.log), _mp_log, pair, near_pairs, max_radius=_LOG),
    Case(
        "solvable log near",
        _without_c(S.log),
        _mp_log,
        close_pair,
        near_pairs,
        near_mean,  # the foot point is rounded, too, as a mean is
        max_radius=_TANGENT,
    ),
    Case("group_exp", _without_c(S.group_exp), _mp_group_exp, algebra),
    Case("group_log", _without_c(S.group_log), _mp_group_log, element),
    Case(
        "fiber_rotation",
        _without_c(S.fiber_rotation),
        _mp_rotation,
        element_and_turn,
        near_pairs,
        rounded_elements(near_pairs),
    ),
]
