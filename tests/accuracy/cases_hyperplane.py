"""Hyperplanes, horospheres and projections on the accuracy grid."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import torch
from torch import Tensor

from beltrami.geometry import hyperplane
from tests.accuracy import mp
from tests.accuracy.grid import Bound, Case, Cell, directions, exp_type, near_pairs, points

# How far from its hyperplane a near point is, in units of min(radius, 1)/√c.
_NEAR = 0.01
# Beyond these, rounding carries a point beside an axis away from it.
_BESIDE = {torch.float32: 10.0, torch.float64: 20.0}
# A point at 40 behind a plane at 20: its image lies at 80, and derivatives leave float32's range.
_BEHIND = {torch.float32: 20.0, torch.float64: 40.0}
_BALL = {torch.float32: 15.0, torch.float64: 35.0}


# --- inputs ---------------------------------------------------------------------------------------


def plane_behind(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A hyperplane half a radius out, on the other side of the origin than the point."""
    x = points(cell, n, g)
    return [x, _away(x, g), torch.full((n, 1), 0.5 * cell.radius / math.sqrt(cell.c)).double()]


def plane_near(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A hyperplane as far out as the point and hardly in front of it."""
    k, small = math.sqrt(cell.c), min(cell.radius, 1.0)
    x, u = _beside_axis(cell, n, g)
    return [x, 2 * u, torch.full((n, 1), (cell.radius - _NEAR * small) / k, dtype=x.dtype)]


def _beside_axis(cell: Cell, n: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points with η = radius and half a unit beside the axis u, and u."""
    k = math.sqrt(cell.c)
    u, v = directions(n, cell.dim, g), directions(n, cell.dim, g)
    if cell.dim == 1:
        perp = torch.zeros_like(u)
    else:
        perp = v - (v * u).sum(-1, keepdim=True) * u
        perp = perp * (0.5 * min(cell.radius, 1.0) / k / perp.norm(dim=-1, keepdim=True))
    mu = torch.sqrt(1 + cell.c * (perp * perp).sum(-1, keepdim=True))
    return mu * (math.sinh(cell.radius) / k) * u + perp, u


def ideal(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A point and an ideal point at an angle of 120° (on a line: 180°)."""
    x = points(cell, n, g)
    return [x, _away(x, g)]


def _away(x: Tensor, g: torch.Generator) -> Tensor:
    u, v = x / x.norm(dim=-1, keepdim=True), directions(*x.shape, g)
    if x.shape[1] == 1:
        return -2 * u
    v = v - (u * v).sum(-1, keepdim=True) * u
    return -u + math.sqrt(3) * v / v.norm(dim=-1, keepdim=True)


def ideal_ahead(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A point beside the axis of the ideal point."""
    x, u = _beside_axis(cell, n, g)
    return [x, 2 * u]


def ideal_and_level(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x, p = ideal(cell, n, g)
    return [x, p, torch.full((n, 1), 0.5 * cell.radius / math.sqrt(cell.c), dtype=x.dtype)]


def ball(cell: Cell, n: int, g: torch.Generator) -> Tensor:
    return directions(n, cell.dim, g) * (math.tanh(cell.radius / 2) / math.sqrt(cell.c))


def ball_plane(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A point of the ball and a hyperplane through another, 120° away and at half its radius.

    The normal is at 45° to the line between both: neither part of it is a small rest.
    """
    x = ball(cell, n, g)
    p = _away(x, g) * (math.tanh(cell.radius / 4) / math.sqrt(cell.c) / 2)
    u = (x - p) / (x - p).norm(dim=-1, keepdim=True)
    if cell.dim == 1:
        return [x, p, 2 * u]
    across = directions(n, cell.dim, g)
    across = across - (across * u).sum(-1, keepdim=True) * u
    return [x, p, u + across / across.norm(dim=-1, keepdim=True)]


def ball_plane_behind(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x = ball(cell, n, g)
    return [x, _away(x, g), torch.full((n, 1), 0.25 * cell.radius / math.sqrt(cell.c)).double()]


def ball_ideal(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x = ball(cell, n, g)
    return [x, _away(x, g)]


def segment(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A point, and a geodesic between two others at 0.5 and 0.8 of its radius, 120° apart."""
    p = points(cell, n, g, 0.5)
    q = _away(p, g) * (math.sinh(0.8 * cell.radius) / math.sqrt(cell.c) / 2)
    between = p / p.norm(dim=-1, keepdim=True) + q / q.norm(dim=-1, keepdim=True)
    x = between / between.norm(dim=-1, keepdim=True) + 0.3 * directions(n, cell.dim, g)
    return [x / x.norm(dim=-1, keepdim=True) * math.sinh(cell.radius) / math.sqrt(cell.c), p, q]


def beyond_the_ends(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A segment that leads outwards, and a point beyond its outer end and beside its geodesic."""
    u = directions(n, cell.dim, g)
    v = directions(n, cell.dim, g)
    v = v - (v * u).sum(-1, keepdim=True) * u
    v = v / v.norm(dim=-1, keepdim=True)
    x, p, q = (
        (u + slope * math.exp(-0.2 * cell.radius) * v) * math.sinh(share * cell.radius)
        for share, slope in ((1.0, -0.4), (0.2, 0.0), (0.6, 0.3))
    )
    return [t / math.sqrt(cell.c) for t in (x, p, q)]


# --- bounds ---------------------------------------------------------------------------------------


def at_plane(cell: Cell) -> float:
    """Near a hyperplane far out, rounding its normal already moves it by eps·cosh(radius)."""
    return near_pairs(cell) / _NEAR


def cotangent(bound: Bound) -> Bound:
    """For gradients of point maps: a random cotangent leaves some small and ill conditioned.

    Measured: about 1 in 50 exceeds the plain bound, by 34 at most; there, rounding the inputs moves
    the exact gradient as much (errors up to 3 times that; once, on a horosphere, 19 times).
    """
    return lambda cell: 64 * bound(cell)


# --- references -----------------------------------------------------------------------------------


def _unit(z: mp.Vector) -> mp.Vector:
    if len(z) == 1:  # a sign, with derivative exactly 0
        return [mpmath.sign(mpmath.re(z[0]))]
    return mp.combine((1 / mp.size(z), z))


def _alpha(x: mp.Vector, z: mp.Vector, a: mp.Vector, c: Any) -> Any:
    k = mpmath.sqrt(c)
    return mpmath.cosh(k * a[0]) * mp.dot(_unit(z), x) - mpmath.sinh(k * a[0]) * mp.time(x, c)


def _signed_dist(x: mp.Vector, z: mp.Vector, a: mp.Vector, c: Any) -> Any:
    k = mpmath.sqrt(c)
    return mpmath.asinh(k * _alpha(x, z, a, c)) / k


def _logit(x: mp.Vector, z: mp.Vector, a: mp.Vector, c: Any) -> Any:
    return mp.size(z) * _signed_dist(x, z, a, c)


def _reflect(x: mp.Vector, z: mp.Vector, a: mp.Vector, c: Any) -> mp.Vector:
    k = mpmath.sqrt(c)
    return mp.combine((1, x), (-2 * _alpha(x, z, a, c) * mpmath.cosh(k * a[0]), _unit(z)))


def _foot(x: mp.Vector, z: mp.Vector, a: mp.Vector, c: Any) -> mp.Vector:
    k, alpha = mpmath.sqrt(c), _alpha(x, z, a, c)
    scale = mpmath.sqrt(1 + c * alpha**2)
    return mp.combine((1 / scale, x), (-alpha * mpmath.cosh(k * a[0]) / scale, _unit(z)))


def _busemann(x: mp.Vector, p: mp.Vector, c: Any) -> Any:
    k = mpmath.sqrt(c)
    return mpmath.log(k * (mp.time(x, c) - mp.dot(_unit(p), x))) / k


def _horosphere(x: mp.Vector, p: mp.Vector, level: mp.Vector, c: Any) -> mp.Vector:
    """x moved by s = busemann − level towards p, along `X e^{−ks} + N·sinh(ks)·…`."""
    k = mpmath.sqrt(c)
    s = k * (_busemann(x, p, c) - level[0])
    # The geodesic from X to the ideal point N = (1, p) is e^{−s}X + sinh(s)·N/⟨−X, N⟩ (in 1/k).
    weight = mpmath.sinh(s) / (c * (mp.time(x, c) - mp.dot(_unit(p), x)))
    return mp.combine((mpmath.exp(-s), x), (weight, _unit(p)))


def _ball_to_lorentz(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((2 / (1 - c * mp.dot(x, x)), x))


def _mobius(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    xy, x2, y2 = mp.dot(x, y), mp.dot(x, x), mp.dot(y, y)
    scale = 1 + 2 * c * xy + c * c * x2 * y2
    return mp.combine(((1 + 2 * c * xy + c * y2) / scale, x), ((1 - c * x2) / scale, y))


def _ball_signed_dist(x: mp.Vector, p: mp.Vector, w: mp.Vector, c: Any) -> Any:
    k, q = mpmath.sqrt(c), _mobius(mp.combine((-1, p)), x, c)
    return mpmath.asinh(2 * k * mp.dot(q, _unit(w)) / (1 - c * mp.dot(q, q))) / k


def _ball_logit(x: mp.Vector, z: mp.Vector, r: mp.Vector, c: Any) -> Any:
    k, lam = mpmath.sqrt(c), 2 / (1 - c * mp.dot(x, x))
    inside = lam * k * mp.dot(x, _unit(z)) * mpmath.cosh(2 * k * r[0])
    return 2 * mp.size(z) / k * mpmath.asinh(inside - (lam - 1) * mpmath.sinh(2 * k * r[0]))


def _ball_busemann(x: mp.Vector, p: mp.Vector, c: Any) -> Any:
    return _busemann(_ball_to_lorentz(x, c), p, c)


def _geodesic_parts(x: mp.Vector, p: mp.Vector, q: mp.Vector, c: Any) -> tuple[Any, Any]:
    """Coefficients of p and of the tangent e at p in the projection of X on their plane, scaled."""
    w = mp.log(p, q, c)
    e = mp.combine((1 / mp.norm(p, w, c), w))
    e_time = mp.dot(p, e) / mp.time(p, c)
    along = mp.dot(x, e) - mp.time(x, c) * e_time
    return -c * mp.minkowski(x, p, c), (along, e)


def _geodesic_foot(x: mp.Vector, p: mp.Vector, q: mp.Vector, c: Any) -> mp.Vector:
    first, (along, e) = _geodesic_parts(x, p, q, c)
    scale = mpmath.sqrt(first**2 - c * along**2)
    return mp.combine((first / scale, p), (along / scale, e))


def _geodesic_dist(x: mp.Vector, p: mp.Vector, q: mp.Vector, c: Any) -> Any:
    first, (along, _) = _geodesic_parts(x, p, q, c)
    return mpmath.asinh(mpmath.sqrt(first**2 - c * along**2 - 1)) / mpmath.sqrt(c)


def _plane_cases(name: str, function: Any, reference: Any) -> list[Case]:
    """A scalar function of (x, z, a)."""
    return [
        Case(f"{name} behind", function, reference, plane_behind, exp_type),
        Case(f"{name} near", function, reference, plane_near, at_plane, max_radius=_BESIDE),
    ]


def _point_cases(name: str, function: Any, reference: Any) -> list[Case]:
    """A map of points; its gradients on a line, which are 0, are left to the law tests."""
    return [
        Case(
            f"{name} behind",
            function,
            reference,
            plane_behind,
            exp_type,
            cotangent(exp_type),
            max_radius=_BEHIND,
            min_dim=2,
        ),
        Case(
            f"{name} near",
            function,
            reference,
            plane_near,
            near_pairs,
            cotangent(near_pairs),
            max_radius=_BESIDE,
            min_dim=2,
        ),
    ]


H = hyperplane
CASES = [
    *_plane_cases("signed_dist", H.signed_dist, _signed_dist),
    *_plane_cases("logit", H.logit, _logit),
    *_point_cases("project_to_hyperplane", H.project_to_hyperplane, _foot),
    *_point_cases("reflect", H.reflect, _reflect),
    Case("busemann", H.busemann, _busemann, ideal),
    Case("busemann ahead", H.busemann, _busemann, ideal_ahead, near_pairs, max_radius=_BESIDE),
    Case(
        "project_to_horosphere",
        H.project_to_horosphere,
        _horosphere,
        ideal_and_level,
        exp_type,
        cotangent(exp_type),
        min_dim=2,
    ),
    Case(
        "poincare_signed_dist",
        H.poincare_signed_dist,
        _ball_signed_dist,
        ball_plane,
        near_pairs,
        max_radius=_BALL,
    ),
    Case(
        "poincare_logit",
        H.poincare_logit,
        _ball_logit,
        ball_plane_behind,
        near_pairs,
        max_radius=_BALL,
    ),
    Case(
        "poincare_busemann",
        H.poincare_busemann,
        _ball_busemann,
        ball_ideal,
        near_pairs,
        max_radius=_BALL,
    ),
    Case(
        "project_to_geodesic",
        H.project_to_geodesic,
        _geodesic_foot,
        segment,
        near_pairs,
        cotangent(near_pairs),
        min_dim=2,
    ),
    Case(
        "dist_to_geodesic",
        H.dist_to_geodesic,
        _geodesic_dist,
        segment,
        near_pairs,
        min_dim=2,
    ),
    Case(
        "project_to_geodesic beyond",
        H.project_to_geodesic,
        _geodesic_foot,
        beyond_the_ends,
        near_pairs,
        cotangent(near_pairs),
        min_dim=2,
        max_dim=3,
    ),
    Case(
        "dist_to_geodesic beyond",
        H.dist_to_geodesic,
        _geodesic_dist,
        beyond_the_ends,
        near_pairs,
        min_dim=2,
        max_dim=3,
    ),
]
