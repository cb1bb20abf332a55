"""The Lorentz functions on the accuracy grid."""

from __future__ import annotations

from typing import Any

import mpmath
import torch
from torch import Tensor

from beltrami.geometry import lorentz
from tests.accuracy import mp
from tests.accuracy.grid import (
    Case,
    exp_type,
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
    point_and_covector,
    point_and_step_across,
    point_and_tangent,
    point_and_two_tangents,
    sideways_pair,
    unequal_pair,
    well_conditioned,
)

FRACTION = 0.25
STD = 0.5
NEW_C = 0.5


def _geodesic(x: Tensor, y: Tensor, c: Any) -> Tensor:
    return lorentz.geodesic(x, y, FRACTION, c)


def _mp_geodesic(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    return mp.geodesic(x, y, c, mpmath.mpf(FRACTION))


WEIGHTS = (0.5, 2.0, 1.0)


def _centroid(x: Tensor, y: Tensor, z: Tensor, c: Any) -> Tensor:
    weights = torch.tensor(WEIGHTS, dtype=x.dtype)
    return lorentz.centroid(torch.stack([x, y, z], dim=-2), weights, c)


def _mp_centroid(x: mp.Vector, y: mp.Vector, z: mp.Vector, c: Any) -> mp.Vector:
    return mp.centroid([x, y, z], WEIGHTS, c)


def _frechet_pair(x: Tensor, y: Tensor, c: Any) -> Tensor:
    """The Fréchet mean of two points is a point of their geodesic."""
    weights = torch.tensor([1 - FRACTION, FRACTION], dtype=x.dtype)
    return lorentz.frechet_mean(torch.stack([x, y], dim=-2), weights, c)


def _pairwise(x: Tensor, y: Tensor, c: Any) -> Tensor:
    return lorentz.pairwise_dist(x[:, None], y[:, None], c[:, None]).flatten()


def _log_prob(x: Tensor, y: Tensor, c: Any) -> Tensor:
    return lorentz.wrapped_normal_log_prob(x, y, STD, c)


def _mp_log_prob(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    return mp.wrapped_normal_log_prob(x, y, c, STD)


def _change(x: Tensor, c: Any) -> Tensor:
    return lorentz.change_curvature(x, c, NEW_C)


def _mp_change(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.change_curvature(x, c, NEW_C)


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
    Case(
        "norm",
        lorentz.norm,
        mp.norm,
        point_and_tangent,
        near_pairs,
        max_radius={torch.float32: 10.0, torch.float64: 20.0},
    ),
    # Far out only vectors across the radius can be told from noise, and their norm does not depend
    # on x: there is no gradient to compare.
    Case("norm across", lorentz.norm, mp.norm, point_and_step_across, near_pairs, gradients=False),
    Case("geodesic far", _geodesic, _mp_geodesic, far_pair, exp_type),
    Case("geodesic near", _geodesic, _mp_geodesic, near_pair, near_pairs),
    Case("midpoint far", lorentz.midpoint, mp.midpoint, far_pair),
    Case("midpoint near", lorentz.midpoint, mp.midpoint, near_pair, near_pairs),
    Case("boost", lorentz.boost, mp.boost, sideways_pair, exp_type),
    Case("boost to origin", lorentz.boost, mp.boost, near_opposite_pair, near_pairs),
    Case("centroid far", _centroid, _mp_centroid, far_triple, well_conditioned, near_pairs),
    Case("centroid near", _centroid, _mp_centroid, near_triple, near_pairs, near_mean),
    Case(
        "frechet_mean of two",
        _frechet_pair,
        _mp_geodesic,
        far_pair,
        near_pairs,
        near_mean,
        max_radius={torch.float32: 40.0, torch.float64: 20.0},
        max_dim=64,
    ),
    Case("pairwise_dist far", _pairwise, mp.dist, far_pair),
    Case("pairwise_dist near", _pairwise, mp.dist, near_pair, near_pairs),
    Case("wrapped_normal_log_prob", _log_prob, _mp_log_prob, far_pair),
    Case("change_curvature", _change, _mp_change, one_point),
    Case("riemannian_grad", lorentz.riemannian_grad, mp.riemannian_grad, point_and_covector),
]
