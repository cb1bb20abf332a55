"""The Poincaré ball on the accuracy grid, and conversions between the models.

Inputs are those of the Lorentz cases, carried into the ball in float64 and then rounded; references
are the textbook formulas. Everything is measured against the near-pairs bound eps·cosh(√c·r), which
rounding the coordinates of a ball costs, unless the function is better than that.
"""

from __future__ import annotations

from typing import Any

import mpmath
import torch
from torch import Tensor

from beltrami.geometry import poincare
from tests.accuracy import mp
from tests.accuracy.grid import (
    Bound,
    Case,
    Cell,
    Inputs,
    directions,
    far_pair,
    far_pair_and_tangent,
    far_triple,
    near_mean,
    near_opposite_pair,
    near_pair,
    near_pair_and_tangent,
    near_pairs,
    near_triple,
    one_point,
    one_tangent,
    origin_pair,
    point_and_tangent,
    point_and_two_tangents,
    sideways_pair,
    unequal_pair,
    well_conditioned,
)

FRACTION = 0.25
SCALE = 0.75
STD = 0.5
NEW_C = 0.5
WEIGHTS = (0.5, 2.0, 1.0)
# Beyond these a ball has no room for a point.
REACH = {torch.float32: 15.0, torch.float64: 35.0}


# --- inputs ---------------------------------------------------------------------------------------


