"""The κ-stereographic model: its limits, and smoothness where the curvature changes its sign.

Laws shared by all manifolds are in test_manifold.py, manners in test_public.py.
"""

import math

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from beltrami.geometry import poincare, radial_signed, sphere, stereographic

F64 = torch.float64
SIGNS = [-1.3, -0.1, -1e-3, -1e-9, 0.0, 1e-9, 1e-3, 0.1, 1.3]


def vectors(*shape: int, scale: float = 0.3, seed: int = 0, dtype=F64):
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, dtype=dtype, generator=g)


def close(a, b, tol=1e-12):
    torch.testing.assert_close(a, b, rtol=tol, atol=tol)


X, Y, V = vectors(5, 3), vectors(5, 3, seed=1), vectors(5, 3, seed=2)
CALLS = {
    "conformal_factor": (X,),
    "inner": (X, V, Y),
    "norm": (X, V),
    "riemannian_grad": (X, V),
    "dist": (X, Y),
    "dist_sq": (X, Y),
    "dist0": (X,),
    "pairwise_dist": (X, Y),
    "exp0": (V,),
    "log0": (X,),
    "exp": (X, V),
    "log": (X, Y),
    "geodesic": (X, Y, 0.3),
    "transport": (X, Y, V),
    "transport_from0": (Y, V),
    "transport_to0": (X, V),
    "mobius_add": (X, Y),
    "gyration": (X, Y, V),
    "midpoint": (X, Y),
    "centroid": (X, torch.tensor([1.0, 2.0, 0.5, 1.0, 0.1], dtype=F64)),
}
every_call = pytest.mark.parametrize("name", CALLS)


def call(name, kappa, args=None):
    return getattr(stereographic, name)(*(CALLS[name] if args is None else args), kappa)


# --- the signed radial functions ------------------------------------------------------------------

MP = {"tanhc": (mpmath.tanh, mpmath.tan), "atanhc": (mpmath.atanh, mpmath.atan)}


def exact(name, q):
    hyperbolic, trigonometric = MP[name]
    if q == 0:
        return mpmath.mpf(1)
    z = mpmath.sqrt(abs(q))
    return (hyperbolic if q > 0 else trigonometric)(z) / z


@pytest.mark.parametrize("name", MP)
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_signed_functions_and_their_derivatives(name, dtype):
    grid = [1e-8, 1e-3, 0.1, 0.2499, 0.2501, 0.5, 0.9, 0.9999]
    q = torch.tensor([*(-g for g in grid), -1.0001, -2.0, 0.0, *grid], dtype=dtype)
    if name == "atanhc":
        q = torch.cat([q, torch.tensor([-30.0, -1e6], dtype=dtype)])
    else:
        q = torch.cat([q, torch.tensor([30.0, 1e4], dtype=dtype)])
    f = getattr(radial_signed, f"{name}_signed")
    prime = getattr(radial_signed, f"{name}_signed_prime")
    eps = torch.finfo(dtype).eps
    at = q.clone().requires_grad_()
    (slope,) = torch.autograd.grad(f(at).sum(), at)
    with mpmath.workdps(50):
        for i, p in enumerate(q.tolist()):
            p = mpmath.mpf(p)
            truth = exact(name, p)
            assert abs(f(q)[i].item() / truth - 1) < 8 * eps
            h = mpmath.mpf(10) ** -15
            derivative = (exact(name, p + h) - exact(name, p - h)) / (2 * h)
            # Close to the pole of atanh, 1 − q is as well conditioned as q is.
            scale = max(1.0, 1 / abs(1 - float(p))) if name == "atanhc" else 1.0
            assert abs(prime(q)[i].item() / derivative - 1) < 32 * eps * scale
            assert abs(slope[i].item() / derivative - 1) < 100 * eps * scale


def test_signed_functions_are_smooth_at_zero():
    q = torch.tensor([0.0, 1e-9, -1e-9, 0.2, -0.2], dtype=F64, requires_grad=True)
    for f in (radial_signed.tanhc_signed, radial_signed.atanhc_signed):
        assert gradcheck(f, (q,))
        assert gradgradcheck(f, (q,))


# --- limits ---------------------------------------------------------------------------------------


@every_call
@pytest.mark.parametrize("c", [0.01, 0.1, 1.0])
def test_negative_curvature_is_the_poincare_ball(name, c):
    close(call(name, -c), getattr(poincare, name)(*CALLS[name], c), 1e-11)
    mixed = torch.tensor([-c], dtype=F64)
    close(call(name, mixed), call(name, -c))


