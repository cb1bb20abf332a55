"""The stereographic model on the accuracy grid, for curvatures of either sign.

For κ < 0 inputs and references are those of the ball; for κ > 0 points are those of a sphere at an
angle of up to 1.2 from the pole, and references the same formulas with κ of the other sign.
"""

from __future__ import annotations

import math
from typing import Any

import mpmath
import torch
from torch import Tensor

from beltrami.geometry import stereographic
from tests.accuracy import mp
from tests.accuracy.cases_poincare import REACH, in_ball
from tests.accuracy.grid import (
    Bound,
    Case,
    Cell,
    Inputs,
    directions,
    far_pair,
    near_pairs,
    one_point,
    one_tangent,
    point_and_tangent,
    well_conditioned,
)

_ANGLE = {torch.float32: 1.2, torch.float64: 1.2}


def on_sphere(cell: Cell, n: int, g: torch.Generator, share: float = 1.0) -> Tensor:
    return directions(n, cell.dim, g) * (math.tan(share * cell.radius / 2) / math.sqrt(cell.c))


def sphere_point(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    return [on_sphere(cell, n, g)]


def sphere_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x = on_sphere(cell, n, g)
    return [x, -0.3 * x + on_sphere(cell, n, g, 0.5)]


def sphere_tangent(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x = on_sphere(cell, n, g)
    return [x, (0.3 * x + on_sphere(cell, n, g, 0.3)) / 2]


def _dist(x: mp.Vector, y: mp.Vector, k: Any) -> Any:
    d = mp.combine((1, x), (-1, y))
    gaps = (1 + k * mp.dot(x, x)) * (1 + k * mp.dot(y, y))
    z = mpmath.sqrt(mp.dot(d, d) / gaps)
    w = mpmath.sqrt(abs(mpmath.re(k)) + 1j * mpmath.im(k) * mpmath.sign(mpmath.re(k)))
    return 2 * (mpmath.asin if mpmath.re(k) > 0 else mpmath.asinh)(w * z) / w


def _tan(z: Any, k: Any, inverse: bool = False) -> Any:
    """tanκ(z)/z, or that of its inverse."""
    positive = mpmath.re(k) > 0
    w = mpmath.sqrt(k if positive else -k) * z
    f = (mpmath.tan, mpmath.atan) if positive else (mpmath.tanh, mpmath.atanh)
    return mp.ratio(f[inverse], w)


def _exp0(v: mp.Vector, k: Any) -> mp.Vector:
    return mp.combine((_tan(mp.size(v) / 2, k) / 2, v))


def _log0(x: mp.Vector, k: Any) -> mp.Vector:
    return mp.combine((2 * _tan(mp.size(x), k, inverse=True), x))


def _mobius_add(x: mp.Vector, y: mp.Vector, k: Any) -> mp.Vector:
    xx, yy, xy = mp.dot(x, x), mp.dot(y, y), mp.dot(x, y)
    total = 1 - 2 * k * xy + k * k * xx * yy
    return mp.combine(((1 - 2 * k * xy - k * yy) / total, x), ((1 + k * xx) / total, y))


def _exp(x: mp.Vector, v: mp.Vector, k: Any) -> mp.Vector:
    gap = 1 + k * mp.dot(x, x)
    return _mobius_add(x, mp.combine((_tan(mp.size(v) / gap, k) / gap, v)), k)


def _cases(
    name: str, function: Any, reference: Any, ball: Inputs, sphere: Inputs, points: int
) -> list[Case]:
    """The same function at κ = −c and at κ = c."""

    def case(kind: str, sign: int, inputs: Inputs, bound: Bound, reach: Any) -> Case:
        return Case(
            f"stereographic.{name} {kind}",
            lambda *args: function(*args[:-1], sign * args[-1]),
            lambda *args: reference(*args[:-1], sign * args[-1]),
            inputs,
            bound,
            max_radius=reach,
            max_dim=3,
        )

    return [
        case("in the ball", -1, in_ball(ball, points), near_pairs, REACH),
        case("on the sphere", 1, sphere, well_conditioned, _ANGLE),
    ]


S = stereographic
CASES = [
    *_cases("dist", S.dist, _dist, far_pair, sphere_pair, 2),
    *_cases("exp0", S.exp0, _exp0, one_tangent, sphere_point, 0),
    *_cases("log0", S.log0, _log0, one_point, sphere_point, 1),
    *_cases("exp", S.exp, _exp, point_and_tangent, sphere_tangent, 1),
    *_cases("mobius_add", S.mobius_add, _mobius_add, far_pair, sphere_pair, 2),
]
