import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.functional import hessian

from beltrami.geometry import lorentz

F64 = torch.float64
TWO_POINT = ["chord_sq", "dist_sq", "dist", "log", "midpoint", "minkowski", "boost"]


def points(*shape: int, radius: float = 1.5, dtype: torch.dtype = F64, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    return lorentz.uniform_ball(*shape, radius=radius, dtype=dtype, generator=g)


def naive_dist(x, y, c=1.0):
    """The textbook form, good at moderate distances in float64."""
    inner = (x * y).sum(-1) - lorentz.time(x, c) * lorentz.time(y, c)
    return torch.acosh(-c * inner) / c**0.5


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [0.01, 0.5, 1.0, 7.0])
def test_dist_agrees_with_the_textbook(c):
    x, y = points(100, 5, seed=1), points(100, 5, seed=2)
    torch.testing.assert_close(lorentz.dist(x, y, c), naive_dist(x, y, c))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("radius", [1e-3, 1.0, 10.0, 40.0])
def test_dist_is_exactly_symmetric_and_zero(dtype, radius):
    x, y = points(50, 7, radius=radius, dtype=dtype), points(50, 7, radius=radius, dtype=dtype)
    y = y.flip(0)
    assert torch.equal(lorentz.dist(x, y), lorentz.dist(y, x))
    assert torch.equal(lorentz.dist(x, x), torch.zeros(50, dtype=dtype))


@given(
    st.integers(1, 9),
    st.floats(1e-3, 30.0),
    st.sampled_from([0.01, 0.3, 1.0, 10.0]),
    st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_laws_hold_for_any_points(dim, radius, c, seed):
    x, y, z = points(3, 4, dim, radius=radius, dtype=F64, seed=seed) / c**0.5
    d = lorentz.dist
    assert (d(x, z, c) <= d(x, y, c) + d(y, z, c) + 1e-12 * radius / c**0.5).all()
    # log and dist measure the same length, as far as coordinates resolve it
    resolved = 1e-15 * math.cosh(radius) * 64
    torch.testing.assert_close(
        lorentz.norm(x, lorentz.log(x, y, c), c), d(x, y, c), rtol=max(1e-12, resolved), atol=0
    )
    torch.testing.assert_close(d(x, y, c), naive_far(x, y, c), rtol=1e-6, atol=resolved * 10)


def naive_far(x, y, c):
    """dist through q, with the products in extended precision by exact splitting into integers."""
    import mpmath

    out = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        with mpmath.workdps(80):
            dot = mpmath.fdot(a, b)
            ta = mpmath.sqrt(1 / mpmath.mpf(c) + mpmath.fdot(a, a))
            tb = mpmath.sqrt(1 / mpmath.mpf(c) + mpmath.fdot(b, b))
            out.append(float(mpmath.acosh(c * (ta * tb - dot)) / mpmath.sqrt(c)))
    return torch.tensor(out, dtype=F64)


def test_curvature_broadcasts_per_head():
    x, y = points(6, 3, 4, seed=1), points(6, 3, 4, seed=2)
    c = torch.tensor([[0.1], [1.0], [5.0]], dtype=F64)
    together = lorentz.dist(x, y, c)
    for head in range(3):
        alone = lorentz.dist(x[:, head], y[:, head], c[head].item())
        torch.testing.assert_close(together[:, head], alone)


@pytest.mark.parametrize("name", ["dist", "dist_sq", "chord_sq", "minkowski", "log", "boost"])
def test_points_broadcast(name):
    x, y = points(5, 1, 3, seed=1), points(4, 3, seed=2)
    f = getattr(lorentz, name)
    full = f(x.expand(5, 4, 3), y.expand(5, 4, 3))
    torch.testing.assert_close(f(x, y), full)
    x.requires_grad_()
    f(x, y).sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("c", [1e-2, 1e-4, 1e-6])
def test_tends_to_euclidean_space(c):
    x, y, v = points(20, 4, seed=1), points(20, 4, seed=2), points(20, 4, seed=3)
    size = 20.0 * c  # O(c), with room for the sizes of the points
    assert (lorentz.dist(x, y, c) - (x - y).norm(dim=-1)).abs().max() < size
    assert (lorentz.exp(x, v, c) - (x + v)).abs().max() < size
    assert (lorentz.log(x, y, c) - (y - x)).abs().max() < size
    assert (lorentz.transport(x, y, v, c) - v).abs().max() < size
    assert (lorentz.geodesic(x, y, 0.3, c) - torch.lerp(x, y, 0.3)).abs().max() < size
    assert (lorentz.boost(x, y, c) - (x + y)).abs().max() < size
    assert lorentz.excess_time(x, c).abs().max() < size / c**0.5
    mean = lorentz.frechet_mean(torch.stack([x, y, v], -2), None, c)
    assert (mean - (x + y + v) / 3).abs().max() < size


def test_isometries_compose_and_invert():
    x, y, p, q = (points(30, 3, seed=s) for s in range(4))
    c = 0.6
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=F64))[0]
    moved = [lorentz.boost(lorentz.rotate(a, rotation), p, c) for a in (x, y)]
    torch.testing.assert_close(lorentz.dist(*moved, c), lorentz.dist(x, y, c))
    torch.testing.assert_close(lorentz.boost(lorentz.boost(x, p, c), -p, c), x)
    # the boosts by p and then q differ from the boost by the sum only by a rotation
    both = lorentz.boost(lorentz.boost(x, p, c), q, c)
    once = lorentz.boost(x, lorentz.boost(p, q, c), c)
    torch.testing.assert_close(
        lorentz.dist(both, lorentz.boost(p, q, c), c), lorentz.dist(once, lorentz.boost(p, q, c), c)
    )


