"""ChangeCurvature: scaled distances stay, whatever the model."""

from __future__ import annotations

import pytest
import torch

from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, PoincareBall
from beltrami.nn.change import ChangeCurvature

PAIRS = [
    (Lorentz(0.5), Lorentz(2.0)),
    (PoincareBall(0.5), PoincareBall(2.0)),
    (Lorentz(0.5), PoincareBall(2.0)),
    (PoincareBall(2.0), Lorentz(0.5)),
    (Lorentz(1.3), PoincareBall(1.3)),
]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_keeps_scaled_distances_and_comes_back(source: Manifold, target: Manifold) -> None:
    x = source.random(3, 7, 5, std=0.8, dtype=torch.float64)
    layer = ChangeCurvature(manifold=source, manifold_out=target)
    assert (layer.manifold, layer.manifold_out) == (source, target)
    y = layer(x)
    target.check_point(y)
    torch.testing.assert_close(
        target.c**0.5 * target.pairwise_dist(y, y), source.c**0.5 * source.pairwise_dist(x, x)
    )
    torch.testing.assert_close(ChangeCurvature(manifold=target, manifold_out=source)(y), x)
    assert torch.equal(layer(torch.zeros(2, 5)), torch.zeros(2, 5))


@pytest.mark.parametrize("manifold", [Lorentz(0.5), PoincareBall(0.5), Euclidean()])
def test_same_manifold_changes_nothing(manifold: Manifold) -> None:
    x = manifold.random(4, 5)
    layer = ChangeCurvature(manifold=manifold, manifold_out=manifold)
    torch.testing.assert_close(layer(x), x, rtol=0, atol=0)


@pytest.mark.parametrize("kinds", [(Lorentz, PoincareBall), (PoincareBall, Lorentz)])
def test_both_curvatures_get_their_gradient(kinds: tuple[type, type]) -> None:
    inner, outer = Curvature(0.8).double(), Curvature(1.7).double()
    layer = ChangeCurvature(manifold=kinds[0](inner), manifold_out=kinds[1](outer))
    x = kinds[0](0.8).random(4, 3, std=0.5, dtype=torch.float64).requires_grad_()

    class _Named(torch.nn.Module):
        def __init__(self, *parts: torch.nn.Module) -> None:
            super().__init__()
            self.layer, self.inner, self.outer = parts

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    module = _Named(layer, inner, outer)

    def call(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, {"inner.raw": a, "outer.raw": b}, (x,))

    raws = [torch.tensor([0.2], dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(call, (x, *raws))


def test_far_lorentz_points_stay_inside_the_ball() -> None:
    x = Lorentz(1.0).exp0(30 * torch.nn.functional.normalize(torch.randn(5, 4), dim=-1))
    ball = PoincareBall(1.0)
    y = ChangeCurvature(manifold=Lorentz(1.0), manifold_out=ball)(x)
    assert ball.dist0(y).isfinite().all()


def test_flat_and_curved_do_not_mix() -> None:
    with pytest.raises(TypeError, match=r"use Lift"):
        ChangeCurvature(manifold=Euclidean(), manifold_out=Lorentz())
    with pytest.raises(TypeError, match=r"use Lower"):
        ChangeCurvature(manifold=PoincareBall(), manifold_out=Euclidean())
    with pytest.raises(TypeError, match=r"manifold_out must be an object, not a class"):
        ChangeCurvature(manifold=Lorentz(), manifold_out=Lorentz)  # type: ignore[arg-type]
