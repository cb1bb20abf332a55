"""Products on the accuracy grid: a Lorentz and a flat factor side by side, in the factors' sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import torch
from torch import Tensor

from beltrami.geometry import Euclidean, Lorentz, Product
from tests.accuracy import mp
from tests.accuracy.grid import (
    Case,
    Cell,
    Inputs,
    directions,
    exp_type,
    far_pair,
    near_pair,
    near_pairs,
    one_point,
    one_tangent,
    well_conditioned,
)


def beside_flat(inputs: Inputs) -> Inputs:
    """Lorentz rows, and as many flat coordinates beside each, of size radius/√c."""

    def draw(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
        size = cell.radius / cell.c**0.5
        return [
            torch.cat([x, size * (i + 1) * directions(n, cell.dim, g)], -1)
            for i, x in enumerate(inputs(cell, n, g))
        ]

    return draw


def _by_row(method: str, p: float = 2.0) -> Callable[..., Tensor]:
    """A method of the product, row by row: a product has one curvature a factor."""

    def call(*args: Tensor) -> Tensor:
        rows = []
        for *points, c in zip(*args, strict=True):
            half = points[0].shape[-1] // 2
            product = Product([(Lorentz(c), half), (Euclidean(), half)], p=p)
            rows.append(getattr(product, method)(*points))
        return torch.stack(rows)

    return call


def _halves(x: mp.Vector) -> tuple[mp.Vector, mp.Vector]:
    half = len(x) // 2
    return x[:half], x[half:]


def _distances(x: mp.Vector, y: mp.Vector, c: Any) -> tuple[Any, Any]:
    (a, u), (b, v) = _halves(x), _halves(y)
    return mp.dist(a, b, c), mp.size(mp.combine((1, u), (-1, v)))


def _dist(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    return mp.size(list(_distances(x, y, c)))


def _dist_l1(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    return mpmath.fsum(_distances(x, y, c))


def _exp0(v: mp.Vector, c: Any) -> mp.Vector:
    a, u = _halves(v)
    return [*mp.exp0(a, c), *u]


def _log0(x: mp.Vector, c: Any) -> mp.Vector:
    a, u = _halves(x)
    return [*mp.log0(a, c), *u]


def _case(name: str, function: Any, reference: Any, inputs: Inputs, bound: Any) -> Case:
    return Case(f"product.{name}", function, reference, beside_flat(inputs), bound, max_dim=3)


CASES = [
    _case("dist far", _by_row("dist"), _dist, far_pair, well_conditioned),
    _case("dist near", _by_row("dist"), _dist, near_pair, near_pairs),
    _case("dist l1", _by_row("dist", 1.0), _dist_l1, far_pair, well_conditioned),
    _case("exp0", _by_row("exp0"), _exp0, one_tangent, exp_type),
    _case("log0", _by_row("log0"), _log0, one_point, well_conditioned),
]