def test_zero_curvature_is_flat():
    """With the metric 4|dx|²: coordinates are half of Euclidean ones."""
    flat = {
        "conformal_factor": torch.full((5,), 2.0, dtype=F64),
        "inner": 4 * (V * Y).sum(-1),
        "norm": 2 * V.norm(dim=-1),
        "riemannian_grad": V / 4,
        "dist": 2 * (X - Y).norm(dim=-1),
        "dist_sq": 4 * (X - Y).square().sum(-1),
        "dist0": 2 * X.norm(dim=-1),
        "pairwise_dist": 2 * torch.cdist(X, Y),
        "exp0": V / 2,
        "log0": 2 * X,
        "exp": X + V,
        "log": Y - X,
        "geodesic": X + 0.3 * (Y - X),
        "transport": V,
        "transport_from0": V / 2,
        "transport_to0": 2 * V,
        "mobius_add": X + Y,
        "gyration": V,
        "midpoint": (X + Y) / 2,
        "centroid": (CALLS["centroid"][1] @ X) / CALLS["centroid"][1].sum(),
    }
    assert set(flat) == set(CALLS)
    for name, value in flat.items():
        close(call(name, 0.0), value)
        close(call(name, torch.zeros(1, dtype=F64)), value)


@pytest.mark.parametrize("k", [0.1, 1.0, 10.0])
def test_positive_curvature_is_the_sphere(k):
    p, q = stereographic.to_sphere(X, k), stereographic.to_sphere(Y, k)
    close(p.norm(dim=-1), torch.full((5,), k**-0.5, dtype=F64))
    close(stereographic.from_sphere(p, k), X)
    close(stereographic.dist(X, Y, k), sphere.dist(p, q, k))
    close(stereographic.dist_sq(X, Y, k), sphere.dist_sq(p, q, k))
    close(stereographic.dist0(X, k), sphere.dist0(p, k))
    close(stereographic.pairwise_dist(X, Y, k), sphere.pairwise_dist(p, q, k))
    close(stereographic.to_sphere(stereographic.exp0(V, k), k), sphere.exp0(V, k))
    close(stereographic.log0(X, k), sphere.log0(p, k))
    jac = torch.func.vmap(torch.func.jacrev(lambda x: stereographic.to_sphere(x, k)))

    def lift(x, v):
        return (jac(x) @ v.unsqueeze(-1)).squeeze(-1)

    close(lift(X, stereographic.log(X, Y, k)), sphere.log(p, q, k))
    moved = stereographic.exp(X, V, k)
    close(stereographic.to_sphere(moved, k), sphere.exp(p, lift(X, V), k), 1e-11)
    carried = lift(Y, stereographic.transport(X, Y, V, k))
    close(carried, sphere.transport(p, q, lift(X, V), k), 1e-11)
    middle = stereographic.midpoint(X, Y, k)
    close(stereographic.to_sphere(middle, k), sphere.midpoint(p, q, k), 1e-11)
    far = 4 * X  # some of these are beyond the equator
    mean = stereographic.to_sphere(stereographic.centroid(far, None, k), k)
    close(mean, sphere.centroid(stereographic.to_sphere(far, k), None, k), 1e-10)


# --- through zero ---------------------------------------------------------------------------------


@every_call
@pytest.mark.parametrize("kappa", SIGNS)
def test_gradients_in_curvature_and_points(name, kappa):
    args = [a.clone().requires_grad_() if isinstance(a, torch.Tensor) else a for a in CALLS[name]]
    k = torch.tensor([kappa], dtype=F64, requires_grad=True)
    assert gradcheck(lambda k, *a: call(name, k, a), (k, *args))


@pytest.mark.parametrize(
    "name", ["dist_sq", "exp0", "log0", "exp", "log", "transport", "mobius_add"]
)
@pytest.mark.parametrize("kappa", [-0.4, 0.0, 0.4])
def test_second_derivatives(name, kappa):
    args = [a[:2].clone().requires_grad_() for a in CALLS[name]]
    k = torch.tensor([kappa], dtype=F64, requires_grad=True)
    assert gradgradcheck(lambda k, *a: call(name, k, a), (k, *args))
    if name in ("dist_sq", "log"):
        same = [args[0], args[0].detach().clone().requires_grad_()]
        assert gradcheck(lambda k, *a: call(name, k, a), (k, *same))
        assert gradgradcheck(lambda k, *a: call(name, k, a), (k, *same))


