"""The residual layer: what its weight means on each manifold."""

from __future__ import annotations

import pytest
import torch

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Euclidean, Lorentz, PoincareBall
from beltrami.kernels.layers.residual import residual


def test_weight_starts_as_asked_and_stays_positive() -> None:
    layer = bnn.Residual(manifold=Lorentz(1.0), weight=0.3)
    assert layer.weight.item() == pytest.approx(0.3)
    assert layer.no_weight_decay() == {"log_weight"}
    with torch.no_grad():
        layer.log_weight.fill_(-50.0)
    assert layer.weight.item() > 0
    fixed = bnn.Residual(manifold=Lorentz(1.0), weight=0.3, learnable=False)
    assert not list(fixed.parameters())
    assert fixed.weight == 0.3


def test_lorentz_is_the_kernel() -> None:
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    layer = bnn.Residual(manifold=Lorentz(0.7), weight=0.3, scale=2.0)
    torch.testing.assert_close(layer(x, y), residual(x, y, 0.3, 0.7, 2.0))


def test_scale_one_lies_on_the_geodesic() -> None:
    manifold = Lorentz(0.7)
    x, y = torch.randn(4, 6, dtype=torch.float64), torch.randn(4, 6, dtype=torch.float64)
    z = bnn.Residual(manifold=manifold, weight=0.6, scale=1.0).double()(x, y)
    total = manifold.dist(x, z) + manifold.dist(z, y)
    torch.testing.assert_close(total, manifold.dist(x, y))


@pytest.mark.parametrize("form", ["manifold", "boost"])
@pytest.mark.parametrize("learnable", [True, False])
@pytest.mark.parametrize("c", [1e-3, 0.02, 1.0, 30.0])
@pytest.mark.parametrize("w", [0.1, 1.0, 4.0])
def test_an_empty_branch_leaves_the_stream(w: float, c: float, learnable: bool, form: str) -> None:
    x = torch.randn(3, 64, dtype=torch.float64) * torch.tensor([[0.0], [1.0], [9.0]])
    manifold = Lorentz(Curvature(c, bounds=(c / 10, c * 10)) if learnable else c)
    scale = "keep" if form == "manifold" else None
    layer = bnn.Residual(manifold=manifold, weight=w, scale=scale, form=form).double()
    torch.testing.assert_close(layer(x, torch.zeros_like(x)), x)


def test_keep_changes_nothing_in_the_flat_limit() -> None:
    x, y = torch.randn(2, 4, 6, dtype=torch.float64)
    layer = bnn.Residual(manifold=Lorentz(1e-8), weight=0.3, scale="keep").double()
    torch.testing.assert_close(layer(x, y), x + 0.3 * y, rtol=1e-6, atol=1e-6)
    twin = bnn.Residual(manifold=Euclidean(), weight=0.3, scale="keep").double()
    torch.testing.assert_close(twin(x, y), x + 0.3 * y)


def test_boost_moves_the_stream_by_the_branch() -> None:
    """From the origin, to w times the distance of y; isometries keep distances of streams."""
    manifold = Lorentz(0.7)
    x, z, y = torch.randn(3, 4, 6, dtype=torch.float64)
    layer = bnn.Residual(manifold=manifold, weight=0.5, form="boost").double()
    w_y = layer(torch.zeros_like(y), y)
    torch.testing.assert_close(w_y, manifold.exp0(0.5 * manifold.log0(y)))
    torch.testing.assert_close(manifold.dist(layer(x, y), layer(z, y)), manifold.dist(x, z))
    flat = bnn.Residual(manifold=Lorentz(1e-10), weight=0.5, form="boost").double()
    torch.testing.assert_close(flat(x, y), x + 0.5 * y, rtol=1e-6, atol=1e-6)


def test_a_leaky_residual() -> None:
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    leaky = {"weight": 1 / 0.94, "scale": 1.94, "learnable": False}
    twin = bnn.Residual(manifold=Euclidean(), **leaky)  # type: ignore[arg-type]
    torch.testing.assert_close(twin(x, y), 0.94 * x + y)


