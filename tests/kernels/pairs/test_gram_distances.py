from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from beltrami.geometry import lorentz
from beltrami.kernels.pairs.gram_distances import gram_distances

EPS = torch.finfo(torch.float64).eps


def points(n: int, radius: float, c: float, seed: int = 0) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    v = torch.randn(n, 4, generator=draws, dtype=torch.float64)
    return lorentz.exp0(v / v.norm(dim=-1, keepdim=True) * radius, c)


@pytest.mark.parametrize("c", [1.0, 0.25, 3.0])
@pytest.mark.parametrize("radius", [1e-6, 0.1, 1.0, 6.0, 12.0])
def test_distances_are_within_the_stated_bound(radius: float, c: float) -> None:
    scaled = radius / math.sqrt(c)
    x, y = points(30, scaled, c), points(40, scaled, c, seed=1)
    y[:5] = x[:5] * (1 + 1e-5)  # neighbours, too
    exact = lorentz.pairwise_dist(x, y, c)
    delta = EPS * math.cosh(radius) ** 2
    sinh = torch.sinh(math.sqrt(c) * exact)
    bound = torch.minimum(8 * delta / sinh, torch.full_like(sinh, 5 * math.sqrt(delta)))
    bound = (bound + (4 + math.sqrt(c) * exact) * EPS) / math.sqrt(c)
    # The reference has errors of its own: those of its inputs, twice.
    assert ((gram_distances(x, y, c) - exact).abs() <= 2 * bound).all()


@pytest.mark.parametrize("c", [1.0, 0.25])
def test_gradients(c: float) -> None:
    x = points(4, 1.5, c).requires_grad_()
    y = points(5, 0.7, c, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: gram_distances(a, b, c), (x, y))


def test_a_point_and_itself_have_distance_and_gradient_zero() -> None:
    x = points(6, 9.0, 1.0).requires_grad_()
    found = gram_distances(x, x.detach())
    assert (found.diagonal() == 0).all()
    (gradient,) = torch.autograd.grad(found.diagonal().sum(), x)
    assert (gradient == 0).all()


def test_float32_points_are_measured_in_float64() -> None:
    x, y = points(8, 3.0, 1.0).float(), points(9, 3.0, 1.0, seed=3).float()
    found = gram_distances(x, y)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, lorentz.pairwise_dist(x.double(), y.double()).float())


def test_bad_input_is_named() -> None:
    x = torch.zeros(3, 2)
    with pytest.raises(TypeError, match="c must be a number"):
        gram_distances(x, x, torch.ones(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one set of points each"):
        gram_distances(x[None], x)
