"""Products: the combination of distances, the folded path for equal factors, gradients at 0."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.geometry import (
    Curvature,
    Euclidean,
    Lorentz,
    PoincareBall,
    Product,
    Sphere,
    product,
)

PS = [1.0, 1.5, 2.0, 3.0, math.inf]
MIXED = [(Lorentz(0.5), 3), (Euclidean(), 2), (Sphere(2.0), 4), (PoincareBall(1.0), 2)]


def mixed_points(*shape: int, seed: int = 0, p: float = 2.0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return Product(MIXED, p).random(*shape, 11, std=0.4, dtype=torch.float64, generator=g)


@pytest.mark.parametrize("p", PS)
def test_combine_is_the_p_norm_with_gradient_zero_at_zero(p: float) -> None:
    d = torch.rand(50, 6, dtype=torch.float64)
    d[0] = 0
    d[1, :3] = 0
    d.requires_grad_()
    out = product.combine(d, p)
    torch.testing.assert_close(out, torch.linalg.vector_norm(d, p, dim=-1))
    assert product.combine(d, p, keepdim=True).shape == (50, 1)
    (g,) = torch.autograd.grad(out.sum(), d, create_graph=True)
    assert bool(torch.isfinite(g).all())
    if 1 < p < math.inf:
        assert not g[0].any()
        (second,) = torch.autograd.grad((g * torch.rand_like(g)).sum(), d)
        assert bool(torch.isfinite(second).all())
    assert torch.autograd.gradcheck(
        lambda d: product.combine(d, p), d[2:].detach().requires_grad_()
    )


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_combine_does_not_leave_the_range(scale: float) -> None:
    d = torch.tensor([3.0, 4.0, 5.0]) * scale
    torch.testing.assert_close(
        product.combine(d, 3.0), torch.tensor(6.0 * scale), rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("p", PS)
def test_distance_combines_those_of_the_factors(p: float) -> None:
    x, y = mixed_points(7), mixed_points(7, seed=1)
    parts = zip(MIXED, x.split([3, 2, 4, 2], -1), y.split([3, 2, 4, 2], -1), strict=True)
    each = torch.stack([m.dist(a, b) for (m, _), a, b in parts], -1)
    expected = torch.linalg.vector_norm(each, p, dim=-1)
    torch.testing.assert_close(product.dist(x, y, MIXED, p=p), expected)
    torch.testing.assert_close(product.dist_sq(x, y, MIXED, p=p), expected**2)
    torch.testing.assert_close(
        product.pairwise_dist(x, y[:5], MIXED, p=p),
        product.dist(x[:, None], y[None, :5], MIXED, p=p),
    )
    origin = Product(MIXED).origin(11, dtype=torch.float64)
    torch.testing.assert_close(product.dist0(x, MIXED, p=p), product.dist(x, origin, MIXED, p=p))


@pytest.mark.parametrize("p", PS)
def test_equal_factors_fold_into_one_call_and_agree_with_the_loop(p: float) -> None:
    curvature = Curvature(1.0, size=5).double()
    with torch.no_grad():
        curvature.raw.copy_(torch.linspace(-1, 1, 5))
    folded = Product([(Lorentz(curvature), 3, 5)], p)
    loop = Product([(Lorentz(c), 3) for c in curvature.value.flatten().tolist()], p)
    assert len(folded.factors) == 1
    assert len(loop.factors) == 5
    g = torch.Generator().manual_seed(0)
    x, y, v = (torch.randn(2, 4, 15, dtype=torch.float64, generator=g) for _ in range(3))
    w = torch.rand(2, 4, dtype=torch.float64, generator=g)
    t = torch.rand(2, 4, 1, dtype=torch.float64, generator=g)
    for call in (
        lambda P: P.dist(x, y),
        lambda P: P.dist(x, y, keepdim=True),
        lambda P: P.dist_sq(x, y),
        lambda P: P.dist0(x),
        lambda P: P.pairwise_dist(x, y[:, :3]),
        lambda P: P.inner(x, y, v),
        lambda P: P.norm(x, v),
        lambda P: P.exp(x, v),
        lambda P: P.log(x, y),
        lambda P: P.exp0(v),
        lambda P: P.log0(x),
        lambda P: P.transport(x, y, v),
        lambda P: P.transport_from0(y, v),
        lambda P: P.transport_to0(x, v),
        lambda P: P.geodesic(x, y, t),
        lambda P: P.geodesic(x, y, 0.3),
        lambda P: P.midpoint(x, y),
        lambda P: P.centroid(x, w),
        lambda P: P.centroid(x),
        lambda P: P.riemannian_grad(x, v),
        lambda P: P.retract(x, v),
    ):
        torch.testing.assert_close(call(folded), call(loop), rtol=1e-12, atol=1e-12)


def test_neighbours_are_merged_only_when_equal() -> None:
    shared, other = Curvature(1.0), Curvature(1.0)
    P = Product(
        [
            (Lorentz(1.0), 2),
            (Lorentz(1), 2, 3),
            (Lorentz(1.0), 3),
            (Lorentz(shared), 3),
            (Lorentz(shared), 3),
            (Lorentz(other), 3),
            (Euclidean(), 2),
            (Euclidean(), 2),
        ]
    )
    assert [(b.size, b.count) for b in P.factors] == [(2, 4), (3, 1), (3, 2), (3, 1), (2, 2)]
    assert P.size == 24
    assert [t.shape for t in P.split(torch.zeros(7, 24))][:2] == [(7, 4, 2), (7, 3)]


@pytest.mark.parametrize("p", PS)
def test_gradients_where_points_coincide(p: float) -> None:
    x = mixed_points(3).requires_grad_()
    y = x.detach().clone()
    y[1, :5] = mixed_points(3, seed=1)[1, :5]  # some factors coincide, some do not
    (g,) = torch.autograd.grad(product.dist(x, y, MIXED, p=p).sum(), x)
    assert bool(torch.isfinite(g).all())
    assert not g[0].any()
    assert not g[2].any()
    assert not g[1, 5:].any()
    assert bool(g[1, :5].any())


def test_dist_sq_is_twice_differentiable_at_zero() -> None:
    x = mixed_points(2).requires_grad_()
    (g,) = torch.autograd.grad(
        product.dist_sq(x, x.detach().clone(), MIXED).sum(), x, create_graph=True
    )
    (second,) = torch.autograd.grad(g.sum(), x)
    assert not g.any()
    assert bool(torch.isfinite(second).all())
    y = mixed_points(2, seed=1)
    assert torch.autograd.gradcheck(lambda x: product.dist(x, y, MIXED), x)


def test_each_curvature_learns() -> None:
    curvature = Curvature(1.0, size=4)
    P = Product([(Lorentz(curvature), 2, 4)], p=1)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    P.dist(x, y).sum().backward()
    assert curvature.raw.grad is not None
    assert bool((curvature.raw.grad != 0).all())


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**20), p=st.floats(1, 6))
def test_is_a_distance(seed: int, p: float) -> None:
    x, y, z = (mixed_points(seed=seed + i) for i in range(3))

    def d(a: torch.Tensor, b: torch.Tensor) -> float:
        return product.dist(a, b, MIXED, p=p).item()

    assert d(x, y) == d(y, x) > 0
    assert d(x, x) == 0
    assert d(x, z) <= (d(x, y) + d(y, z)) * (1 + 1e-14)


def test_products_of_products() -> None:
    inner = Product([(Lorentz(1.0), 2), (Sphere(1.0), 3)], p=1)
    P = Product([(inner, 5, 2), (Euclidean(), 1)])
    x, y = (P.random(4, 11, dtype=torch.float64) for _ in range(2))
    torch.testing.assert_close(P.exp(x, P.log(x, y)), y)
    parts = [inner.dist_sq(x[:, i : i + 5], y[:, i : i + 5]) for i in (0, 5)]
    torch.testing.assert_close(P.dist_sq(x, y), sum(parts) + (x - y)[:, -1] ** 2)


@pytest.mark.parametrize(
    ("factors", "p", "error", "words"),
    [
        ([], 2, ValueError, "at least one factor"),
        ([Lorentz(1.0)], 2, TypeError, "tuple"),
        ([(Lorentz(1.0),)], 2, TypeError, "tuple"),
        ([(8, Lorentz(1.0))], 2, TypeError, "size"),
        ([(1.0, 8)], 2, TypeError, "manifold"),
        ([(Lorentz(1.0), 0)], 2, ValueError, "size"),
        ([(Lorentz(1.0), 2, 0)], 2, ValueError, "count"),
        ([(Lorentz(1.0), 2.0)], 2, TypeError, "size"),
        ([(Lorentz(Curvature(size=3)), 2)], 2, ValueError, "3 curvatures"),
        ([(Lorentz(1.0), 2)], 0.5, ValueError, "at least 1"),
        ([(Lorentz(1.0), 2)], math.nan, ValueError, "at least 1"),
        ([(Lorentz(1.0), 2)], "2", TypeError, "p must be"),
    ],
)
def test_bad_factors(factors, p, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Product(factors, p)


def test_bad_points() -> None:
    x = torch.randn(3, 11)
    with pytest.raises(ValueError, match=r"11 = 3 \+ 2 \+ 4 \+ 2"):
        product.dist(x, torch.randn(3, 10), MIXED)
    with pytest.raises(ValueError, match=r"v must have a last dimension of 10"):
        product.exp0(x, MIXED)
    with pytest.raises(TypeError, match="floating point"):
        product.dist(x.long(), x, MIXED)
    with pytest.raises(TypeError, match="distances"):
        product.combine(torch.ones(3, dtype=torch.long))
