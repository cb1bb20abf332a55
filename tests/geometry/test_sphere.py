"""What is special about the sphere: opposite points, the pole's frame, staying on it.

The laws it shares with all manifolds are in test_manifold.py.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import beltrami
from beltrami.geometry import sphere

CURVATURES = [0.01, 1.0, 10.0]


def points(n: int, d: int, c: float, dtype: torch.dtype = torch.float64, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    return sphere.uniform(n, d, c=c, dtype=dtype, generator=g)


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_and_nearly_flat_angles_keep_their_digits(c: float, dtype: torch.dtype) -> None:
    """Two points an angle a, or π − a, apart: acos of the product would lose half of the digits."""
    r, eps = c**-0.5, torch.finfo(dtype).eps
    for a in (1e-6, 1e-3, 0.1, 1.0, 1.5, 3.0):
        x = torch.tensor([r, 0.0, 0.0], dtype=dtype)
        y = torch.tensor([r * math.cos(a), r * math.sin(a), 0.0], dtype=dtype)
        exact = math.atan2(y[1].item(), y[0].item()) * r
        assert abs(sphere.dist(x, y, c).item() / exact - 1) < 8 * eps
        assert abs(sphere.dist_sq(x, y, c).item() / exact**2 - 1) < 16 * eps
        far = math.pi * r - sphere.dist(x, -y, c).double().item()
        assert abs(far - exact) < 8 * eps * math.pi * r
        torch.testing.assert_close(
            sphere.log(x, -y, c).norm().item(), math.pi * r - exact, rtol=16 * eps, atol=0
        )


@pytest.mark.parametrize("c", CURVATURES)
def test_opposite_points_are_finite_with_finite_gradients(c: float) -> None:
    x = points(16, 4, c)
    v = sphere.random_tangent(x, 0.1, c, generator=torch.Generator().manual_seed(1))
    calls = {
        "dist": lambda x, y: sphere.dist(x, y, c),
        "dist_sq": lambda x, y: sphere.dist_sq(x, y, c),
        "log": lambda x, y: sphere.log(x, y, c),
        "transport": lambda x, y: sphere.transport(x, y, v, c),
        "midpoint": lambda x, y: sphere.midpoint(x, y, c),
        "geodesic": lambda x, y: sphere.geodesic(x, y, 0.3, c),
    }
    for name, call in calls.items():
        for sign in (1.0, -1.0):
            a, b = x.clone().requires_grad_(), (sign * x).clone().requires_grad_()
            out = call(a, b)
            grads = torch.autograd.grad(out.sum(), [a, b], create_graph=True)
            second = torch.autograd.grad(sum(g.sum() for g in grads), [a, b], allow_unused=True)
            for t in (out, *grads, *(s for s in second if s is not None)):
                assert bool(torch.isfinite(t).all()), (name, sign)
    torch.testing.assert_close(sphere.dist(x, -x, c), torch.full((16,), math.pi * c**-0.5).double())
    assert not sphere.log(x, -x, c).any()
    torch.testing.assert_close(sphere.transport(x, -x, v, c), v, rtol=0, atol=0)
    torch.testing.assert_close(
        sphere.midpoint(x, -x, c), sphere.origin(16, 4, c=c, dtype=torch.float64)
    )


@pytest.mark.parametrize("c", CURVATURES)
def test_the_poles_and_the_frame_at_the_origin(c: float) -> None:
    r = c**-0.5
    o = sphere.origin(3, c=c, dtype=torch.float64)
    torch.testing.assert_close(o, torch.tensor([0.0, 0.0, r]).double())
    v = torch.tensor([0.3 * r, 0.4 * r], dtype=torch.float64, requires_grad=True)
    x = sphere.exp0(v, c)
    assert x.shape == (3,)
    torch.testing.assert_close(sphere.log0(x, c), v)
    torch.testing.assert_close(sphere.dist0(x, c), v.norm())
    padded = torch.cat([v, v.new_zeros(1)])
    torch.testing.assert_close(x, sphere.exp(o, padded, c))
    torch.testing.assert_close(sphere.transport_from0(x, v, c), sphere.transport(o, x, padded, c))
    torch.testing.assert_close(sphere.transport_to0(x, sphere.transport_from0(x, v, c), c), v)
    for pole in (o, -o):
        p = pole.clone().requires_grad_()
        assert not sphere.log0(p, c).any()
        sphere.log0(p, c).sum().backward()
        (sphere.dist0(p, c)).backward()
        assert bool(torch.isfinite(p.grad).all())
    origin = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    (jacobian,) = torch.autograd.functional.jacobian(lambda v: sphere.exp0(v, c), (origin,))
    torch.testing.assert_close(jacobian, torch.eye(3, 2, dtype=torch.float64))


@pytest.mark.parametrize("c", CURVATURES)
def test_gradients(c: float) -> None:
    x, y = (t.requires_grad_() for t in points(2, 4, c).unsqueeze(1).unbind())
    v = sphere.random_tangent(y.detach(), 0.3 * c**-0.5, c).requires_grad_()
    k = torch.tensor([c], dtype=torch.float64, requires_grad=True)
    for f, args in [
        (sphere.dist, (x, y, k)),
        (sphere.dist_sq, (x, y, k)),
        (sphere.log, (x, y, k)),
        (sphere.exp, (y, v, k)),
        (sphere.transport, (y, x, v, k)),
        (sphere.log0, (x, k)),
        (sphere.dist0, (x, k)),
        (sphere.exp0, (v, k)),
        (sphere.project, (v, k)),
        (sphere.midpoint, (x, y, k)),
        (sphere.riemannian_grad, (x, v, k)),
    ]:
        assert torch.autograd.gradcheck(f, args), f.__name__
        assert torch.autograd.gradgradcheck(f, args), f.__name__


def test_dist_sq_is_smooth_where_points_coincide() -> None:
    x = points(5, 3, 1.0).requires_grad_()
    y = x.detach().clone()
    (g,) = torch.autograd.grad(sphere.dist_sq(x, y).sum(), x, create_graph=True)
    assert not g.any()
    hessian = torch.autograd.functional.hessian(lambda x: sphere.dist_sq(x, y[0]), x[0].detach())
    tangent = sphere.random_tangent(y[0])
    torch.testing.assert_close(hessian @ tangent, 2 * tangent)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**20), d=st.integers(2, 6), angle=st.floats(1e-4, 3.14))
def test_walks_stay_on_the_sphere(seed: int, d: int, angle: float) -> None:
    c = 0.7
    g = torch.Generator().manual_seed(seed)
    x = sphere.uniform(d, c=c, dtype=torch.float64, generator=g)
    v = sphere.random_tangent(x, 1.0, c, generator=g)
    if v.norm() == 0:
        return
    v = v * (angle / v.norm()) * c**-0.5
    y = sphere.exp(x, v, c)
    torch.testing.assert_close(y.norm().item(), c**-0.5, rtol=1e-14, atol=0)
    # Near the opposite point directions are conditioned like 1/(π − θ).
    slack = 1e-13 / min(1.0, math.pi - angle)
    torch.testing.assert_close(sphere.log(x, y, c), v, rtol=0, atol=slack)
    w = sphere.transport(x, y, v, c)
    assert abs((w @ y).item()) < slack / c
    torch.testing.assert_close(w, -sphere.log(y, x, c), rtol=0, atol=slack)


def test_projection_and_samples() -> None:
    c = 2.0
    x = torch.randn(100, 3, requires_grad=True)
    torch.testing.assert_close(sphere.project(x, c).norm(dim=-1), torch.full((100,), c**-0.5))
    zero = torch.zeros(3, requires_grad=True)
    torch.testing.assert_close(sphere.project(zero, c), sphere.origin(3, c=c))
    sphere.project(zero, c).sum().backward()
    assert not zero.grad.any()
    g = torch.Generator().manual_seed(0)
    u = sphere.uniform(20000, 3, c=c, generator=g)
    assert u.mean(0).norm() < 0.02
    # By Archimedes, heights are uniform on a sphere in three dimensions.
    heights = (u[:, 2] * c**0.5).sort().values
    assert (heights - torch.linspace(-1, 1, 20000)).abs().max() < 0.03
    mean = sphere.uniform(3, c=c, generator=g)
    near = sphere.wrapped_normal(mean, 0.05, c, sample_shape=(5000,), generator=g)
    assert near.shape == (5000, 3)
    torch.testing.assert_close(
        sphere.dist_sq(mean, near, c).mean(), torch.tensor(2 * 0.05**2), rtol=0.1, atol=0
    )


def test_centroid_is_the_normalised_sum() -> None:
    c = 0.5
    x = points(6, 3, c).reshape(2, 3, 3)
    w = torch.tensor([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    m = sphere.centroid(x, w, c)
    torch.testing.assert_close(m[0], x[0, 0])
    torch.testing.assert_close(m, sphere.centroid(x, 7 * w, c))
    torch.testing.assert_close(
        sphere.centroid(x[:, :2], None, c), sphere.midpoint(x[:, 0], x[:, 1], c)
    )


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: sphere.dist(x, x[:, :2]), ValueError, "last dimension"),
        (lambda x: sphere.transport_from0(x, x), ValueError, "one coordinate fewer"),
        (lambda x: sphere.centroid(x, torch.ones(7)), ValueError, "weights"),
        (lambda x: sphere.centroid(x, [1.0]), TypeError, "weights"),
        (lambda x: sphere.centroid(x[0]), ValueError, "next to last"),
        (lambda x: sphere.pairwise_dist(x[0], x), ValueError, "rows"),
        (lambda x: sphere.pairwise_dist(x, x, torch.ones(5, 1)), ValueError, "one curvature"),
        (lambda x: sphere.rotate(x, torch.eye(2)), ValueError, "same last dimension"),
        (lambda x: sphere.rotate(x, torch.ones(2, 3)), ValueError, "matrix"),
        (lambda x: sphere.uniform(), ValueError, "shape"),
    ],
)
def test_bad_input(call, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(points(5, 3, 1.0))


def test_debug_finds_points_off_the_sphere() -> None:
    x = points(5, 3, 1.0)
    sphere.dist(x, 1.1 * x)
    with beltrami.debug():
        sphere.dist(x, x)
        sphere.project(1.1 * x)
        with pytest.raises(ValueError, match="y must lie on the sphere"):
            sphere.dist(x, 1.1 * x)