def test_derivative_of_distance_in_curvature_against_mpmath():
    """∂d/∂κ at and around κ = 0, where hyperbolic and spherical formulas are 0/0."""
    x, y = vectors(1, 2, seed=5)[0], vectors(1, 2, seed=6)[0]

    def d(k):
        a, b = ([mpmath.mpf(v) for v in t.tolist()] for t in (x, y))
        s = mpmath.fsum((p - q) ** 2 for p, q in zip(a, b, strict=True))
        gaps = [1 + k * mpmath.fsum(p * p for p in v) for v in (a, b)]
        z = mpmath.sqrt(mpmath.mpc(-k) * s / (gaps[0] * gaps[1]))
        return (2 * mpmath.sqrt(s / (gaps[0] * gaps[1])) * mpmath.asinh(z) / z).real

    for kappa in SIGNS:
        k = torch.tensor([kappa], dtype=F64, requires_grad=True)
        (g,) = torch.autograd.grad(stereographic.dist(x, y, k).sum(), k)
        with mpmath.workdps(60):
            h = mpmath.mpf(10) ** -20
            at = mpmath.mpf(kappa)
            exact = (d(at + h) - d(at - h)) / (2 * h)
        assert abs(g.item() / exact - 1) < 1e-13
        f = torch.tensor([kappa], requires_grad=True)
        (g,) = torch.autograd.grad(stereographic.dist(x.float(), y.float(), f).sum(), f)
        assert abs(g.item() / exact - 1) < 1e-5


def test_one_tensor_of_curvatures_of_both_signs():
    k = torch.tensor([[-1.0], [-0.3], [0.0], [0.3], [1.0]], dtype=F64)
    for name, args in CALLS.items():
        if name in ("pairwise_dist", "centroid"):
            continue
        rows = [
            call(name, float(k[i]), [a[i] if isinstance(a, torch.Tensor) else a for a in args])
            for i in range(5)
        ]
        close(call(name, k), torch.stack(rows))
    sets = X.expand(5, 5, 3)
    close(
        call("centroid", k, (sets, None)),
        torch.stack([call("centroid", float(k[i]), (X, None)) for i in range(5)]),
    )
    close(
        call("pairwise_dist", k[..., None], (sets, sets)),
        torch.stack([call("pairwise_dist", float(k[i]), (X, X)) for i in range(5)]),
    )


# --- singular points ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("kappa", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize(
    "name", ["dist", "dist_sq", "log", "transport", "midpoint", "geodesic", "pairwise_dist"]
)
def test_gradients_are_finite_at_singular_pairs(name, kappa, dtype):
    x, v = vectors(4, 3, dtype=dtype), vectors(4, 3, seed=2, dtype=dtype)
    zero = torch.zeros_like(x)
    antipode = -x / (x * x).sum(-1, keepdim=True)
    pairs = [(x, x), (zero, zero), (zero, x), (x, zero), (x, -x), (x, x / 2)]
    if kappa > 0 and name != "midpoint":
        pairs += [(x, antipode), (antipode, x)]
    extra = {"transport": (v,), "geodesic": (0.3,)}.get(name, ())
    for a, b in pairs:
        a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
        k = torch.tensor([kappa], dtype=dtype, requires_grad=True)
        out = call(name, k, (a, b, *extra))
        grads = torch.autograd.grad(out.sum(), [a, b, k])
        assert all(torch.isfinite(t).all() for t in (out, *grads))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_distances_close_to_antipodes_keep_their_digits(dtype):
    eps = torch.finfo(dtype).eps
    for short in (1e-6, 1e-4, 1e-2, 1.0):
        x = torch.tensor([0.5, 0.0], dtype=dtype)
        # On the equator's great circle the angle of a point is 2·atan of its coordinate.
        angle = 2 * math.atan(0.5) - math.pi + short
        y = torch.tensor([math.tan(angle / 2), 0.0], dtype=dtype)
        exact = 2 * math.atan(0.5) - 2 * math.atan(y[0].item())
        d = stereographic.dist(x, y, 1.0).double().item()
        assert abs(d - min(exact, 2 * math.pi - exact)) < 8 * eps * math.pi
    assert abs(stereographic.dist(x, -4 * x, 1.0).item() - math.pi) < 8 * eps


def test_project():
    x = torch.tensor([[0.3, 0.4], [3.0, 4.0]], dtype=F64)
    for k in (0.0, 2.0, torch.tensor([2.0], dtype=F64)):
        assert torch.equal(stereographic.project(x, k), x)
    close(stereographic.project(x, -1.0), poincare.project(x, 1.0))
    k = torch.tensor([[-1.0], [-1.0]], dtype=F64)
    close(stereographic.project(x, k), poincare.project(x, 1.0))
    k = torch.tensor([[-1.0], [1.0]], dtype=F64)
    assert torch.equal(stereographic.project(x, k), x)


def test_bad_input():
    with pytest.raises(ValueError, match="kappa must be a finite"):
        stereographic.dist(X, Y, math.inf)
    with pytest.raises(ValueError, match="must be a positive finite number"):
        stereographic.to_sphere(X, -1.0)
    with pytest.raises(ValueError, match=r"kappa must be negative.*1\.0"):
        stereographic.to_lorentz(X, 1.0)
    with pytest.raises(TypeError, match="kappa must be a float or a tensor"):
        stereographic.dist(X, Y, "1")
