"""The sphere on the accuracy grid: angles up to 1, small ones included, and nearly opposite points.

References are analytic formulas of the ambient coordinates that agree with ours also off the sphere
(the angle through |x − y| and |x + y|): rounding takes every point a little off it.
"""

from __future__ import annotations

import math
from typing import Any

import mpmath
import torch
from torch import Tensor

from beltrami.geometry import sphere
from tests.accuracy import mp
from tests.accuracy.grid import Case, Cell, directions, exp_type

# Angles; the sphere has no room for the larger radii of the grid.
REACH = {torch.float32: 1.0, torch.float64: 1.0}


# --- inputs ---------------------------------------------------------------------------------------


def _step(x: Tensor, angle: float, g: torch.Generator) -> Tensor:
    """The unit vectors an angle away from the unit vectors x."""
    v = directions(*x.shape, g)
    v = v - (v * x).sum(-1, keepdim=True) * x
    v = v / v.norm(dim=-1, keepdim=True)
    return math.cos(angle) * x + math.sin(angle) * v


def _pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x = directions(n, cell.dim, g)
    return [x * cell.c**-0.5, _step(x, cell.radius, g) * cell.c**-0.5]


def _obtuse_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """π minus the cell's radius apart, but at least a tenth from opposite points."""
    x = directions(n, cell.dim, g)
    return [x * cell.c**-0.5, -_step(x, max(cell.radius, 0.1), g) * cell.c**-0.5]


def _tangent(x: Tensor, length: float, c: float, g: torch.Generator) -> Tensor:
    v = directions(*x.shape, g)
    v = v - c * (v * x).sum(-1, keepdim=True) * x
    return v * (length / v.norm(dim=-1, keepdim=True))


def _pair_and_tangent(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x, y = _pair(cell, n, g)
    return [x, y, _tangent(x, 1.0, cell.c, g)]


def _point_and_tangent(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x, _ = _pair(cell, n, g)
    return [x, _tangent(x, cell.radius * cell.c**-0.5, cell.c, g)]


def _point_and_slanted(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A vector in equal parts along and across x: neither part is a small rest of the other."""
    x, v = _point_and_tangent(cell, n, g)
    v = v / v.norm(dim=-1, keepdim=True)
    return [x, v + x / x.norm(dim=-1, keepdim=True)]


def _near_pole(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    pole = torch.zeros(n, cell.dim, dtype=torch.float64)
    pole[:, -1] = 1.0
    return [_step(pole, cell.radius, g) * cell.c**-0.5]


def _pole_tangent(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    return [directions(n, cell.dim, g) * cell.radius * cell.c**-0.5]


# --- references -----------------------------------------------------------------------------------


def _angle(x: mp.Vector, y: mp.Vector) -> Any:
    chord, rest = mp.combine((1, x), (-1, y)), mp.combine((1, x), (1, y))
    return 2 * mpmath.atan(mp.size(chord) / mp.size(rest))


def _mp_dist(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    return _angle(x, y) / mpmath.sqrt(c)


def _mp_dist_sq(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    return _mp_dist(x, y, c) ** 2


def _mp_log(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    z = _angle(x, y)
    gain = z / mpmath.sin(z)
    return mp.combine((gain, y), (-gain * mpmath.cos(z), x))


def _mp_exp(x: mp.Vector, v: mp.Vector, c: Any) -> mp.Vector:
    z = mpmath.sqrt(c) * mp.size(v)
    return mp.combine((mpmath.cos(z), x), (mp.ratio(mpmath.sin, z), v))


def _mp_exp0(v: mp.Vector, c: Any) -> mp.Vector:
    z = mpmath.sqrt(c) * mp.size(v)
    return [*mp.combine((mp.ratio(mpmath.sin, z), v)), mpmath.cos(z) / mpmath.sqrt(c)]


def _polar_angle(x: mp.Vector) -> Any:
    """atan2 of the part across the pole and the height, for the northern half."""
    return mpmath.atan(mp.size(x[:-1]) / x[-1])


def _mp_dist0(x: mp.Vector, c: Any) -> Any:
    return _polar_angle(x) / mpmath.sqrt(c)


def _mp_log0(x: mp.Vector, c: Any) -> mp.Vector:
    z = _polar_angle(x)
    return mp.combine((z / mpmath.sin(z), x[:-1]))


def _mp_transport(x: mp.Vector, y: mp.Vector, v: mp.Vector, c: Any) -> mp.Vector:
    s = mp.combine((1, x), (1, y))
    return mp.combine((1, v), (-2 * mp.dot(s, v) / mp.dot(s, s), s))


def _mp_project(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((1 / (mpmath.sqrt(c) * mp.size(x)), x))


def _mp_midpoint(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    return _mp_project(mp.combine((1, x), (1, y)), c)


def _mp_across(x: mp.Vector, g: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((1, g), (-mp.dot(x, g) / mp.dot(x, x), x))


def _case(name: str, function: Any, reference: Any, inputs: Any, **options: Any) -> Case:
    return Case(name, function, reference, inputs, max_radius=REACH, min_dim=2, **options)


CASES = [
    _case("sphere.dist", sphere.dist, _mp_dist, _pair),
    _case("sphere.dist obtuse", sphere.dist, _mp_dist, _obtuse_pair),
    _case("sphere.dist_sq", sphere.dist_sq, _mp_dist_sq, _pair),
    _case("sphere.dist_sq obtuse", sphere.dist_sq, _mp_dist_sq, _obtuse_pair),
    _case("sphere.dist0", sphere.dist0, _mp_dist0, _near_pole),
    _case("sphere.exp", sphere.exp, _mp_exp, _point_and_tangent, bound=exp_type),
    _case("sphere.log", sphere.log, _mp_log, _pair),
    _case("sphere.log obtuse", sphere.log, _mp_log, _obtuse_pair),
    _case("sphere.exp0", sphere.exp0, _mp_exp0, _pole_tangent, bound=exp_type),
    _case("sphere.log0", sphere.log0, _mp_log0, _near_pole),
    _case("sphere.transport", sphere.transport, _mp_transport, _pair_and_tangent),
    _case("sphere.project", sphere.project, _mp_project, _pole_tangent),
    _case("sphere.midpoint", sphere.midpoint, _mp_midpoint, _pair),
    _case("sphere.riemannian_grad", sphere.riemannian_grad, _mp_across, _point_and_slanted),
]