def test_log_is_carried_to_the_origin_by_a_boost():
    x, y = points(30, 3, seed=1), points(30, 3, seed=2)
    carried = lorentz.transport_to0(x, lorentz.log(x, y, 2.0), 2.0)
    torch.testing.assert_close(carried, lorentz.log0(lorentz.boost(y, -x, 2.0), 2.0))
    torch.testing.assert_close(lorentz.transport_from0(x, carried, 2.0), lorentz.log(x, y, 2.0))


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("name", TWO_POINT)
def test_gradients_of_two_point_functions(name, scale):
    x, y = points(6, 3, seed=1) * scale, points(6, 3, seed=2) * scale
    c = torch.tensor([0.7], dtype=F64, requires_grad=True)
    f = getattr(lorentz, name)
    args = (x.requires_grad_(), y.requires_grad_(), c)
    assert gradcheck(f, args)
    assert gradgradcheck(f, args)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("name", TWO_POINT)
@pytest.mark.parametrize(
    "pair",
    ["equal", "both origin", "origin first", "origin second", "opposite", "collinear", "far"],
)
def test_gradients_are_finite_at_singular_pairs(name, pair, dtype):
    x = points(4, 8, dtype=dtype)
    zero = torch.zeros_like(x)
    far = torch.nn.functional.normalize(x, dim=-1) * math.sinh(40.0)
    a, b = {
        "equal": (x, x.clone()),
        "both origin": (zero, zero.clone()),
        "origin first": (zero, x),
        "origin second": (x, zero),
        "opposite": (x, -x),
        "collinear": (x, 2 * x),
        "far": (far, -far / 2),
    }[pair]
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    c = torch.ones(1, dtype=dtype, requires_grad=True)
    out = getattr(lorentz, name)(a, b, c)
    if name == "boost" and pair == "far":
        a_far = lorentz.boost(a, -b, c)  # the other way it leaves the range of float32
        out = a_far if dtype == torch.float32 else out
    grads = torch.autograd.grad(out.sum(), (a, b, c), allow_unused=True)
    assert torch.isfinite(out).all()
    assert all(g is None or torch.isfinite(g).all() for g in grads)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("scale", [0.0, 0.02, 5.0])
@pytest.mark.parametrize("name", ["chord_sq", "dist_sq", "log", "midpoint", "boost"])
def test_second_derivatives_with_a_point_at_or_near_the_origin(name, scale, dim):
    y = points(3, dim, radius=2.0, seed=1)
    c = torch.tensor([0.7], dtype=F64, requires_grad=True)
    f = getattr(lorentz, name)
    for a, b in ((scale * y, y), (y, scale * y)):
        args = (a.clone().requires_grad_(), b.clone().requires_grad_(), c)
        assert gradcheck(f, args)
        assert gradgradcheck(f, args)


