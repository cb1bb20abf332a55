"""Entailment cones on the accuracy grid."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import torch
from torch import Tensor

from beltrami.geometry import cones
from tests.accuracy import mp
from tests.accuracy.grid import (
    Case,
    Cell,
    directions,
    far_pair,
    near_pair,
    near_pairs,
    one_point,
    points,
    sideways_pair,
)

_BALL = {torch.float32: 15.0, torch.float64: 35.0}
# On a line the angle is 0 or π, and its derivative 0: a law test.
_PLANE = 2
_CORNER = 0.01


# --- inputs ---------------------------------------------------------------------------------------


def child_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """y one step of min(radius, 1) from x, 30° off the outward ray."""
    x = points(cell, n, g)
    step, u = min(cell.radius, 1.0), x / x.norm(dim=-1, keepdim=True)
    v = directions(n, cell.dim, g)
    v = v - (v * u).sum(-1, keepdim=True) * u
    v = v / v.norm(dim=-1, keepdim=True)
    tangent = math.cos(math.pi / 6) * math.cosh(cell.radius) * u + math.sin(math.pi / 6) * v
    return [x, math.cosh(step) * x + math.sinh(step) / math.sqrt(cell.c) * tangent]


def unequal_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A point far out and, across, one at a tenth of its radius."""
    x, y = sideways_pair(cell, n, g)
    return [x, y * (math.sinh(0.1 * cell.radius) / math.sinh(0.8 * cell.radius))]


def nearly_opposite_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """Directions `_CORNER` short of opposite."""
    x, y = sideways_pair(cell, n, g)
    u, v = x / x.norm(dim=-1, keepdim=True), y / y.norm(dim=-1, keepdim=True)
    return [x, y.norm(dim=-1, keepdim=True) * (_CORNER * v - u)]


def inward_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """The same two points with the apex near the origin."""
    x, y = unequal_pair(cell, n, g)
    return [y, x]


def ball_point(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    return [directions(n, cell.dim, g) * (math.tanh(cell.radius / 2) / math.sqrt(cell.c))]


def ball_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x, y = sideways_pair(cell, n, g)
    return [v / (1 + torch.sqrt(1 + cell.c * (v * v).sum(-1, keepdim=True))) for v in (x, y)]


def three_vectors(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """An apex, a child and a root, all of the cell's scale, with an exterior angle of 60°."""
    root, u, v = (directions(n, cell.dim, g) for _ in range(3))
    v = v - (v * u).sum(-1, keepdim=True) * u
    v = v / v.norm(dim=-1, keepdim=True)
    step = math.cos(math.pi / 3) * u + math.sin(math.pi / 3) * v
    return [cell.radius * t for t in (root + u, root + u + step, root)]


def at_corner(cell: Cell) -> float:
    """The direction across the axis, of which only `_CORNER` is left, is rounded to eps."""
    return 16.0 / _CORNER


# --- references -----------------------------------------------------------------------------------


def _half_aperture(x: mp.Vector, c: Any) -> Any:
    radius = mpmath.sqrt(c) * mp.size(x)
    inner = mpmath.mpf(1) / 5
    return mpmath.asin(inner / radius) if mpmath.re(radius) > inner else mpmath.pi / 2


def _exterior_angle(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    """π minus the angle at x of the triangle with the origin, by the law of cosines."""
    k = mpmath.sqrt(c)
    a, b, d = k * mp.dist0(x, c), k * mp.dist0(y, c), k * mp.dist(x, y, c)
    cosine = (mpmath.cosh(b) - mpmath.cosh(a) * mpmath.cosh(d)) / (mpmath.sinh(a) * mpmath.sinh(d))
    return mpmath.acos(cosine)


def _from_ball(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((2 / (1 - c * mp.dot(x, x)), x))


def _ball_half_aperture(x: mp.Vector, c: Any) -> Any:
    return _half_aperture(_from_ball(x, c), c)


def _ball_exterior_angle(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    return _exterior_angle(_from_ball(x, c), _from_ball(y, c), c)


def _euclidean(x: Tensor, y: Tensor, origin: Tensor, c: Any) -> Tensor:
    return cones.euclidean_exterior_angle(x, y, origin)


def _mp_euclidean(x: mp.Vector, y: mp.Vector, origin: mp.Vector, c: Any) -> Any:
    arm, step = mp.combine((1, x), (-1, origin)), mp.combine((1, y), (-1, x))
    return mpmath.acos(mp.dot(arm, step) / (mp.size(arm) * mp.size(step)))


def _angle(name: str, inputs: Any, **options: Any) -> Case:
    return Case(
        f"exterior_angle {name}",
        cones.exterior_angle,
        _exterior_angle,
        inputs,
        min_dim=_PLANE,
        **options,
    )


CASES = [
    Case("half_aperture", cones.half_aperture, _half_aperture, one_point, strict_c=True),
    _angle("far", far_pair),
    _angle("nearly opposite", nearly_opposite_pair, gradient_bound=at_corner),
    _angle("sideways", sideways_pair),
    _angle("unequal", unequal_pair),
    _angle("from within", inward_pair),
    _angle("near", near_pair, bound=near_pairs),
    _angle("child", child_pair, bound=near_pairs),
    Case(
        "poincare_half_aperture",
        cones.poincare_half_aperture,
        _ball_half_aperture,
        ball_point,
        near_pairs,
        max_radius=_BALL,
    ),
    Case(
        "poincare_exterior_angle",
        cones.poincare_exterior_angle,
        _ball_exterior_angle,
        ball_pair,
        near_pairs,
        max_radius=_BALL,
        min_dim=_PLANE,
    ),
    Case("euclidean_exterior_angle", _euclidean, _mp_euclidean, three_vectors, min_dim=_PLANE),
]