def test_ball_moves_x_along_y() -> None:
    """x ⊕ w⊗y: from the origin it is the point at w times the distance towards y."""
    ball = PoincareBall(0.7)
    y = ball.exp0(torch.randn(4, 6, dtype=torch.float64))
    layer = bnn.Residual(manifold=ball, weight=0.5).double()
    torch.testing.assert_close(layer(torch.zeros_like(y), y), ball.exp0(0.5 * ball.log0(y)))
    x = ball.exp0(torch.randn(4, 6, dtype=torch.float64))
    torch.testing.assert_close(ball.dist(x, layer(x, y)), 0.5 * ball.dist0(y))


def test_euclidean_and_the_ablation() -> None:
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    twin = bnn.Residual(manifold=Euclidean(), weight=0.3)
    ablation = bnn.Residual(manifold=Lorentz(1.0), weight=0.3, form="euclidean")
    torch.testing.assert_close(twin(x, y), x + 0.3 * y)
    assert torch.equal(twin(x, y), ablation(x, y))
    plain = bnn.Residual(manifold=Euclidean(), learnable=False)
    assert torch.equal(plain(x, y), x + y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weight": 0.0}, "weight must be positive and finite, got 0.0"),
        ({"scale": -1.0}, "scale must be positive"),
        ({"form": "sum"}, "form must be one of 'manifold', 'boost', 'euclidean'; got 'sum'"),
        ({"form": "boost", "scale": 2.0}, "scale is for sums of vectors"),
        ({"scale": "calibrated"}, "must be one of 'keep'"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bnn.Residual(manifold=Lorentz(1.0), **arguments)  # type: ignore[arg-type]


def test_arguments_that_make_no_sense_on_a_manifold() -> None:
    with pytest.raises(ValueError, match=r"scale is for sums of vectors.*PoincareBall"):
        bnn.Residual(manifold=PoincareBall(1.0), scale=2.0)
    with pytest.raises(ValueError, match="is for Lorentz points"):
        bnn.Residual(manifold=PoincareBall(1.0), form="boost")
    with pytest.raises(ValueError, match="may lie outside"):
        bnn.Residual(manifold=PoincareBall(1.0), form="euclidean")


@pytest.mark.parametrize("manifold", [Lorentz(1.0), Euclidean()])
def test_a_half_precision_stream_stays_one(manifold: Lorentz | Euclidean) -> None:
    x, y = torch.randn(4, 6).bfloat16(), torch.randn(4, 6).bfloat16()
    assert bnn.Residual(manifold=manifold, weight=0.3)(x, y).dtype == torch.bfloat16
    assert bnn.Residual(manifold=manifold)(x.float(), y).dtype == torch.float32


def test_shapes_that_do_not_broadcast_are_named() -> None:
    layer = bnn.Residual(manifold=Lorentz(1.0))
    with pytest.raises(ValueError, match=r"\(2, 6\) and \(3, 6\)"):
        layer(torch.randn(2, 6), torch.randn(3, 6))


@pytest.mark.parametrize("w", [0.0, 1e-8, 1e-4, 0.5, 3.0])
def test_the_gradient_of_a_small_weight_has_digits(w: float) -> None:
    """Starts such as ReZero's are at 0 or near it."""
    x, y, g = torch.randn(6, 8), torch.randn(6, 8), torch.randn(6, 8)
    weight = torch.tensor([w], requires_grad=True)
    (found,) = torch.autograd.grad(residual(x, y, weight, 1.0), weight, g)
    exact = torch.tensor([w], dtype=torch.float64, requires_grad=True)
    wide = x.double(), y.double()
    z = wide[0] + exact * wide[1]
    times = [torch.sqrt(1 + t.square().sum(-1, keepdim=True)) for t in wide]
    time = times[0] + exact * times[1]
    length = torch.sqrt(time**2 - z.square().sum(-1, keepdim=True))
    (expected,) = torch.autograd.grad((1 + exact) * z / length, exact, g.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