def test_points_too_small_to_square_do_not_overflow():
    tiny = torch.tensor([0.0, 1e-22], requires_grad=True)
    far = lorentz.exp0(torch.tensor([39.0, 1.0])).requires_grad_()
    d = lorentz.dist(tiny, far)
    torch.testing.assert_close(d, lorentz.dist0(far))
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(d, (tiny, far)))


def test_dist_has_no_gradient_at_coincident_points():
    x = points(4, 3).requires_grad_()
    lorentz.dist(x, x.detach().clone()).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))
    origin = torch.zeros(4, 3, requires_grad=True)
    lorentz.dist0(origin).sum().backward()
    assert torch.equal(origin.grad, torch.zeros(4, 3))


@pytest.mark.parametrize("f", [lorentz.exp0, lorentz.log0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, F64])
def test_maps_at_the_origin_have_the_identity_as_derivative(f, dtype):
    jacobian = torch.autograd.functional.jacobian(f, torch.zeros(3, dtype=dtype))
    assert torch.equal(jacobian, torch.eye(3, dtype=dtype))


def test_hessian_of_squared_distance_at_the_origin_and_far_from_it():
    zero, far = torch.zeros(3, dtype=F64), torch.tensor([3.0, 0.0, 1.0], dtype=F64)
    eye = 2 * torch.eye(3, dtype=F64)
    (xx, xy), (yx, yy) = hessian(lorentz.dist_sq, (zero, zero))
    for block, sign in ((xx, 1), (yy, 1), (xy, -1), (yx, -1)):
        torch.testing.assert_close(block, sign * eye)
    # at coincident points it is twice the metric
    metric = torch.eye(3, dtype=F64) - torch.outer(far, far) / (1 + far @ far)
    torch.testing.assert_close(hessian(lorentz.dist_sq, (far, far))[0][0], 2 * metric)
    for a, b in ((zero, far), (far, zero), (far / 100, far), (far, far / 100)):
        ours = hessian(lorentz.dist_sq, (a, b))
        textbook = hessian(lambda x, y: naive_dist(x, y) ** 2, (a, b))
        for i in range(2):
            for j in range(2):
                torch.testing.assert_close(ours[i][j], textbook[i][j])


def test_dist_keeps_only_its_inputs_for_backward():
    x, y = points(100, 16).requires_grad_(), points(100, 16).requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        lorentz.dist(x, y)
    inputs = {x.data_ptr(), y.data_ptr()}
    extra = [t for t in saved if t.data_ptr() not in inputs]
    assert all(t.shape == (100, 1) for t in extra)  # scalars a row, never a row
    assert len(extra) == 1


# --- means ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [lorentz.centroid, lorentz.frechet_mean])
@pytest.mark.parametrize("radius", [1e-3, 1.0, 10.0])
def test_means_are_invariant(mean, radius):
    x = points(5, 6, 3, radius=radius)
    w = torch.rand(5, 6, dtype=F64, generator=torch.Generator().manual_seed(3))
    m = mean(x, w, 0.7)
    order = torch.randperm(6)
    tolerance = {"rtol": 1e-9, "atol": 1e-13}
    torch.testing.assert_close(mean(x[:, order], w[:, order], 0.7), m, **tolerance)
    torch.testing.assert_close(mean(x, 3 * w, 0.7), m, **tolerance)
    p = points(5, 1, 3, seed=9)
    moved = lorentz.boost(x, p, 0.7)
    torch.testing.assert_close(mean(moved, w, 0.7), lorentz.boost(m, p[:, 0], 0.7), **tolerance)
    torch.testing.assert_close(
        mean(x[:, :2], None, 0.7), lorentz.midpoint(x[:, 0], x[:, 1], 0.7), **tolerance
    )


def test_means_of_equal_points_and_of_balanced_ones():
    x = points(4, 3)
    for mean in (lorentz.centroid, lorentz.frechet_mean):
        torch.testing.assert_close(mean(x[:, None].expand(4, 5, 3)), x)
        balanced = torch.stack([x, -x], dim=1)
        torch.testing.assert_close(mean(balanced), torch.zeros_like(x))
        assert torch.equal(mean(torch.zeros(2, 3, 4)), torch.zeros(2, 4))


