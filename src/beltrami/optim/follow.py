"""Points on a manifold whose curvature is learned: what is done when c has changed.

Points keep their coordinates. Where the coordinates themselves are bound by c (the ball's border, a
sphere's radius), points are projected along their radius. In the ball the length that coordinates
of a moment stand for goes to 0 or grows without bound as 1 − c|x|² does, and a small change of c
changes that thousandfold near the border; there moments keep their length, and their direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from beltrami.geometry import Manifold, PoincareBall, Product, Sphere, Stereographic
from beltrami.geometry.chord import dot
from beltrami.kernels.launch.dtypes import upcast
from beltrami.kernels.rows.geodesic_rows import MODELS, Products
from beltrami.optim.groups import Group, curvature_parameters
from beltrami.optim.points import Factor, count_factors, factors_of, inner_dims
from beltrami.optim.rows import Rows, move_rows, numbers_dtype
from beltrami.optim.sharded import row_numbers_like

# Manifolds whose coordinates must fulfil an equation or an inequality that contains c.
_BOUND_BY_CURVATURE = (PoincareBall, Sphere, Stereographic)
# Those of them in which the length of a vector depends on c.
_SCALED_BY_CURVATURE = (PoincareBall, Stereographic)


def follows(group: Group) -> bool:
    """Whether the points of a group must be looked after when a curvature changes."""
    manifold: Manifold = group["manifold"]
    return _bound(manifold) and any(raw.requires_grad for raw in curvature_parameters(manifold))


def lengths_of_moments(group: Group, states: Mapping[Tensor, Mapping[str, Any]]) -> list[Any]:
    """Squared lengths of all moments of a group, one a row and factor; None without a moment."""
    all_lengths: list[Any] = []
    for parameter in group["params"]:
        moment, manifold = _moment(states, parameter), group["manifold"]
        if moment is None:
            all_lengths.append(None)
            continue
        factors = factors_of(manifold, parameter.shape[-1])
        lengths = row_numbers_like(parameter, count_factors(manifold), numbers_dtype(parameter))

        def measure(rows: Rows, factors: list[Factor] = factors) -> None:
            for factor in factors:
                if isinstance(factor.manifold, _SCALED_BY_CURVATURE):
                    factor.numbers(rows.numbers[0]).copy_(_length_sq(factor, rows))

        inner = inner_dims(manifold)
        move_rows(parameter, parameter, (moment,), (lengths,), measure, inner=inner)
        all_lengths.append(lengths)
    return all_lengths


def follow_curvature(
    group: Group, states: Mapping[Tensor, Mapping[str, Any]], lengths: list[Any]
) -> None:
    """Put points back onto their manifold, and give moments the lengths they had before."""
    for parameter, length in zip(group["params"], lengths, strict=True):
        factors = factors_of(group["manifold"], parameter.shape[-1])

        def put_back(rows: Rows, factors: list[Factor] = factors) -> None:
            for factor in factors:
                x = factor.rows(rows.x)
                x.copy_(factor.manifold.project(x))
                if rows.moments and isinstance(factor.manifold, _SCALED_BY_CURVATURE):
                    old, new = factor.numbers(rows.numbers[0]), _length_sq(factor, rows)
                    moment = factor.rows(rows.moments[0])
                    ratio = torch.where(new > 0, old / new, 1.0).sqrt()
                    moment.copy_(torch.where(torch.isfinite(ratio), ratio * moment, moment))

        moment = _moment(states, parameter)
        moments = () if moment is None else (moment,)
        numbers = () if length is None else (length,)
        inner = inner_dims(group["manifold"])
        move_rows(parameter, parameter, moments, numbers, put_back, inner=inner)


def _moment(states: Mapping[Tensor, Mapping[str, Any]], parameter: Tensor) -> Tensor | None:
    state = states.get(parameter, {})
    moment: Tensor | None = state.get("exp_avg", state.get("momentum_buffer"))
    return moment


def _length_sq(factor: Factor, rows: Rows) -> Tensor:
    """Squared metric length of a moment: a covector with kernels, a tangent vector without."""
    x, moment = upcast(factor.rows(rows.x)), upcast(factor.rows(rows.moments[0]))
    if factor.model is None:
        return factor.manifold.inner(x, moment, moment, keepdim=True)
    of = Products(dot(x, x), dot(x, moment), dot(moment, moment))
    return MODELS[factor.model].size_sq(of, factor.c)


def _bound(manifold: Manifold) -> bool:
    if isinstance(manifold, Product):
        return any(_bound(block.manifold) for block in manifold.factors)
    return isinstance(manifold, _BOUND_BY_CURVATURE)
