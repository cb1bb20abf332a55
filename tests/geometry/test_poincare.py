"""What is special about the ball: gyrovectors, its border, its two frames, its sister models.

The laws it shares with all manifolds are in test_manifold.py, the manners of its functions in
test_public.py, its accuracy in tests/accuracy.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

import beltrami
from beltrami.geometry import ball, klein, lorentz, poincare, stereographic

F64 = torch.float64
CURVATURES = [0.01, 0.1, 1.0, 10.0]


def points(*shape: int, c: float = 1.0, radius: float = 2.0, dtype=F64, seed: int = 0):
    """Points with √c·distance uniform in (0, radius)."""
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(shape, dtype=F64, generator=g)
    r = radius * torch.rand(*shape[:-1], 1, dtype=F64, generator=g) / math.sqrt(c)
    return poincare.exp0(v / v.norm(dim=-1, keepdim=True) * r, c).to(dtype)


def vectors(*shape: int, scale: float = 0.1, dtype=F64, seed: int = 9):
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, dtype=dtype, generator=g)


def close(a, b, tol=1e-12):
    torch.testing.assert_close(a, b, rtol=tol, atol=tol)


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", CURVATURES)
def test_dist_agrees_with_the_textbook(c):
    x, y = points(20, 3, c=c), points(20, 3, c=c, seed=1)
    gaps = (1 - c * (x * x).sum(-1)) * (1 - c * (y * y).sum(-1))
    naive = torch.acosh(1 + 2 * c * (x - y).square().sum(-1) / gaps) / math.sqrt(c)
    close(poincare.dist(x, y, c), naive, 1e-10)
    close(poincare.dist0(x, c), poincare.dist(x, torch.zeros_like(x), c))
    close(poincare.dist0(x, c), poincare.log0(x, c).norm(dim=-1))


@pytest.mark.parametrize("c", CURVATURES)
def test_the_two_frames_at_the_origin(c):
    y, v = points(8, 3, c=c), vectors(8, 3)
    origin = torch.zeros_like(y)
    close(poincare.log(origin, y, c), poincare.log0(y, c) / 2)
    close(poincare.exp(origin, v / 2, c), poincare.exp0(v, c))
    close(poincare.transport_from0(y, v, c), poincare.transport(origin, y, v / 2, c))
    close(poincare.transport_to0(y, v, c), 2 * poincare.transport(y, origin, v, c))
    close(poincare.norm(y, poincare.transport_from0(y, v, c), c), v.norm(dim=-1))
    close(poincare.dist0(poincare.exp0(v, c), c), v.norm(dim=-1))


@pytest.mark.parametrize("c", CURVATURES)
def test_all_models_agree(c):
    """Distances are equal in all models; exp, log, transport and means commute with conversions."""
    x, y = points(12, 4, c=c), points(12, 4, c=c, seed=1)
    v = vectors(12, 4, scale=0.3) * (1 - c * (x * x).sum(-1, keepdim=True)) / math.sqrt(c)
    X, Y = poincare.to_lorentz(x, c), poincare.to_lorentz(y, c)
    V = poincare.to_lorentz_tangent(x, v, c)
    kx, ky = klein.from_poincare(x, c), klein.from_poincare(y, c)

    d = lorentz.dist(X, Y, c)
    close(poincare.dist(x, y, c), d)
    close(klein.dist(kx, ky, c), d, 1e-11)
    close(stereographic.dist(x, y, -c), d)
    close(poincare.pairwise_dist(x, y, c), lorentz.pairwise_dist(X, Y, c))

    close(poincare.from_lorentz(X, c), x)
    close(klein.to_lorentz(kx, c), X, 1e-11)
    close(klein.from_lorentz(X, c), kx)
    close(klein.to_poincare(kx, c), x, 1e-11)
    close(poincare.from_lorentz_tangent(X, V, c), v)
    close(poincare.inner(x, v, 2 * v, c), lorentz.inner(X, V, 2 * V, c), 1e-11)
    close(poincare.norm(x, v, c), lorentz.norm(X, V, c), 1e-11)

    for model, k in ((poincare, c), (stereographic, -c)):
        close(model.exp(x, v, k), poincare.from_lorentz(lorentz.exp(X, V, c), c), 1e-11)
        log = poincare.to_lorentz_tangent(x, model.log(x, y, k), c)
        close(log, lorentz.log(X, Y, c), 1e-10)
        moved = poincare.to_lorentz_tangent(y, model.transport(x, y, v, k), c)
        close(moved, lorentz.transport(X, Y, V, c), 1e-10)
        between = poincare.from_lorentz(lorentz.geodesic(X, Y, 0.3, c), c)
        close(model.geodesic(x, y, 0.3, k), between, 1e-11)
        middle = poincare.from_lorentz(lorentz.midpoint(X, Y, c), c)
        close(model.midpoint(x, y, k), middle, 1e-11)
        close(model.mobius_add(x, y, k), poincare.from_lorentz(lorentz.boost(Y, X, c), c), 1e-11)
    close(klein.to_poincare(klein.geodesic(kx, ky, 0.3, c), c), between, 1e-11)
    close(poincare.boost(y, x, c), poincare.mobius_add(x, y, c))
    close(klein.log0(kx, c), lorentz.log0(X, c), 1e-11)
    close(poincare.log0(x, c), lorentz.log0(X, c), 1e-11)
    close(poincare.exp0(v, c), poincare.from_lorentz(lorentz.exp0(v, c), c))
    close(klein.exp0(v, c), klein.from_lorentz(lorentz.exp0(v, c), c))


@pytest.mark.parametrize("c", CURVATURES)
def test_means_agree_in_all_models(c):
    x = points(3, 7, 4, c=c)
    w = torch.rand(3, 7, dtype=F64)
    X, k = poincare.to_lorentz(x, c), klein.from_poincare(x, c)
    mean = poincare.from_lorentz(lorentz.centroid(X, w, c), c)
    close(poincare.centroid(x, w, c), mean)
    close(poincare.gyromidpoint(x, 3 * w, c), mean)
    close(klein.to_poincare(klein.einstein_midpoint(k, w, c), c), mean, 1e-11)
    close(stereographic.centroid(x, w, -c), mean)
    factor = w[..., None] * poincare.conformal_factor(x, c, keepdim=True)
    textbook = (factor * x).sum(-2) / (factor - w[..., None]).sum(-2)
    close(mean, poincare.mobius_scalar(0.5, textbook, c))
    frechet = poincare.frechet_mean(x, w, c)
    pull = (w[..., None] * poincare.log(frechet[:, None], x, c)).sum(-2)
    close(pull, torch.zeros_like(pull), 1e-9)


def test_centroid_of_points_far_out_stays_among_them():
    """The textbook form divides by the root of a difference that rounds to 0 or below here."""
    for dtype, radius in ((torch.float32, 14.0), (F64, 33.0)):
        apart = 0.5 * radius / math.sinh(radius)  # half a unit of length, seen from the origin
        v = torch.tensor([[radius, 0.0], [radius, apart]], dtype=dtype)
        x = poincare.exp0(v)
        m = poincare.centroid(x)
        assert abs(poincare.dist0(m).item() - radius) < 1.0
        assert torch.isfinite(m).all()
        close(poincare.centroid(x[:1]), x[0], 4 * torch.finfo(dtype).eps)
        close(poincare.centroid(x.mT.flip(0).mT), m.flip(0), 4 * torch.finfo(dtype).eps)


def test_tends_to_euclidean_space():
    x, y, v = vectors(6, 3, seed=0), vectors(6, 3, seed=1), vectors(6, 3)
    for c in (1e-2, 1e-4, 1e-6):
        close(poincare.dist(x, y, c), 2 * (x - y).norm(dim=-1), c)
        close(poincare.exp(x, v, c), x + v, c)
        close(poincare.log(x, y, c), y - x, c)
        close(poincare.transport(x, y, v, c), v, c)
        close(poincare.mobius_add(x, y, c), x + y, c)


def test_curvature_broadcasts_per_head():
    c = torch.tensor([[0.3], [1.0], [2.0]], dtype=F64)
    x, y, v = vectors(5, 3, 4, seed=0), vectors(5, 1, 4, seed=1), vectors(5, 3, 4)
    for name, args in {"dist": (x, y), "log": (x, y), "transport": (x, y, v)}.items():
        f = getattr(poincare, name)
        heads = [f(x[:, i], y[:, 0], *(a[:, i] for a in args[2:]), float(c[i])) for i in range(3)]
        close(f(*args, c), torch.stack(heads, dim=1))
    sets = vectors(3, 6, 4)
    each = [poincare.centroid(sets[i], None, float(c[i])) for i in range(3)]
    close(poincare.centroid(sets, None, c), torch.stack(each))
    each = [poincare.frechet_mean(sets[i], None, float(c[i])) for i in range(3)]
    close(poincare.frechet_mean(sets, None, c), torch.stack(each))


# --- gyrovectors ----------------------------------------------------------------------------------

some_points = st.integers(0, 2**31 - 1)
some_c = st.floats(0.01, 10.0)
some_dim = st.integers(1, 5)


@settings(max_examples=40, deadline=None)
@given(seed=some_points, c=some_c, d=some_dim)
def test_gyrogroup_laws(seed, c, d):
    x, y, z = (points(4, d, c=c, seed=seed + i) for i in range(3))
    add, zero = poincare.mobius_add, torch.zeros(4, d, dtype=F64)
    scale = math.sqrt(c)  # compare in units of the radius

    def same(a, b):
        close(scale * a, scale * b, 1e-11)

    same(add(zero, x, c), x)
    same(add(x, zero, c), x)
    same(add(-x, x, c), zero)
    same(add(-x, add(x, y, c), c), y)  # left cancellation
    same(add(x, y, c), poincare.gyration(x, y, add(y, x, c), c))  # gyrocommutative
    same(add(x, add(y, z, c), c), add(add(x, y, c), poincare.gyration(x, y, z, c), c))
    turned = poincare.gyration(x, y, add(z, x, c), c)  # an automorphism
    same(turned, add(poincare.gyration(x, y, z, c), poincare.gyration(x, y, x, c), c))
    same(poincare.gyration(y, x, poincare.gyration(x, y, z, c), c), z)
    close(poincare.dist(add(x, y, c), add(x, z, c), c), poincare.dist(y, z, c), 1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=some_points, c=some_c, r=st.floats(-2, 2), t=st.floats(-2, 2))
def test_scalar_laws(seed, c, r, t):
    x = points(4, 3, c=c, radius=1.5, seed=seed)
    mul, add = poincare.mobius_scalar, poincare.mobius_add
    scale = math.sqrt(c)
    close(scale * mul(1.0, x, c), scale * x)
    close(scale * mul(2.0, x, c), scale * add(x, x, c), 1e-11)
    close(scale * mul(r + t, x, c), scale * add(mul(r, x, c), mul(t, x, c), c), 1e-10)
    close(scale * mul(r * t, x, c), scale * mul(r, mul(t, x, c), c), 1e-10)
    close(poincare.dist0(mul(r, x, c), c), abs(r) * poincare.dist0(x, c), 1e-10)


def test_gyration_is_a_rotation():
    u, v, w = points(9, 4), points(9, 4, seed=1), vectors(9, 4, scale=5.0)
    close(poincare.gyration(u, v, w).norm(dim=-1), w.norm(dim=-1))
    composed = poincare.mobius_add(
        -poincare.mobius_add(u, v), poincare.mobius_add(u, poincare.mobius_add(v, 0.01 * w))
    )
    close(poincare.gyration(u, v, 0.01 * w), composed)


def test_matvec():
    x, m, n = points(6, 3), vectors(5, 3, scale=1.0), vectors(2, 5, scale=1.0)
    both = poincare.mobius_matvec(n, poincare.mobius_matvec(m, x))
    close(both, poincare.mobius_matvec(n @ m, x), 1e-11)
    q = torch.linalg.qr(vectors(3, 3)).Q
    close(poincare.mobius_matvec(q, x), poincare.rotate(x, q))
    per_point = poincare.mobius_matvec(m.expand(6, 5, 3), x)
    close(per_point, poincare.mobius_matvec(m, x))


def test_matvec_where_the_image_is_zero():
    """M ⊗ x is smooth at Mx = 0: its derivative there is M times that of log0."""
    x = torch.tensor([0.0, 0.6], dtype=F64, requires_grad=True)
    m = torch.tensor([[1.0, 0.0], [2.0, 0.0]], dtype=F64, requires_grad=True)
    out = poincare.mobius_matvec(m, x)
    assert torch.equal(out, torch.zeros(2, dtype=F64))
    gm, gx = torch.autograd.grad(out.sum(), [m, x])
    stretch = math.atanh(0.6) / 0.6
    close(gx, torch.tensor([3 * stretch, 0.0], dtype=F64))
    close(gm, torch.tensor([[0.0, stretch * 0.6]] * 2, dtype=F64))
    assert gradcheck(poincare.mobius_matvec, (m, x))
    for zero in (torch.zeros(2, dtype=torch.float32), torch.zeros(2, dtype=F64)):
        z = zero.requires_grad_()
        (g,) = torch.autograd.grad(poincare.mobius_matvec(m.to(z.dtype), z).sum(), z)
        close(g, m.sum(0).to(z.dtype).detach())


# --- gradients ------------------------------------------------------------------------------------

TWO_POINT = {
    "dist": poincare.dist,
    "dist_sq": poincare.dist_sq,
    "log": poincare.log,
    "mobius_add": poincare.mobius_add,
    "midpoint": poincare.midpoint,
    "geodesic": lambda x, y, c: poincare.geodesic(x, y, 0.3, c),
    "transport": lambda x, y, c: poincare.transport(x, y, x + 2 * y + 1, c),
    "gyration": lambda x, y, c: poincare.gyration(x, y, x + 2 * y + 1, c),
    "exp": lambda x, y, c: poincare.exp(x, y - 2 * x, c),
    "pairwise_dist": lambda x, y, c: poincare.pairwise_dist(x, y, c),
    "centroid": lambda x, y, c: poincare.centroid(torch.stack([x, y, -x], dim=-2), None, c),
}


@pytest.mark.parametrize("name", TWO_POINT)
def test_gradients(name):
    x, y = points(3, 3).requires_grad_(), points(3, 3, seed=1).requires_grad_()
    c = torch.tensor([0.7], dtype=F64, requires_grad=True)
    assert gradcheck(TWO_POINT[name], (x, y, c))
    assert gradgradcheck(TWO_POINT[name], (x, y, c))


@pytest.mark.parametrize("name", ["conformal_factor", "dist0", "exp0", "log0", "to_lorentz"])
def test_gradients_of_one_point(name):
    x = points(3, 3).requires_grad_()
    c = torch.tensor([0.7], dtype=F64, requires_grad=True)
    assert gradcheck(getattr(poincare, name), (x, c))
    assert gradgradcheck(getattr(poincare, name), (x, c))


SMOOTH = ["dist_sq", "log", "mobius_add", "midpoint", "geodesic", "transport", "exp", "centroid"]


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("at", [0.0, 0.4])
def test_second_derivatives_at_coincident_points(name, at):
    x = torch.full((1, 2), at, dtype=F64, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    c = torch.tensor([0.7], dtype=F64, requires_grad=True)
    assert gradcheck(TWO_POINT[name], (x, y, c))
    assert gradgradcheck(TWO_POINT[name], (x, y, c))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("name", TWO_POINT)
def test_gradients_are_finite_at_singular_pairs(name, dtype):
    x = points(4, 3, dtype=dtype)
    far = poincare.project(x / x.norm(dim=-1, keepdim=True))
    zero = torch.zeros_like(x)
    pairs = [(x, x), (zero, zero), (zero, x), (x, zero), (x, -x), (x, x / 2), (zero, far)]
    if name not in ("mobius_add", "exp", "gyration"):  # of these the result is beyond the border
        pairs += [(far, far), (far, -far)]
    for a, b in pairs:
        a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
        c = torch.ones(1, dtype=dtype, requires_grad=True)
        out = TWO_POINT[name](a, b, c)
        grads = torch.autograd.grad(out.sum(), [a, b, c])
        assert all(torch.isfinite(t).all() for t in (out, *grads))


def test_dist_has_no_gradient_at_coincident_points_and_dist_sq_a_hessian():
    x = points(5, 3).requires_grad_()
    y = x.detach().clone()
    (g,) = torch.autograd.grad(poincare.dist(x, y).sum(), x)
    assert torch.equal(g, torch.zeros_like(g))
    jac = torch.func.jacrev
    h = jac(jac(lambda a: poincare.dist_sq(a, y[0])))(x[0].detach())
    factor = poincare.conformal_factor(y[0])
    close(h, 2 * factor**2 * torch.eye(3, dtype=F64))


def test_only_inputs_and_scalars_are_kept_for_backward():
    x, y = points(64, 16).requires_grad_(), points(64, 16, seed=1).requires_grad_()
    v = vectors(64, 16).requires_grad_()
    mine = {t.data_ptr() for t in (x, y, v)}
    calls = {
        "dist": lambda: poincare.dist(x, y),
        "log": lambda: poincare.log(x, y),
        "mobius_add": lambda: poincare.mobius_add(x, y),
        "transport": lambda: poincare.transport(x, y, v),
        "exp0": lambda: poincare.exp0(v),
    }
    for name, call in calls.items():
        wide = []

        def pack(t, wide=wide):
            if t.numel() > 64 and t.data_ptr() not in mine:
                wide.append(tuple(t.shape))
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            call()
        assert not wide, (name, wide)


@pytest.mark.slow
def test_compiles_with_a_learnable_curvature():
    x, y = points(6, 3), points(6, 3, seed=1)
    for name in ("dist", "log", "mobius_add", "centroid", "geodesic"):
        f = TWO_POINT[name]
        compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
        results = []
        for g in (f, compiled):
            c = torch.tensor([0.7], dtype=F64, requires_grad=True)
            a = x.clone().requires_grad_()
            out = g(a, y, c)
            results.append((out, *torch.autograd.grad(out.sum(), [a, c])))
        for e, r in zip(*results, strict=True):
            close(r, e)
        torch.compiler.reset()


# --- the border -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("c", [0.01, 1.0, 10.0])
def test_project_leaves_what_is_inside_and_pulls_the_rest(dtype, c):
    g = torch.Generator().manual_seed(0)
    for d in (1, 3, 64, 4096):
        u = torch.randn(50, d, generator=g, dtype=F64)
        u = u / u.norm(dim=-1, keepdim=True) / math.sqrt(c)
        inside = (0.9 * u).to(dtype)
        assert torch.equal(poincare.project(inside, c), inside)
        for factor in (1.0, 1.0 + 1e-4, 2.0, 1e3):
            out = poincare.project((factor * u).to(dtype), c)
            assert out.dtype == dtype
            assert torch.isfinite(poincare.dist0(out, c)).all()
            twice = poincare.project(out, c)
            torch.testing.assert_close(twice, out, rtol=4 * torch.finfo(dtype).eps, atol=0)
            r = poincare.dist0(out, c) * math.sqrt(c)
            assert (r > -math.log(8 * torch.finfo(dtype).eps)).all()
            close(out.double() / out.double().norm(dim=-1, keepdim=True), u * math.sqrt(c), 0.01)


def test_project_of_huge_points_and_gradients():
    x = torch.tensor([[3e30, 4e30], [0.3, 0.4], [0.0, 0.0]], requires_grad=True)
    out = poincare.project(x)
    close(out, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]), 1e-6)
    (g,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(g[1:], torch.ones(2, 2))
    assert torch.isfinite(g).all()
    y = torch.tensor([[3.0, 4.0]], dtype=F64, requires_grad=True)
    assert gradcheck(poincare.project, (y,))


def test_debug_finds_points_outside():
    x = torch.tensor([[0.1, 0.2], [1.2, 0.0], [0.9, 0.9]])
    assert poincare.mobius_add(x, x).shape == x.shape  # not looked at by default
    with beltrami.debug():
        for call in (
            lambda: poincare.dist(x, x / 10),
            lambda: poincare.log(x / 10, x),
            lambda: poincare.log0(x),
            lambda: klein.dist0(x),
            lambda: stereographic.dist0(x, -1.0),
        ):
            with pytest.raises(ValueError, match=r"2 points outside.*1\.27.*project"):
                call()
        poincare.project(x)
        poincare.exp(x / 10, 100 * x)  # a vector is not a point
        poincare.dist(x, x, 0.1)
        stereographic.dist0(x, torch.tensor([1.0]))


@pytest.mark.parametrize(("dtype", "radius"), [(torch.float32, 15.0), (F64, 35.0)])
@pytest.mark.parametrize("c", CURVATURES)
def test_distances_out_to_the_border(dtype, radius, c):
    """Opposite points at the largest radius are twice as far apart, up to eps·cosh(radius)."""
    v = torch.tensor([[radius / math.sqrt(c), 0.0]], dtype=dtype)
    x = poincare.exp0(v, c).requires_grad_()
    d = poincare.dist(x, -x, c)
    slack = torch.finfo(dtype).eps * math.cosh(radius)
    assert abs(d.item() * math.sqrt(c) - 2 * radius) < 4 * slack
    (g,) = torch.autograd.grad(d.sum(), x)
    assert torch.isfinite(g).all()
    assert g[0, 0] > 0


# --- pairwise -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_pairwise_dist_equals_dist(dtype, monkeypatch):
    monkeypatch.setattr(ball, "_BLOCK_ELEMENTS", 3 * 6 * 4)  # several blocks
    x, y = points(2, 8, 4, dtype=dtype), points(1, 6, 4, dtype=dtype, seed=1)
    tol = 50 * torch.finfo(dtype).eps
    results = []
    for f in (
        poincare.pairwise_dist,
        lambda a, b, c: poincare.dist(a[..., None, :], b[..., None, :, :], c[..., None, :]),
    ):
        a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
        c = torch.tensor([[[0.5]], [[0.9]]], dtype=dtype, requires_grad=True)
        out = f(a, b, c)
        results.append((out, *torch.autograd.grad(out.sum(), [a, b, c])))
    for mine, plain in zip(*results, strict=True):
        torch.testing.assert_close(mine, plain, rtol=tol, atol=tol)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_pairwise_dist_of_a_set_with_itself(dtype):
    """The diagonal is 0 and adds no gradient; pairs next to it keep their digits."""
    x = points(7, 5, radius=5.0, dtype=dtype)
    x = torch.cat([x, x + 1e-5 * torch.ones_like(x) * (1 - (x * x).sum(-1, keepdim=True))])
    a = x.clone().requires_grad_()
    d = poincare.pairwise_dist(a, a)
    assert torch.equal(d.diagonal(), torch.zeros(14, dtype=dtype))
    tol = 100 * torch.finfo(dtype).eps
    torch.testing.assert_close(d[:7, 7:].diagonal(), poincare.dist(x[:7], x[7:]), rtol=tol, atol=0)
    (g,) = torch.autograd.grad(d.sum(), a)
    b = x.clone().requires_grad_()
    (plain,) = torch.autograd.grad(poincare.dist(b[:, None], b).sum(), b)
    torch.testing.assert_close(g, plain, rtol=tol, atol=tol * float(plain.abs().max()))


def test_pairwise_dist_ignores_autocast_and_checks_shapes():
    x = points(6, 4, dtype=torch.float32).requires_grad_()
    plain = poincare.pairwise_dist(x, 0.9 * x)
    (expected,) = torch.autograd.grad(plain.sum(), x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = poincare.pairwise_dist(x, 0.9 * x)
        (g,) = torch.autograd.grad(out.sum(), x)
        m = torch.eye(4) * 0.5
        close(poincare.mobius_matvec(m, x), poincare.mobius_scalar(0.5, x), 1e-6)
    assert torch.equal(out, plain)
    assert torch.equal(g, expected)
    with pytest.raises(ValueError, match="rows of points"):
        poincare.pairwise_dist(x, x[0])
    with pytest.raises(ValueError, match="one curvature a set"):
        poincare.pairwise_dist(x, x, torch.ones(6, 1))


# --- random points --------------------------------------------------------------------------------


def test_random_points_follow_the_same_laws_as_in_the_lorentz_model():
    c, mean = 0.7, points(5, 3, c=0.7)
    kwargs = {"sample_shape": (4,), "std": 0.6, "c": c}
    x = poincare.wrapped_normal(mean, **kwargs, generator=torch.Generator().manual_seed(3))
    y = lorentz.wrapped_normal(
        poincare.to_lorentz(mean, c), **kwargs, generator=torch.Generator().manual_seed(3)
    )
    assert x.shape == (4, 5, 3)
    close(x, poincare.from_lorentz(y, c), 1e-10)
    log_prob = lorentz.wrapped_normal_log_prob(y, poincare.to_lorentz(mean, c), 0.6, c)
    close(poincare.wrapped_normal_log_prob(x, mean, 0.6, c), log_prob, 1e-9)
    u = poincare.uniform_ball(
        2000, 3, radius=2.0, c=c, dtype=F64, generator=torch.Generator().manual_seed(1)
    )
    r = poincare.dist0(u, c)
    assert r.max() <= 2.0
    assert abs(lorentz.dist0(poincare.to_lorentz(u, c), c).mean() - r.mean()) < 1e-9
    assert 1.5 < r.mean() < 1.8  # ∫ r·sinh²(√c·r) over [0, 2] is 1.62 of its mass


def test_change_of_curvature_keeps_scaled_distances():
    x, y = points(5, 3, c=0.3), points(5, 3, c=0.3, seed=1)
    a, b = (poincare.change_curvature(p, 0.3, 2.0) for p in (x, y))
    close(poincare.dist(a, b, 2.0) * 2.0**0.5, poincare.dist(x, y, 0.3) * 0.3**0.5)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: poincare.dist(x, x[:, :2]), ValueError, "same last dimension"),
        (lambda x: poincare.dist(x, x, -1.0), ValueError, "c must be a positive"),
        (lambda x: poincare.dist(x.long(), x), TypeError, "floating point"),
        (lambda x: poincare.mobius_matvec(x[0], x), ValueError, "matrix must have shape"),
        (lambda x: poincare.centroid(x, torch.ones(4)), ValueError, "weights must have shape"),
        (lambda x: poincare.centroid(x[0]), ValueError, "x must hold"),
    ],
)
def test_bad_input(call, error, match):
    with pytest.raises(error, match=match):
        call(points(3, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [1, 3])
def test_gradients_of_a_step_that_ends_on_the_border_are_finite(
    dtype: torch.dtype, dim: int
) -> None:
    """A step of more than the dtype has room for: the sum saturates, and so do its gradients."""
    unit = torch.nn.functional.normalize(torch.randn(200, dim, dtype=dtype), dim=-1)
    x = poincare.project(poincare.exp0(10 * unit.flip(0))).requires_grad_()
    v = (unit * torch.linspace(5, 100, 200, dtype=dtype).unsqueeze(-1)).requires_grad_()
    c = torch.ones(1, dtype=dtype, requires_grad=True)
    end = poincare.exp0(v, c)
    for out in (
        poincare.mobius_add(x, end, c),
        poincare.boost(end, x, c),
        poincare.exp(x, v, c),
        stereographic.exp(x, v, -c),
        poincare.gyration(end, x, unit, c),
        poincare.midpoint(x, end, c),
    ):
        grads = torch.autograd.grad(out.sum(), [x, v, c], retain_graph=True)
        assert all(bool(t.isfinite().all()) for t in (out, *grads))