def in_ball(inputs: Inputs, points: int) -> Inputs:
    """Lorentz inputs carried into the ball: the first `points` are points, the rest tangents."""

    def draw(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
        tensors = inputs(cell, n, g)
        balls = [poincare.from_lorentz(x, cell.c) for x in tensors[:points]]
        rest = [poincare.from_lorentz_tangent(tensors[0], v, cell.c) for v in tensors[points:]]
        return [*balls, *rest]

    return draw


def point_and_vector(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    return [poincare.from_lorentz(one_point(cell, n, g)[0], cell.c), directions(n, cell.dim, g)]


def pair_and_vector(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x, y = far_pair(cell, n, g)
    ball = [poincare.from_lorentz(p, cell.c) for p in (x, y)]
    return [*ball, directions(n, cell.dim, g)]


# --- references -----------------------------------------------------------------------------------


def _gap(x: mp.Vector, c: Any) -> Any:
    return 1 - c * mp.dot(x, x)


def _to_lorentz(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((2 / _gap(x, c), x))


def _from_lorentz(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((1 / (1 + mpmath.sqrt(c) * mp.time(x, c)), x))


def _to_lorentz_tangent(x: mp.Vector, v: mp.Vector, c: Any) -> mp.Vector:
    k = 2 / _gap(x, c)
    return mp.combine((k, v), (c * k * k * mp.dot(x, v), x))


def _from_lorentz_tangent(x: mp.Vector, v: mp.Vector, c: Any) -> mp.Vector:
    t = mpmath.sqrt(1 + c * mp.dot(x, x))
    return mp.combine((1 / (1 + t), v), (-c * mp.dot(x, v) / (t * (1 + t) ** 2), x))


def _conformal_factor(x: mp.Vector, c: Any) -> Any:
    return 2 / _gap(x, c)


def _inner(x: mp.Vector, u: mp.Vector, v: mp.Vector, c: Any) -> Any:
    return 4 * mp.dot(u, v) / _gap(x, c) ** 2


def _norm(x: mp.Vector, v: mp.Vector, c: Any) -> Any:
    return 2 * mp.size(v) / _gap(x, c)


def _riemannian_grad(x: mp.Vector, g: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((_gap(x, c) ** 2 / 4, g))


def _dist(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    d = mp.combine((1, x), (-1, y))
    return mpmath.acosh(1 + 2 * c * mp.dot(d, d) / (_gap(x, c) * _gap(y, c))) / mpmath.sqrt(c)


def _dist_sq(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    return _dist(x, y, c) ** 2


def _dist0(x: mp.Vector, c: Any) -> Any:
    k = mpmath.sqrt(c)
    return 2 * mpmath.atanh(k * mp.size(x)) / k


def _exp0(v: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((mp.ratio(mpmath.tanh, mpmath.sqrt(c) * mp.size(v) / 2) / 2, v))


def _log0(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((2 * mp.ratio(mpmath.atanh, mpmath.sqrt(c) * mp.size(x)), x))


def _mobius_add(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    xx, yy, xy = mp.dot(x, x), mp.dot(y, y), mp.dot(x, y)
    total = 1 + 2 * c * xy + c * c * xx * yy
    return mp.combine(((1 + 2 * c * xy + c * yy) / total, x), ((1 - c * xx) / total, y))


def _exp(x: mp.Vector, v: mp.Vector, c: Any) -> mp.Vector:
    z = mpmath.sqrt(c) * mp.size(v) / _gap(x, c)
    return _mobius_add(x, mp.combine((mp.ratio(mpmath.tanh, z) / _gap(x, c), v)), c)


def _log(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    m = _mobius_add(mp.combine((-1, x)), y, c)
    return mp.combine((_gap(x, c) * mp.ratio(mpmath.atanh, mpmath.sqrt(c) * mp.size(m)), m))


def _transport(x: mp.Vector, y: mp.Vector, v: mp.Vector, c: Any) -> mp.Vector:
    there = _to_lorentz(y, c)
    moved = mp.transport(_to_lorentz(x, c), there, _to_lorentz_tangent(x, v, c), c)
    return _from_lorentz_tangent(there, moved, c)


def _transport_from0(y: mp.Vector, v: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((_gap(y, c) / 2, v))


def _transport_to0(x: mp.Vector, v: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((2 / _gap(x, c), v))


def _geodesic(x: mp.Vector, y: mp.Vector, c: Any, t: Any = FRACTION) -> mp.Vector:
    t = mpmath.mpf(t)
    return _from_lorentz(mp.geodesic(_to_lorentz(x, c), _to_lorentz(y, c), c, t), c)


def _midpoint(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    return _geodesic(x, y, c, 0.5)


def _centroid(x: mp.Vector, y: mp.Vector, z: mp.Vector, c: Any) -> mp.Vector:
    return _from_lorentz(mp.centroid([_to_lorentz(p, c) for p in (x, y, z)], WEIGHTS, c), c)


def _mobius_scalar(x: mp.Vector, c: Any) -> mp.Vector:
    return _exp0(mp.combine((mpmath.mpf(SCALE), _log0(x, c))), c)


def _gyration(u: mp.Vector, v: mp.Vector, w: mp.Vector, c: Any) -> mp.Vector:
    """gyr[u, v]w is the turn of w along the triangle 0 → v → u ⊕ v → 0."""
    at_v = _transport([mpmath.mpf(0)] * len(v), v, w, c)
    # The translation by u takes 0 → v to u → u ⊕ v, and its derivative at 0 is transport to u.
    uv = _mobius_add(u, v, c)
    return _transport(uv, [mpmath.mpf(0)] * len(u), _translate_tangent(u, v, at_v, c), c)


def _translate_tangent(u: mp.Vector, v: mp.Vector, w: mp.Vector, c: Any) -> mp.Vector:
    """The derivative of v ↦ u ⊕ v along w, by a symmetric difference in high precision."""
    h = mp.STEP
    plus = _mobius_add(u, mp.combine((1, v), (h, w)), c)
    minus = _mobius_add(u, mp.combine((1, v), (-h, w)), c)
    return mp.combine((1 / (2 * h), plus), (-1 / (2 * h), minus))


def _log_prob(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    return mp.wrapped_normal_log_prob(_to_lorentz(x, c), _to_lorentz(y, c), c, STD)


def _change(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.change_curvature(x, c, NEW_C)


# --- functions with the arguments of a case -------------------------------------------------------


def _f_geodesic(x: Tensor, y: Tensor, c: Any) -> Tensor:
    return poincare.geodesic(x, y, FRACTION, c)


def _f_centroid(x: Tensor, y: Tensor, z: Tensor, c: Any) -> Tensor:
    weights = torch.tensor(WEIGHTS, dtype=x.dtype)
    return poincare.centroid(torch.stack([x, y, z], dim=-2), weights, c)


def _f_pairwise(x: Tensor, y: Tensor, c: Any) -> Tensor:
    return poincare.pairwise_dist(x[:, None], y[:, None], c[:, None]).flatten()


def _f_mobius_scalar(x: Tensor, c: Any) -> Tensor:
    return poincare.mobius_scalar(SCALE, x, c)


def _f_log_prob(x: Tensor, y: Tensor, c: Any) -> Tensor:
    return poincare.wrapped_normal_log_prob(x, y, STD, c)


def _f_change(x: Tensor, c: Any) -> Tensor:
    return poincare.change_curvature(x, c, NEW_C)


def _case(
    name: str,
    function: Any,
    reference: Any,
    inputs: Inputs,
    bound: Bound = near_pairs,
    gradient_bound: Bound | None = None,
    *,
    points: int | None = None,
    gradients: bool = True,
) -> Case:
    """A case in the ball; `points` says how many of the Lorentz inputs to convert as points."""
    return Case(
        f"poincare.{name}",
        function,
        reference,
        inputs if points is None else in_ball(inputs, points),
        bound,
        gradient_bound,
        gradients=gradients,
        max_radius=REACH,
    )


def _two_point(name: str, function: Any, reference: Any) -> list[Case]:
    kinds = {
        "far": far_pair,
        "unequal": unequal_pair,
        "from origin": origin_pair,
        "near": near_pair,
    }
    return [
        _case(f"{name} {kind}", function, reference, inputs, points=2)
        for kind, inputs in kinds.items()
    ]


CASES = [
    _case("conformal_factor", poincare.conformal_factor, _conformal_factor, one_point, points=1),
    _case("inner", poincare.inner, _inner, point_and_two_tangents, points=1),
    _case("norm", poincare.norm, _norm, point_and_tangent, points=1),
    _case("riemannian_grad", poincare.riemannian_grad, _riemannian_grad, point_and_vector),
    *_two_point("dist", poincare.dist, _dist),
    *_two_point("dist_sq", poincare.dist_sq, _dist_sq),
    _case("dist0", poincare.dist0, _dist0, one_point, points=1),
    _case("pairwise_dist far", _f_pairwise, _dist, far_pair, points=2),
    _case("pairwise_dist near", _f_pairwise, _dist, near_pair, points=2),
    _case("exp0", poincare.exp0, _exp0, one_tangent, well_conditioned),
    _case("log0", poincare.log0, _log0, one_point, points=1),
    _case("exp", poincare.exp, _exp, point_and_tangent, points=1),
    *_two_point("log", poincare.log, _log),
    _case("transport far", poincare.transport, _transport, far_pair_and_tangent, points=2),
    _case(  # transport of close points hardly depends on c: a rest of 1/NEAR_STEP
        "transport near",
        poincare.transport,
        _transport,
        near_pair_and_tangent,
        gradient_bound=near_mean,
        points=2,
    ),
    _case("transport_from0", poincare.transport_from0, _transport_from0, point_and_vector),
    _case("transport_to0", poincare.transport_to0, _transport_to0, point_and_tangent, points=1),
    _case("geodesic far", _f_geodesic, _geodesic, far_pair, points=2),
    _case("geodesic near", _f_geodesic, _geodesic, near_pair, points=2),
    _case("midpoint far", poincare.midpoint, _midpoint, far_pair, points=2),
    _case("midpoint near", poincare.midpoint, _midpoint, near_pair, points=2),
    _case(  # the mean's direction is a rest, as in the Lorentz model
        "centroid far", _f_centroid, _centroid, far_triple, gradient_bound=near_mean, points=3
    ),
    _case("centroid near", _f_centroid, _centroid, near_triple, points=3),
    _case("mobius_add", poincare.mobius_add, _mobius_add, sideways_pair, points=2),
    _case("mobius_add far", poincare.mobius_add, _mobius_add, far_pair, points=2),
    _case("mobius_add to 0", poincare.mobius_add, _mobius_add, near_opposite_pair, points=2),
    _case("mobius_scalar", _f_mobius_scalar, _mobius_scalar, one_point, points=1),
    _case("gyration", poincare.gyration, _gyration, pair_and_vector, gradients=False),
    _case("wrapped_normal_log_prob", _f_log_prob, _log_prob, far_pair, points=2),
    _case("change_curvature", _f_change, _change, one_point, well_conditioned, points=1),
    _case("to_lorentz", poincare.to_lorentz, _to_lorentz, one_point, points=1),
    _case("from_lorentz", poincare.from_lorentz, _from_lorentz, one_point, well_conditioned),
    _case(
        "to_lorentz_tangent",
        poincare.to_lorentz_tangent,
        _to_lorentz_tangent,
        point_and_tangent,
        points=1,
    ),
    _case(
        "from_lorentz_tangent",
        poincare.from_lorentz_tangent,
        _from_lorentz_tangent,
        point_and_tangent,
    ),
]