def test_centroid_minimises_squared_chords_and_frechet_squared_distances():
    x, w = points(5, 3), torch.rand(5, dtype=F64)
    for mean, energy in (
        (lorentz.centroid, lorentz.chord_sq),
        (lorentz.frechet_mean, lorentz.dist_sq),
    ):
        m = mean(x, w).requires_grad_()
        (g,) = torch.autograd.grad((w * energy(m, x)).sum(), m)
        assert g.abs().max() < 1e-12


@pytest.mark.slow
def test_means_have_right_gradients():
    x = points(2, 4, 3).requires_grad_()
    w = torch.rand(2, 4, dtype=F64).add(0.1).requires_grad_()
    c = torch.tensor([0.7], dtype=F64, requires_grad=True)
    for mean in (lorentz.centroid, lorentz.frechet_mean):
        assert gradcheck(mean, (x, w, c))
    special = torch.zeros(2, 4, 3, dtype=F64)  # points at the origin, and a set that balances
    special[0, 1:] = x.detach()[0, 1:]
    special[1, 1] = torch.tensor([0.3, 0.0, 0.0])
    special[1, 2] = -special[1, 1]
    for points_ in (x, special.requires_grad_()):
        assert gradgradcheck(lorentz.centroid, (points_, w, c))


@pytest.mark.parametrize("spread", ["one-hot", "even"])
def test_float32_centroid_far_out(spread):
    """Where the textbook's t² − |s|² has no digit left: |x| up to 1000."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(8, 64, 32, generator=g)
    x = x / x.norm(dim=-1, keepdim=True) * torch.logspace(0, 3, 64)[:, None]
    w = torch.zeros(8, 64) if spread == "one-hot" else torch.rand(8, 64, generator=g)
    w[:, 63] = 1.0
    ours, exact = lorentz.centroid(x, w), lorentz.centroid(x.double(), w.double())
    assert ((ours - exact).norm(dim=-1) / exact.norm(dim=-1)).max() < 1e-6


# --- all pairs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_pairwise_dist_equals_dist(dtype):
    x, y = (
        points(2, 7, 5, radius=3.0, dtype=dtype),
        points(2, 9, 5, radius=3.0, dtype=dtype, seed=1),
    )
    c = torch.tensor([0.4], dtype=dtype, requires_grad=True)
    args = (x.requires_grad_(), y.requires_grad_(), c)
    pair = lorentz.dist(x[:, :, None], y[:, None], c)
    out = lorentz.pairwise_dist(*args)
    torch.testing.assert_close(out, pair)
    cotangent = torch.rand_like(out)
    for ours, theirs in zip(
        torch.autograd.grad(out, args, cotangent),
        torch.autograd.grad(pair, args, cotangent),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_pairwise_dist_in_blocks(monkeypatch):
    from beltrami.geometry.lorentz import pairwise

    x, y = points(7, 5), points(9, 5, seed=1)
    whole = lorentz.pairwise_dist(x, y)
    monkeypatch.setattr(pairwise, "_BLOCK_ELEMENTS", 100)
    torch.testing.assert_close(lorentz.pairwise_dist(x, y), whole)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_pairwise_dist_of_a_set_with_itself(dtype):
    x = points(20, 5, radius=4.0, dtype=dtype)
    x[:2] = 0.0  # as rows of padding are
    x.requires_grad_()
    c = torch.ones(1, dtype=dtype, requires_grad=True)
    d = lorentz.pairwise_dist(x, x, c)
    assert d.diagonal().max() <= (4e-8 * math.sinh(4.0) if dtype == torch.float32 else 0.0)
    d.sum().backward()
    assert torch.isfinite(x.grad).all()
    assert torch.isfinite(c.grad).all()
    assert x.grad.norm(dim=-1).max() < 45.0  # forty unit gradients at most


def test_pairwise_dist_ignores_autocast():
    x = points(20, 5, radius=3.0, dtype=torch.float32)
    exact = lorentz.pairwise_dist(x, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(lorentz.pairwise_dist(x, x), exact)
        assert torch.equal(lorentz.rotate(x, torch.eye(5)), x)


# --- sampling -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dim", "radius", "c"), [(1, 3.0, 1.0), (2, 8.0, 1.0), (64, 0.01, 1.0), (64, 3.0, 0.5)]
)
def test_uniform_ball_follows_the_volume(dim, radius, c):
    n = 20000
    x = points_of(dim, radius, c, n)
    r = lorentz.dist0(x, c).sort().values
    grid = torch.linspace(0, radius, 100001, dtype=F64)[1:]
    log_density = (dim - 1) * torch.log(torch.sinh(c**0.5 * grid))
    cdf = torch.exp(log_density - log_density[-1]).cumsum(0)
    expected = (cdf / cdf[-1])[(r / radius * 1e5).long().clamp(0, 99999)]
    distance = (expected - torch.linspace(0, 1, n, dtype=F64)).abs().max()
    assert distance * n**0.5 < 1.8  # Kolmogorov-Smirnov, 0.3 percent
    assert r[-1] <= radius * (1 + 1e-9)


def points_of(dim, radius, c, n):
    g = torch.Generator().manual_seed(dim)
    return lorentz.uniform_ball(n, dim, radius=radius, c=c, dtype=F64, generator=g)


def test_wrapped_normal_density_keeps_its_digits_far_out():
    """With a standard deviation a coordinate, which looks at the direction from the mean."""
    x, mean = (
        lorentz.exp0(6 * torch.nn.functional.normalize(torch.randn(200, 4, dtype=F64), dim=-1))
        for _ in range(2)
    )
    args = x.float(), mean.float(), torch.linspace(0.5, 2.0, 4)
    exact = lorentz.wrapped_normal_log_prob(*(t.double() for t in args))
    error = (lorentz.wrapped_normal_log_prob(*args).double() - exact) / exact
    assert error.abs().median() < 1e-6


def test_wrapped_normal_has_the_spread_it_is_given():
    mean = lorentz.exp0(torch.tensor([0.7, -0.3], dtype=F64))
    g = torch.Generator().manual_seed(0)
    x = lorentz.wrapped_normal(mean, 0.5, 2.0, sample_shape=(50000,), generator=g)
    v = lorentz.log0(lorentz.boost(x, -mean, 2.0), 2.0)
    torch.testing.assert_close(v.std(0), torch.full((2,), 0.5, dtype=F64), rtol=0.02, atol=0)
    torch.testing.assert_close(v.mean(0), torch.zeros(2, dtype=F64), rtol=0, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("std", [0.5, torch.tensor([0.4, 0.8], dtype=F64)])
def test_wrapped_normal_density_integrates_to_one(std):
    c, mean = 1.5, lorentz.exp0(torch.tensor([0.7, -0.3], dtype=F64), 1.5)
    # polar grid of the plane: the volume element is sinh(√c·r)/√c·dr·dφ
    r = torch.linspace(0, 8, 801, dtype=F64)[1:] - 0.005
    phi = torch.linspace(0, 2 * math.pi, 401, dtype=F64)[1:]
    v = torch.stack([r[:, None] * phi.cos(), r[:, None] * phi.sin()], -1)
    density = lorentz.wrapped_normal_log_prob(lorentz.exp0(v, c), mean, std, c).exp()
    mass = (density * (torch.sinh(c**0.5 * r) / c**0.5)[:, None]).sum() * 0.01 * (2 * math.pi / 400)
    assert mass.item() == pytest.approx(1.0, abs=1e-3)


# --- compilers ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dist", "log"])
def test_inductor(name):
    x, y = points(64, 16, dtype=torch.float32), points(64, 16, dtype=torch.float32, seed=1)
    x.requires_grad_()
    f = getattr(lorentz, name)
    out = torch.compile(f, fullgraph=True)(x, y, 0.5)
    eager = f(x, y, 0.5)
    torch.testing.assert_close(out, eager)
    torch.testing.assert_close(
        torch.autograd.grad(out.sum(), x)[0], torch.autograd.grad(eager.sum(), x)[0]
    )
