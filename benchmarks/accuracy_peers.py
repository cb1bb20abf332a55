"""Ours beside geoopt and HypLL: the same inputs, the same reference, curvature −1, 16 dimensions.

Every implementation gets the same rounded points, and the reference is computed from them, so that
errors are those of the algorithm. Lorentz gradients of geoopt are compared in its own ambient
coordinates (t, x), which spares it the cancellation of a change of coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mpmath
import torch
from torch import Tensor

from beltrami.geometry import lorentz, poincare
from benchmarks import peers
from tests.accuracy import grid as g
from tests.accuracy import mp

DIM, SAMPLES = 16, 24
RADII = (1e-3, 0.1, 1.0, 5.0, 10.0, 20.0, 40.0)
# Beyond these √c·r the ball has no room for the point in the dtype.
BALL_RADIUS = {torch.float32: 15.0, torch.float64: 35.0}


@dataclass(frozen=True)
class PeerRow:
    """Largest relative error at each radius; None where the dtype cannot hold the point."""

    model: str
    function: str
    dtype: str
    library: str
    errors: tuple[float | None, ...]


@dataclass(frozen=True)
class Comparison:
    """One function of one model: its inputs, its reference, its condition."""

    model: str
    label: str
    name: str
    inputs: g.Inputs
    reference: Callable[..., Any]
    bound: g.Bound = g.well_conditioned
    gradient: bool = False


# --- the ball: inputs and textbook formulas ------------------------------------------------------


def to_ball(x: Tensor) -> Tensor:
    return x / (1 + (1 + (x * x).sum(-1, keepdim=True)).sqrt())


def _ball(inputs: g.Inputs) -> g.Inputs:
    return lambda cell, n, gen: [to_ball(t) for t in inputs(cell, n, gen)]


def _ball_and_tangent(pair: g.Inputs) -> g.Inputs:
    def draw(cell: g.Cell, n: int, gen: torch.Generator) -> list[Tensor]:
        x, y = (to_ball(t) for t in pair(cell, n, gen))
        return [x, y, g.directions(n, cell.dim, gen) * (1 - (x * x).sum(-1, keepdim=True)) / 2]

    return draw


def _mp_mobius_add(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    xy, x2, y2 = mp.dot(x, y), mp.dot(x, x), mp.dot(y, y)
    d = 1 + 2 * c * xy + c * c * x2 * y2
    return mp.combine(((1 + 2 * c * xy + c * y2) / d, x), ((1 - c * x2) / d, y))


def _mp_difference(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    return _mp_mobius_add(mp.combine((-1, x)), y, c)


def _mp_dist(x: mp.Vector, y: mp.Vector, c: Any) -> Any:
    k = mpmath.sqrt(c)
    return 2 / k * mpmath.atanh(k * mp.size(_mp_difference(x, y, c)))


def _mp_exp0(v: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((mp.ratio(mpmath.tanh, mpmath.sqrt(c) * mp.size(v) / 2) / 2, v))


def _mp_log0(x: mp.Vector, c: Any) -> mp.Vector:
    return mp.combine((2 * mp.ratio(mpmath.atanh, mpmath.sqrt(c) * mp.size(x)), x))


def _mp_log(x: mp.Vector, y: mp.Vector, c: Any) -> mp.Vector:
    w = _mp_difference(x, y, c)
    gain = (1 - c * mp.dot(x, x)) * mp.ratio(mpmath.atanh, mpmath.sqrt(c) * mp.size(w))
    return mp.combine((gain, w))


def _mp_transport(x: mp.Vector, y: mp.Vector, v: mp.Vector, c: Any) -> mp.Vector:
    """(λ_x/λ_y)·gyr[y, −x]v, with gyr[a, b]v = ⊖(a ⊕ b) ⊕ (a ⊕ (b ⊕ v)) for small v, by scaling."""
    small = mpmath.mpf(10) ** -60
    a, b, w = y, mp.combine((-1, x)), mp.combine((small, v))
    left = mp.combine((-1, _mp_mobius_add(a, b, c)))
    turned = _mp_mobius_add(left, _mp_mobius_add(a, _mp_mobius_add(b, w, c), c), c)
    gain = (1 - c * mp.dot(y, y)) / (1 - c * mp.dot(x, x)) / small
    return mp.combine((gain, turned))


def _comparisons() -> Iterator[Comparison]:
    far, near = g.far_pair, g.near_pair
    one, both = g.well_conditioned, g.near_pairs
    yield Comparison("lorentz", "dist, far", "dist", far, mp.dist)
    yield Comparison("lorentz", "dist, near", "dist", near, mp.dist, both)
    yield Comparison("lorentz", "dist(o, x)", "dist", g.origin_pair, mp.dist)
    yield Comparison("lorentz", "exp0", "exp0", g.one_tangent, mp.exp0, g.exp_type)
    yield Comparison("lorentz", "log0", "log0", g.one_point, mp.log0)
    yield Comparison("lorentz", "log, far", "log", far, mp.log)
    yield Comparison("lorentz", "log, near", "log", near, mp.log, both)
    yield Comparison(
        "lorentz", "transport, far", "transport", g.far_pair_and_tangent, mp.transport, both
    )
    yield Comparison(
        "lorentz", "transport, near", "transport", g.near_pair_and_tangent, mp.transport, both
    )
    yield Comparison("lorentz", "∇dist, far", "dist", far, mp.dist, one, gradient=True)
    yield Comparison("lorentz", "∇dist, near", "dist", near, mp.dist, both, gradient=True)

    far_b, near_b = _ball(far), _ball(near)
    yield Comparison("poincare", "dist, far", "dist", far_b, _mp_dist, both)
    yield Comparison("poincare", "dist, near", "dist", near_b, _mp_dist, both)
    yield Comparison("poincare", "exp0", "exp0", g.one_tangent, _mp_exp0, one)
    yield Comparison("poincare", "log0", "log0", _ball(g.one_point), _mp_log0, both)
    yield Comparison("poincare", "log, far", "log", far_b, _mp_log, both)
    yield Comparison("poincare", "log, near", "log", near_b, _mp_log, both)
    for label, pair in (("far", far), ("near", near)):
        draw = _ball_and_tangent(pair)
        yield Comparison(
            "poincare", f"transport, {label}", "transport", draw, _mp_transport, both
        )  # fmt: skip
    yield Comparison("poincare", "mobius_add", "mobius_add", far_b, _mp_mobius_add, both)
    yield Comparison("poincare", "∇dist, far", "dist", far_b, _mp_dist, both, gradient=True)
    yield Comparison("poincare", "∇dist, near", "dist", near_b, _mp_dist, both, gradient=True)


COMPARISONS = list(_comparisons())


# --- measuring -----------------------------------------------------------------------------------


def _error(what: Comparison, function: Callable[..., Tensor], cell: g.Cell) -> float:
    """Largest error over the samples; inf for NaN. The name seeds the draw: one for all."""
    case = g.Case(
        f"{what.model} {what.label}",
        lambda *args: function(*args[:-1]),
        what.reference,
        what.inputs,
        gradients=what.gradient,
    )
    errors = g.measure(case, cell, SAMPLES)
    return errors.gradient if what.gradient else errors.value


def _geoopt_gradient_error(what: Comparison, cell: g.Cell) -> float:
    """Error of geoopt's ∂d/∂(t, x), which for d = acosh(t_x·t_y − x·y) is (t_y, −y)/sinh d."""
    manifold = peers.geoopt_lorentz(cell.dtype)
    generator = cell.generator(f"{what.model} {what.label}")
    x, y = (t.to(cell.dtype) for t in what.inputs(cell, SAMPLES, generator))
    both = [peers.with_time(t).requires_grad_() for t in (x, y)]
    grads = torch.autograd.grad(manifold.dist(*both).sum(), both)
    worst, one = 0.0, mpmath.mpf(1)
    for i in range(SAMPLES):
        px, py = mp.vector(x[i].tolist()), mp.vector(y[i].tolist())
        sinh = mpmath.sinh(mp.dist(px, py, one))
        for other, grad in ((py, grads[0][i]), (px, grads[1][i])):
            if not bool(torch.isfinite(grad).all()):
                return math.inf
            truth = mp.combine((1 / sinh, [mp.time(other, one), *(-v for v in other)]))
            error = mp.combine((1, mp.vector(grad.tolist())), (-1, truth))
            worst = max(worst, float(mp.size(error) / mp.size(truth)))
    return worst


