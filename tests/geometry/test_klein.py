"""The Klein model: straight geodesics, Einstein midpoints, distances without cancellation.

That it agrees with the other models is in test_poincare.py, its manners in test_public.py.
"""

import math

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from beltrami.geometry import klein, lorentz

F64 = torch.float64
CURVATURES = [0.01, 0.1, 1.0, 10.0]


def points(*shape: int, c: float = 1.0, radius: float = 1.5, dtype=F64, seed: int = 0):
    """Points with √c·distance uniform in (0, radius)."""
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(shape, dtype=F64, generator=g)
    r = radius * torch.rand(*shape[:-1], 1, dtype=F64, generator=g) / math.sqrt(c)
    return klein.exp0(v / v.norm(dim=-1, keepdim=True) * r, c).to(dtype)


def close(a, b, tol=1e-12):
    torch.testing.assert_close(a, b, rtol=tol, atol=tol)


def exact_dist(x, y, c):
    """The textbook acosh form in 80 digits."""
    with mpmath.workdps(80):
        x, y = ([mpmath.mpf(v) for v in t.tolist()] for t in (x, y))
        c = mpmath.mpf(c)
        xx, yy, xy = (
            1 - c * mpmath.fsum(a * b for a, b in zip(p, q, strict=True))
            for p, q in ((x, x), (y, y), (x, y))
        )
        return mpmath.acosh(xy / mpmath.sqrt(xx * yy)) / mpmath.sqrt(c)


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("radius", [1e-6, 1e-3, 0.1, 1.0, 4.0, 7.0])
def test_dist_keeps_its_digits(c, dtype, radius):
    """Far and near pairs, up to 16 eps·cosh²(radius): what rounding Klein coordinates costs."""
    g = torch.Generator().manual_seed(0)
    u = torch.randn(6, 3, dtype=F64, generator=g)
    u = u / u.norm(dim=-1, keepdim=True)
    X = math.sinh(radius) / math.sqrt(c) * u
    step = 0.01 * min(radius, 1.0) * torch.randn(6, 3, dtype=F64, generator=g) / math.sqrt(c)
    near = lorentz.exp(X, lorentz.transport_from0(X, step, c), c)
    bound = 16 * torch.finfo(dtype).eps * math.cosh(radius) ** 2
    c = torch.tensor([c], dtype=dtype).item()
    for Y in (near, -X, X.roll(1, 0), X / 10, 0 * X):
        x, y = (klein.from_lorentz(p, c).to(dtype) for p in (X, Y))
        d, back = klein.dist(x, y, c), klein.dist(y, x, c)
        for i in range(6):
            exact = exact_dist(x[i], y[i], c)
            assert abs(d[i].item() - exact) <= bound * exact
            assert abs(back[i].item() - exact) <= bound * exact


@pytest.mark.parametrize("c", CURVATURES)
def test_geodesics_are_straight_and_run_at_constant_speed(c):
    x, y = points(8, 3, c=c), points(8, 3, c=c, seed=1)
    d = klein.dist(x, y, c)
    for t in (0.0, 0.2, 0.5, 0.9, 1.0):
        z = klein.geodesic(x, y, t, c)
        close(klein.dist(x, z, c), t * d, 1e-9)
        close(klein.dist(z, y, c), (1 - t) * d, 1e-9)
        close((z - x).norm(dim=-1) + (y - z).norm(dim=-1), (y - x).norm(dim=-1))
    t = torch.rand(8, 1, dtype=F64)
    close(klein.dist(x, klein.geodesic(x, y, t, c), c), t.squeeze(-1) * d, 1e-9)
    close(klein.midpoint(x, y, c), klein.geodesic(x, y, 0.5, c), 1e-11)
    assert torch.equal(klein.geodesic(x, x, 0.3, c), x)


@pytest.mark.parametrize("c", CURVATURES)
def test_einstein_midpoint(c):
    x = points(2, 5, 3, c=c)
    w = torch.rand(2, 5, dtype=F64)
    m = klein.einstein_midpoint(x, w, c)
    gamma = klein.lorentz_factor(x, c, keepdim=True)
    close(gamma.squeeze(-1), torch.cosh(math.sqrt(c) * klein.dist0(x, c)), 1e-11)
    close(m, (w[..., None] * gamma * x).sum(-2) / (w[..., None] * gamma).sum(-2))
    close(klein.centroid(x[:, :2], None, c), klein.midpoint(x[:, 0], x[:, 1], c))
    close(klein.einstein_midpoint(x[:, :1], None, c), x[:, 0])
    with pytest.raises(ValueError, match="weights must have shape"):
        klein.einstein_midpoint(x, w[:, :3], c)


TWO_POINT = {
    "dist": klein.dist,
    "dist_sq": klein.dist_sq,
    "midpoint": klein.midpoint,
    "geodesic": lambda x, y, c: klein.geodesic(x, y, 0.3, c),
    "centroid": lambda x, y, c: klein.einstein_midpoint(torch.stack([x, y], dim=-2), None, c),
}


@pytest.mark.parametrize("name", TWO_POINT)
def test_gradients(name):
    x, y = points(3, 3).requires_grad_(), points(3, 3, seed=1).requires_grad_()
    c = torch.tensor([0.7], dtype=F64, requires_grad=True)
    assert gradcheck(TWO_POINT[name], (x, y, c))
    assert gradgradcheck(TWO_POINT[name], (x, y, c))
    if name != "dist":
        same = x.detach().clone().requires_grad_()
        assert gradcheck(TWO_POINT[name], (x, same, c))
        assert gradgradcheck(TWO_POINT[name], (x, same, c))


@pytest.mark.parametrize("name", ["to_lorentz", "from_lorentz", "to_poincare", "from_poincare"])
def test_gradients_of_conversions(name):
    x = torch.cat([points(3, 3), torch.zeros(1, 3, dtype=F64)]).requires_grad_()
    c = torch.tensor([0.7], dtype=F64, requires_grad=True)
    assert gradcheck(getattr(klein, name), (x, c))
    assert gradgradcheck(getattr(klein, name), (x, c))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("name", TWO_POINT)
def test_gradients_are_finite_at_singular_pairs(name, dtype):
    x = points(4, 3, dtype=dtype)
    zero = torch.zeros_like(x)
    for a, b in [(x, x), (zero, zero), (zero, x), (x, zero), (x, -x), (x, x / 2)]:
        a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
        c = torch.ones(1, dtype=dtype, requires_grad=True)
        out = TWO_POINT[name](a, b, c)
        grads = torch.autograd.grad(out.sum(), [a, b, c])
        assert all(torch.isfinite(t).all() for t in (out, *grads))
        if name == "dist" and a.equal(b):
            assert torch.equal(grads[0], zero)
