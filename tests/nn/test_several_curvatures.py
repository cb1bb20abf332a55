"""Layers with a curvature for each expert, (E, 1, 1), or each factor, (k, 1), or on a product.

What such a layer computes is what one layer for each curvature computes on its part.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, PoincareBall, Product

D = 6
VALUES = (0.3, 1.0, 2.5)
MANIFOLDS = pytest.mark.parametrize("kind", [Lorentz, PoincareBall], ids=["lorentz", "ball"])
# How curvatures broadcast against x[..., :1]: experts of n tokens each, and factors of a token.
PLACES = pytest.mark.parametrize(
    ("c_shape", "x_shape"),
    [((3, 1, 1), (3, 5, D)), ((3, 1), (5, 3, D))],
    ids=["experts", "factors"],
)

LAYERS: dict[str, Callable[[Manifold], nn.Module]] = {
    "lift": lambda m: bnn.Lift(D, manifold=m, scale=0.5),
    "lower": lambda m: bnn.Lower(D, manifold=m, scale=0.5),
    "linear": lambda m: bnn.Linear(D, 4, manifold=m, form=None if _lorentz(m) else "mobius"),
    "tangent": lambda m: bnn.Linear(D, 4, manifold=m, form="tangent"),
    "residual": lambda m: bnn.Residual(manifold=m),
    "rms norm": lambda m: bnn.RMSNorm(D, manifold=m),
    "to lorentz": lambda m: bnn.ChangeCurvature(manifold=m, manifold_out=Lorentz(0.7)),
}
LAYER = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def _lorentz(manifold: Manifold) -> bool:
    return isinstance(manifold, Lorentz)


def part(x: Tensor, c_shape: tuple[int, ...], i: int) -> Tensor:
    """Tokens of one curvature."""
    return x[i] if len(c_shape) == 3 else x[:, i]


def call(layer: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = layer(x, x.flip(-1)) if isinstance(layer, bnn.Residual) else layer(x)
    return out


@LAYER
@MANIFOLDS
@PLACES
def test_each_part_has_its_curvature(
    make: Callable[[Manifold], nn.Module],
    kind: type[Lorentz | PoincareBall],
    c_shape: tuple[int, ...],
    x_shape: tuple[int, ...],
) -> None:
    c = torch.tensor(VALUES).view(c_shape).requires_grad_()
    layer = make(kind(c))
    x = kind(c.detach()).exp0(0.4 * torch.randn(x_shape)).requires_grad_()
    out = call(layer, x)
    g = torch.randn_like(out)
    by_x, by_c = torch.autograd.grad(out, [x, c], g, allow_unused=True)
    for i, value in enumerate(VALUES):
        own_c = torch.tensor([value], requires_grad=True)
        own = make(kind(own_c))
        own.load_state_dict(layer.state_dict())
        y = part(x.detach(), c_shape, i).requires_grad_()
        result = call(own, y)
        own_g = part(g, c_shape, i)
        by_y, by_own_c = torch.autograd.grad(result, [y, own_c], own_g, allow_unused=True)
        torch.testing.assert_close(part(out, c_shape, i), result, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(part(by_x, c_shape, i), by_y, rtol=1e-4, atol=1e-5)
        assert (by_c is None) == (by_own_c is None)
        if by_c is not None:
            torch.testing.assert_close(by_c.flatten()[i : i + 1], by_own_c, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
def test_lift_and_lower_on_a_product(learned: bool) -> None:
    """Factor by factor, and the inverse of each other."""
    lorentz = Lorentz(Curvature(0.6) if learned else 0.6)
    factors = [(lorentz, 3), (PoincareBall(2.0), 2), (Euclidean(), 1)]
    product = Product(factors)
    lift, lower = bnn.Lift(6, manifold=product), bnn.Lower(6, manifold=product)
    v = torch.randn(4, 6, requires_grad=True)
    x = lift(v)
    parts = [
        bnn.Lift(d, manifold=m)(t)
        for (m, d), t in zip(factors, v.split([3, 2, 1], -1), strict=True)
    ]
    torch.testing.assert_close(x, torch.cat(parts, -1))
    torch.testing.assert_close(lower(x), v, rtol=1e-4, atol=1e-5)
    x.square().sum().backward()
    assert v.grad is not None
    assert v.grad.isfinite().all()
    if learned:
        assert lorentz.curvature.raw.grad.abs() > 0  # type: ignore[union-attr]
    assert lift.manifold_out is product
    assert isinstance(lower.manifold_out, Euclidean)


def test_product_of_repeated_factors() -> None:
    """A curvature for each factor of one width, as vision-language models have."""
    c = Curvature(1.0, size=4)
    product = Product([(Lorentz(c), 3, 4)])
    v = torch.randn(5, 12)
    x = bnn.Lift(12, manifold=product)(v)
    torch.testing.assert_close(bnn.Lower(12, manifold=product)(x), v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
def test_a_product_on_the_meta_device(learned: bool) -> None:
    """Shapes without numbers, with one curvature a factor and one for each of equal factors."""
    curvatures = Curvature(0.6), Curvature(0.6, size=2)
    first, second = curvatures if learned else (0.6, 0.6)
    product = Product([(PoincareBall(first), 3), (Lorentz(second), 2, 2), (Euclidean(), 1)])
    layers = nn.Sequential(bnn.Lift(8, manifold=product), bnn.Lower(8, manifold=product))
    nn.ModuleList([layers, *curvatures]).to("meta")
    x = torch.randn(5, 8, device="meta", requires_grad=True)
    out = layers(x)
    assert out.is_meta
    assert out.shape == (5, 8)
    out.sum().backward()


def test_errors() -> None:
    with pytest.raises(ValueError, match="6"):
        bnn.Lift(7, manifold=Product([(Lorentz(1.0), 6)]))
    with pytest.raises(ValueError, match="form"):
        bnn.Lift(6, manifold=Product([(PoincareBall(1.0), 6)]), form="space")
    with pytest.raises(ValueError, match="one curvature"):
        bnn.Attention(6, 2, manifold=Lorentz(torch.ones(3, 1, 1)))