def _cell(what: Comparison, dtype: torch.dtype, radius: float) -> g.Cell | None:
    if what.model == "poincare" and radius > BALL_RADIUS[dtype]:
        return None
    return g.Cell(dtype, radius, 1.0, DIM)


def measure(what: Comparison, dtype: torch.dtype) -> list[PeerRow]:
    """Rows of ours and of every peer that has the function, and the contract's bound last."""
    cells = [_cell(what, dtype, r) for r in RADII]
    name = str(dtype).removeprefix("torch.")
    ours = getattr(lorentz if what.model == "lorentz" else poincare, what.name)
    libraries: list[tuple[str, Callable[[g.Cell], float]]] = [
        ("beltrami", lambda cell: _error(what, ours, cell))
    ]
    found = peers.lorentz_peers(dtype) if what.model == "lorentz" else peers.ball_peers(dtype)
    for peer in found:
        if what.model == "lorentz" and what.gradient:
            libraries.append((peer.name, lambda cell: _geoopt_gradient_error(what, cell)))
        elif what.name in peer.functions:
            function = peer.functions[what.name]
            libraries.append((peer.name, lambda cell, f=function: _error(what, f, cell)))
    libraries.append(("bound", lambda cell: what.bound(cell) * cell.eps))
    rows = []
    for library, error in libraries:
        errors = tuple(error(cell) if cell else None for cell in cells)
        rows.append(PeerRow(what.model, what.label, name, library, errors))
    return rows
