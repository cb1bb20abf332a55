"""The coefficients of a step against the maps of the geometry they stand for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.geometry import Manifold, lorentz
from beltrami.geometry.checks import Scalar
from beltrami.geometry.chord import dot
from beltrami.kernels.rows.geodesic_rows import MODELS, RowGeometry
from tests.kernels.row_states import (
    CURVATURES,
    MANIFOLDS,
    covector,
    products,
    random_covectors,
    relative,
    table,
)

EXACT = 1e-12
KEEP = 0.7


class Problem:
    """Points of a model, and two covectors at each."""

    def __init__(self, model: str, c: Scalar) -> None:
        self.c = c
        self.rows: RowGeometry = MODELS[model]
        self.manifold: Manifold = MANIFOLDS[model](c)
        self.x = table(self.manifold, 40, 3, 5)
        self.p, self.q = (random_covectors(self.manifold, self.x) for _ in range(2))
        self.alpha = 3 * torch.rand(40, 3, 1, dtype=torch.float64)

    def vector(self, p: Tensor) -> Tensor:
        return self.manifold.riemannian_grad(self.x, p)

    def carried(self, y: Tensor, p: Tensor) -> Tensor:
        """The covector p at y, by parallel transport."""
        return covector(self.manifold, y, self.manifold.transport(self.x, y, self.vector(p)))


@pytest.fixture(params=CURVATURES)
def c(request: pytest.FixtureRequest) -> Scalar:
    return CURVATURES[request.param]


@pytest.fixture(params=MODELS)
def problem(request: pytest.FixtureRequest, c: Scalar) -> Problem:
    return Problem(request.param, c)


def test_size_is_the_metric_norm(problem: Problem) -> None:
    vector = problem.vector(problem.p)
    expected = problem.manifold.inner(problem.x, vector, vector, keepdim=True)
    got = problem.rows.size_sq(products(problem.x, problem.p), problem.c)
    torch.testing.assert_close(got, expected, rtol=EXACT, atol=0)


def test_pull_is_a_gradient(problem: Problem) -> None:
    x = problem.x.clone().requires_grad_()
    (problem.manifold.dist0(x) ** 2 / 2).sum().backward()
    assert x.grad is not None
    assert relative(problem.rows.pull(dot(x, x).detach(), problem.c) * problem.x, x.grad) < EXACT


def test_advance_is_exp_and_transport(problem: Problem) -> None:
    x, p = problem.x, problem.p
    a, b, d, e = problem.rows.advance(products(x, p), problem.alpha, problem.c)
    y = problem.manifold.exp(x, -problem.alpha * problem.vector(p))
    assert relative(a * x + b * p, y) < EXACT
    assert relative(d * x + e * p, problem.carried(y, p)) < 100 * EXACT
    if problem.rows.straight:
        assert not d.any()


def test_carry_is_exp_and_transport_of_another(problem: Problem) -> None:
    x, p, q = problem.x, problem.p, problem.q
    of = products(x, q)
    a, b, d, e, f = problem.rows.carry(of, dot(x, p), dot(q, p), problem.alpha, problem.c)
    y = problem.manifold.exp(x, -problem.alpha * problem.vector(q))
    assert relative(a * x + b * q, y) < EXACT
    assert relative(d * x + e * p + f * q, problem.carried(y, p)) < 100 * EXACT


def test_shrink_goes_along_the_radius(problem: Problem) -> None:
    x, p = problem.x, problem.p
    a, b, d, e = problem.rows.shrink(products(x, p), KEEP, problem.c)
    y = problem.manifold.exp0(KEEP * problem.manifold.log0(x))
    assert relative(a * x + b * p, y) < EXACT
    assert relative(d * x + e * p, problem.carried(y, p)) < 100 * EXACT


def test_maps_of_the_plane_compose(problem: Problem) -> None:
    x, p = problem.x, problem.p
    of = products(x, p)
    first = problem.rows.shrink(of, KEEP, problem.c)
    y, q = first.a * x + first.b * p, first.d * x + first.e * p
    for got, expected in zip(first.products(of), products(y, q), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    second = problem.rows.advance(products(y, q), problem.alpha, problem.c)
    both = second.after(first)
    assert relative(both.a * x + both.b * p, second.a * y + second.b * q) < EXACT
    assert relative(both.d * x + both.e * p, second.d * y + second.e * q) < EXACT


@pytest.mark.parametrize("model", MODELS)
def test_the_origin_and_a_covector_of_zero(model: str) -> None:
    rows, zero = MODELS[model], torch.zeros(4, 3, dtype=torch.float64)
    p = torch.randn(4, 3, dtype=torch.float64)
    for x, q in ((zero, zero), (zero, p)):
        for plane in (
            rows.advance(products(x, q), 0.5, 1.0),
            rows.shrink(products(x, q), KEEP, 1.0),
        ):
            assert all(torch.isfinite(n).all() for n in plane)
    manifold = MANIFOLDS[model](1.0)
    x = table(manifold, 4, 3)
    a, _, _, e = rows.advance(products(x, zero), 0.5, 1.0)
    torch.testing.assert_close(a, torch.ones_like(a), rtol=1e-14, atol=0)
    torch.testing.assert_close(e, torch.ones_like(e), rtol=1e-14, atol=0)


@pytest.mark.parametrize("direction", ["in", "out", "any"])
def test_float32_far_out(direction: str) -> None:
    """At radius 30 coordinates are 5e12, and a step of length 1 keeps all but its last digits."""
    unit = torch.nn.functional.normalize(torch.randn(50, 6, dtype=torch.float64), dim=-1)
    x = lorentz.exp0(30 * unit, 1.0).float()
    p = {"in": x, "out": -x, "any": torch.randn_like(x) * x.norm()}[direction] / dot(x, x)
    p = p / MODELS["lorentz"].size_sq(products(x, p), 1.0).sqrt()
    wide_x, wide_p = x.double(), p.double()
    got = MODELS["lorentz"].advance(products(x, p), 1.0, 1.0)
    expected = MODELS["lorentz"].advance(products(wide_x, wide_p), 1.0, 1.0)
    y = expected.a * wide_x + expected.b * wide_p
    assert relative(got.a * x + got.b * p, y) < 1e-5
    assert relative(got.e * p, expected.e * wide_p) < 1e-5
    travelled = lorentz.dist(wide_x, y, 1.0)
    torch.testing.assert_close(travelled, torch.ones_like(travelled), rtol=1e-4, atol=0)


def test_a_step_stays_in_the_ball() -> None:
    """Even one of length 50, whose end float32 cannot tell from the border."""
    manifold = MANIFOLDS["poincare"](1.0)
    x = table(manifold, 20, 3).float()
    p = -x / MODELS["poincare"].size_sq(products(x, x), 1.0).sqrt()  # straight out
    a, b, _, _ = MODELS["poincare"].advance(products(x, p), 50.0, 1.0)
    y = a * x + b * p
    assert bool((dot(y.double(), y.double()) < 1).all())
    assert float(manifold.dist0(y).min()) > 15
