"""The Klein model on the accuracy grid: Lorentz inputs carried into it, and textbook formulas.

A coordinate rounded to eps moves a Klein point by eps·cosh²(√c·r), the bound of most functions.
"""

from __future__ import annotations

import math
from typing import Any

import mpmath
import torch
from torch import Tensor

from beltrami.geometry import klein
from tests.accuracy import mp
from tests.accuracy.grid import (
    NEAR_STEP,
    Bound,
    Case,
    Cell,
    Inputs,
    far_pair,
    near_pair,
    one_point,
    one_tangent,
    unequal_pair,
    well_conditioned,
)

# Beyond these the model has no room for a point.
REACH = {torch.float32: 7.0, torch.float64: 17.0}
FRACTION = 0.25


def at_border(cell: Cell) -> float:
    """What rounding the coordinates of a point costs any formula."""
    return 16.0 * math.cosh(cell.radius) ** 2


def at_border_near(cell: Cell) -> float:
    """What it costs the distance to a point NEAR_STEP of the radius away."""
    return at_border(cell) / NEAR_STEP


def in_klein(inputs: Inputs) -> Inputs:
    """Lorentz points carried into the Klein model."""

    def draw(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
        return [klein.from_lorentz(x, cell.c) for x in inputs(cell, n, g)]

    return draw


def _to_lorentz(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((1 / mpmath.sqrt(1 - c * mp.dot(x, x)), x))


def _from_lorentz(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((1 / mpmath.sqrt(1 + c * mp.dot(x, x)), x))


def _dist(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    return mp.dist(_to_lorentz(x, c), _to_lorentz(y, c), c)


def _dist0(x: mp.Vector, c: Any) -> Any:
    return mp.dist0(_to_lorentz(x, c), c)


def _exp0(v: mp.Vector, c: Any) -> mp.Vector:
    return _from_lorentz(mp.exp0(v, c), c)


def _log0(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.log0(_to_lorentz(x, c), c)


def _geodesic(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    return _from_lorentz(mp.geodesic(_to_lorentz(x, c), _to_lorentz(y, c), c, FRACTION), c)


def _to_poincare(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((1 / (1 + mpmath.sqrt(1 - c * mp.dot(x, x))), x))


def _f_geodesic(x: Tensor, y: Tensor, c: Any) -> Tensor:
    return klein.geodesic(x, y, FRACTION, c)


def _case(
    name: str,
    function: Any,
    reference: Any,
    inputs: Inputs,
    bound: Bound = at_border,
) -> Case:
    return Case(f"klein.{name}", function, reference, inputs, bound, max_radius=REACH, max_dim=3)


CASES = [
    _case("dist far", klein.dist, _dist, in_klein(far_pair)),
    _case("dist unequal", klein.dist, _dist, in_klein(unequal_pair)),
    _case("dist near", klein.dist, _dist, in_klein(near_pair), at_border_near),
    _case("dist0", klein.dist0, _dist0, in_klein(one_point)),
    _case("exp0", klein.exp0, _exp0, one_tangent, well_conditioned),
    _case("log0", klein.log0, _log0, in_klein(one_point)),
    _case("geodesic", _f_geodesic, _geodesic, in_klein(far_pair)),
    _case("to_lorentz", klein.to_lorentz, _to_lorentz, in_klein(one_point)),
    _case("from_lorentz", klein.from_lorentz, _from_lorentz, one_point, well_conditioned),
    _case("to_poincare", klein.to_poincare, _to_poincare, in_klein(one_point)),
]
