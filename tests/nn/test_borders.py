"""Lift and Lower: distances mean what they say, and one undoes the other."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from beltrami.geometry import (
    Curvature,
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Sphere,
    poincare,
)
from beltrami.nn.borders import Lift, Lower, ball_of_scores, lift0
from tests.kernels.checks import saved_bytes

MANIFOLDS = [Lorentz(0.7), PoincareBall(0.7), Euclidean()]
PAIRS = [(m, "exp0", "log0") for m in MANIFOLDS]
PAIRS += [(Lorentz(0.7), "space", "space"), (Euclidean(), "space", "space")]


@pytest.mark.parametrize(("manifold", "up", "down"), PAIRS)
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_lower_undoes_lift(manifold: Manifold, up: str, down: str, scale: float) -> None:
    v = torch.randn(3, 5, 8, dtype=torch.float64)
    lift = Lift(8, manifold=manifold, form=up, scale=scale)
    lower = Lower(8, manifold=manifold, form=down, scale=scale)
    assert (lift.manifold, lift.manifold_out) == (Euclidean(), manifold)
    assert (lower.manifold, lower.manifold_out) == (manifold, Euclidean())
    torch.testing.assert_close(lower(lift(v)), v)


@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_exp0_makes_norms_distances(manifold: Manifold) -> None:
    v = torch.randn(6, 8, dtype=torch.float64)
    x = Lift(8, manifold=manifold, scale=0.5)(v)
    torch.testing.assert_close(manifold.dist0(x), 0.5 * v.norm(dim=-1))


@pytest.mark.parametrize("manifold", [Lorentz(0.7), Euclidean()])
def test_space_reads_coordinates(manifold: Manifold) -> None:
    v = torch.randn(6, 8)
    assert torch.equal(Lift(8, manifold=manifold, form="space", scale=0.5)(v), 0.5 * v)


def test_flat_limit() -> None:
    v = torch.randn(6, 8, dtype=torch.float64)
    errors = [(Lift(8, manifold=Lorentz(c))(v) - v).abs().max() for c in (1e-2, 1e-4, 1e-6)]
    assert errors[1] < 0.02 * errors[0]
    assert errors[2] < 0.02 * errors[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_ball_points_stay_inside_however_long_the_features(dtype: torch.dtype) -> None:
    ball = PoincareBall(2.0)
    v = (torch.randn(40, 8) * torch.logspace(-3, 6, 40)[:, None]).to(dtype).requires_grad_()
    x = Lift(8, manifold=ball)(v)
    assert x.dtype == dtype
    distance = ball.dist0(x)
    assert distance.isfinite().all()
    near = v.double().norm(dim=-1) < 2
    torch.testing.assert_close(
        distance[near].double(), v[near].double().norm(dim=-1), rtol=0.05, atol=1e-5
    )
    x.float().sum().backward()
    assert v.grad is not None
    assert v.grad.isfinite().all()


def test_lift0_computes_wide_and_rounds_once() -> None:
    ball = PoincareBall(1.0)
    v = torch.full((2, 4), 0.3, dtype=torch.bfloat16)
    assert lift0(v, ball, torch.float32).dtype == torch.float32
    torch.testing.assert_close(lift0(v, ball, torch.float32), ball.exp0(v.float()))


@pytest.mark.parametrize("c", [0.5, 3.0])
def test_ball_of_scores(c: float) -> None:
    """Against the formula while it lasts, on both sides of the switch, and beyond."""
    ball = PoincareBall(c)
    w = torch.randn(60, 6, dtype=torch.float64)
    w *= torch.logspace(-8, 1.48, 60, dtype=torch.float64)[:, None] / w.abs().amax(-1, keepdim=True)
    expected = poincare.from_lorentz(torch.sinh(w) / c**0.5, c)
    out = ball_of_scores(w / c**0.5, ball)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=0)
    inputs = torch.tensor([[0.3, -0.2, 0.1], [19.0, -21.0, 0.0], [0.0, 0.0, 0.0]]).double()
    inputs /= c**0.5
    curvature = torch.tensor([c], dtype=torch.float64)

    def points(v: Tensor, c: Tensor) -> Tensor:
        return ball_of_scores(v, PoincareBall(c))

    for rows in (inputs[:1], inputs[1:2], inputs[2:], inputs):
        both = [rows.clone().requires_grad_(), curvature.clone().requires_grad_()]
        assert torch.autograd.gradcheck(points, both)
        assert torch.autograd.gradgradcheck(points, both, atol=1e-4)


def test_ball_of_scores_gradient_along_the_radius_has_digits() -> None:
    """One coordinate: tanh(v/2), whose slope is e^−v of what it is across."""
    ball = PoincareBall(1.0)
    v = torch.tensor([[0.0], [0.3], [5.0], [10.0], [14.0]], requires_grad=True)
    (g,) = torch.autograd.grad(ball_of_scores(v, ball).sum(), v)
    expected = 0.5 / torch.cosh(v.double() / 2) ** 2
    torch.testing.assert_close(g.double(), expected, rtol=1e-5, atol=0)


def test_ball_of_scores_keeps_two_of_its_size() -> None:
    v = torch.randn(40, 100, requires_grad=True)
    saved = saved_bytes(lambda: ball_of_scores(v, PoincareBall(1.0)))
    assert saved <= 2.1 * v.nbytes


def test_ball_of_scores_beyond_the_range_of_sinh() -> None:
    ball = PoincareBall(1.0)
    v = torch.tensor([[300.0, -299.0, 1.0, 0.0], [1e4, 0.0, 0.0, 0.0]], requires_grad=True)
    x = ball_of_scores(v, ball)
    expected = torch.tensor([[1.0, -math.exp(-1), 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(x, torch.nn.functional.normalize(expected, dim=-1))
    assert (ball.dist0(x) > 14).all()
    x.sum().backward()
    assert v.grad is not None
    assert v.grad.isfinite().all()


def test_curvature_gets_a_gradient() -> None:
    curvature = Curvature(0.8)
    v = torch.randn(4, 3)
    Lift(3, manifold=Lorentz(curvature))(v).square().sum().backward()
    assert curvature.raw.grad is not None
    assert curvature.raw.grad.abs().max() > 0


def test_errors_say_what_is_wanted() -> None:
    with pytest.raises(ValueError, match=r"Lift: form must be one of 'exp0'; got 'space'"):
        Lift(8, manifold=PoincareBall(), form="space")
    with pytest.raises(ValueError, match=r"Lower: form must be one of 'log0', 'space'; got 'exp0'"):
        Lower(8, manifold=Lorentz(), form="exp0")
    with pytest.raises(ValueError, match=r"scale must be positive and finite, got 0"):
        Lift(8, manifold=Lorentz(), scale=0)
    with pytest.raises(TypeError, match=r"scale must be a number, got str"):
        Lift(8, manifold=Lorentz(), scale="1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Lift works on Lorentz, PoincareBall, Euclidean"):
        Lift(8, manifold=Sphere())
    with pytest.raises(ValueError, match=r"\(\.\.\., 8\), got \(3, 7\)"):
        Lift(8, manifold=Lorentz())(torch.zeros(3, 7))
