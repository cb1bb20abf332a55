"""The Lorentz functions on the accuracy grid."""

from __future__ import annotations

from typing import Any

import mpmath
from torch import Tensor

from beltrami.geometry import lorentz
from tests.accuracy import mp
from tests.accuracy.grid import (
    Case,
    exp_type,
    far_pair,
    far_pair_and_tangent,
    near_opposite_pair,
    near_pair,
    near_pair_and_tangent,
    near_pairs,
    one_point,
    one_tangent,
    origin_pair,
    point_and_covector,
    point_and_step_across,
    point_and_tangent,
    point_and_two_tangents,
    sideways_pair,
    unequal_pair,
)

FRACTION = 0.25


def _geodesic(x: Tensor, y: Tensor, c: Any) -> Tensor:
    return lorentz.geodesic(x, y, FRACTION, c)


def _mp_geodesic(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    return mp.geodesic(x, y, c, mpmath.mpf(FRACTION))


def _two_point(name: str) -> list[Case]:
    function, reference = getattr(lorentz, name), getattr(mp, name)
    return [
        Case(f"{name} far", function, reference, far_pair, strict_c=True),
        Case(f"{name} unequal", function, reference, unequal_pair, strict_c=True),
        Case(f"{name} from origin", function, reference, origin_pair, strict_c=True),
        Case(f"{name} near", function, reference, near_pair, near_pairs),
    ]


CASES = [
    Case("time", lorentz.time, mp.time, one_point, strict_c=True),
    Case("excess_time", lorentz.excess_time, mp.excess_time, one_point, strict_c=True),
    Case("dist0", lorentz.dist0, mp.dist0, one_point, strict_c=True),
    Case("exp0", lorentz.exp0, mp.exp0, one_tangent, exp_type, strict_c=True),
    Case("log0", lorentz.log0, mp.log0, one_point, strict_c=True),
    *_two_point("chord_sq"),
    *_two_point("dist"),
    *_two_point("dist_sq"),
    Case("minkowski far", lorentz.minkowski, mp.minkowski, far_pair),
    Case("minkowski near", lorentz.minkowski, mp.minkowski, near_pair, near_pairs),
    Case("log far", lorentz.log, mp.log, far_pair),
    Case("log near", lorentz.log, mp.log, near_pair, near_pairs),
    Case("exp across", lorentz.exp, mp.exp, point_and_step_across, exp_type, near_pairs),
    Case("exp", lorentz.exp, mp.exp, point_and_tangent, near_pairs),
    Case("transport far", lorentz.transport, mp.transport, far_pair_and_tangent, near_pairs),
    Case("transport near", lorentz.transport, mp.transport, near_pair_and_tangent, near_pairs),
    Case(
        "transport_from0",
        lorentz.transport_from0,
        mp.transport_from0,
        point_and_covector,
        near_pairs,
    ),
    Case("transport_to0", lorentz.transport_to0, mp.transport_to0, point_and_tangent, near_pairs),
    Case("inner", lorentz.inner, mp.inner, point_and_two_tangents, near_pairs),
    Case("norm", lorentz.norm, mp.norm, point_and_tangent, near_pairs),
    Case("geodesic far", _geodesic, _mp_geodesic, far_pair, exp_type),
    Case("geodesic near", _geodesic, _mp_geodesic, near_pair, near_pairs),
    Case("midpoint far", lorentz.midpoint, mp.midpoint, far_pair),
    Case("midpoint near", lorentz.midpoint, mp.midpoint, near_pair, near_pairs),
    Case("boost", lorentz.boost, mp.boost, sideways_pair, exp_type),
    Case("boost to origin", lorentz.boost, mp.boost, near_opposite_pair, near_pairs),
    Case("riemannian_grad", lorentz.riemannian_grad, mp.riemannian_grad, point_and_covector),
]
