"""The solvable group: its laws, its isometries, its place among the other models."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from beltrami.geometry import checks, hyperplane, lorentz, solvable

S = solvable
CURVATURES = [0.1, 1.0, 4.0]
TIGHT = {"rtol": 1e-10, "atol": 1e-10}


def rows(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=g)


def unit(z: Tensor) -> Tensor:
    return z / z.norm(dim=-1, keepdim=True)


@pytest.fixture(params=CURVATURES)
def c(request: pytest.FixtureRequest) -> float:
    return float(request.param)


# --- the group ------------------------------------------------------------------------------------


def test_group_laws() -> None:
    x, y, z = (rows(30, 7, seed=s) for s in range(3))
    e = S.identity(7, dtype=torch.float64)
    torch.testing.assert_close(
        S.product(S.product(z, y), x), S.product(z, S.product(y, x)), rtol=1e-9, atol=1e-9
    )
    torch.testing.assert_close(S.product(e, x), x)
    torch.testing.assert_close(S.product(x, e), x)
    torch.testing.assert_close(S.product(S.inverse(x), x), e.expand(30, 7), **TIGHT)
    torch.testing.assert_close(S.product(x, S.inverse(x)), e.expand(30, 7), **TIGHT)
    torch.testing.assert_close(S.relative(y, x), S.product(S.inverse(y), x), **TIGHT)
    assert not S.relative(x, x).any()
    assert torch.equal(S.left_translate(y, x), S.product(y, x))


def test_left_translations_are_isometries_and_right_ones_are_not(c: float) -> None:
    x, y, z = (rows(30, 7, seed=s) for s in range(3))
    d = S.dist(x, y, c)
    torch.testing.assert_close(S.dist(S.product(z, x), S.product(z, y), c), d, **TIGHT)
    assert (S.dist(S.product(x, z), S.product(y, z), c) - d).abs().max() > 0.1


def test_homomorphisms_respect_the_product() -> None:
    x, y, w, b = rows(20, 5), rows(20, 5, seed=1), rows(3, 4, seed=2), rows(3, seed=3)
    torch.testing.assert_close(
        S.homomorphism(S.product(y, x), w, b),
        S.product(S.homomorphism(y, w, b), S.homomorphism(x, w, b)),
        **TIGHT,
    )
    torch.testing.assert_close(S.homomorphism(x, w), S.homomorphism(x, w, torch.zeros_like(b)))
    # log, linear map [[1, 0], [b, W]] of the algebra, exp
    v = S.group_log(x)
    image = torch.cat([v[:, :1], v[:, 1:] @ w.mT + v[:, :1] * b], -1)
    torch.testing.assert_close(S.group_exp(image), S.homomorphism(x, w, b), **TIGHT)


def test_one_parameter_subgroups() -> None:
    v = rows(30, 6)
    torch.testing.assert_close(
        S.product(S.group_exp(0.3 * v), S.group_exp(0.9 * v)), S.group_exp(1.2 * v), **TIGHT
    )
    torch.testing.assert_close(S.group_log(S.group_exp(v)), v, **TIGHT)


def test_group_exp_near_and_at_a_equal_zero() -> None:
    v = torch.tensor([[0.0, 2.0], [1e-8, 2.0], [-1e-8, 2.0]], requires_grad=True)
    out = S.group_exp(v)
    torch.testing.assert_close(out, v.detach(), rtol=1e-6, atol=0)
    (g,) = torch.autograd.grad(out[:, 1].sum(), v)
    torch.testing.assert_close(g, torch.tensor([[-1.0, 1.0]]).expand(3, 2), rtol=1e-5, atol=0)


# --- distances and conversions --------------------------------------------------------------------


def test_distance_agrees_with_the_other_models(c: float) -> None:
    x, y = rows(50, 5), rows(50, 5, seed=1)
    d = S.dist(x, y, c)
    torch.testing.assert_close(lorentz.dist(S.to_lorentz(x, c), S.to_lorentz(y, c), c), d, **TIGHT)
    torch.testing.assert_close(S.dist_sq(x, y, c), d * d, **TIGHT)
    torch.testing.assert_close(S.dist(x, torch.zeros_like(x), c), S.dist0(x, c), **TIGHT)
    assert torch.equal(S.dist(x, y, c), S.dist(y, x, c))
    assert S.dist(x, y, c, keepdim=True).shape == (50, 1)
    hx, hy = S.to_half_space(x), S.to_half_space(y)
    h = (hx - hy).norm(dim=-1) / (2 * torch.sqrt(hx[:, -1] * hy[:, -1]))
    torch.testing.assert_close(2 * torch.asinh(h) / math.sqrt(c), d, **TIGHT)
    bx, by = S.to_poincare(x, c), S.to_poincare(y, c)
    gap = (1 - c * (bx * bx).sum(-1)) * (1 - c * (by * by).sum(-1))
    h = math.sqrt(c) * (bx - by).norm(dim=-1) / torch.sqrt(gap)
    torch.testing.assert_close(2 * torch.asinh(h) / math.sqrt(c), d, rtol=1e-8, atol=1e-8)


def test_conversions_return(c: float) -> None:
    x = rows(50, 5)
    torch.testing.assert_close(S.from_lorentz(S.to_lorentz(x, c), c), x, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(S.from_half_space(S.to_half_space(x)), x, **TIGHT)
    torch.testing.assert_close(S.from_poincare(S.to_poincare(x, c), c), x, rtol=1e-8, atol=1e-8)


def test_cartan_coordinate_is_minus_the_busemann_function(c: float) -> None:
    x = rows(50, 5)
    first = torch.eye(5, dtype=torch.float64)[0]
    b = hyperplane.busemann(S.to_lorentz(x, c), first, c)
    torch.testing.assert_close(-math.sqrt(c) * b, x[:, 0], **TIGHT)


def test_horosphere_embedding_is_euclidean_inside(c: float) -> None:
    x, y = rows(30, 4), rows(30, 4, seed=1)
    k = math.sqrt(c)
    d = S.dist(S.horosphere(x, c), S.horosphere(y, c), c)
    torch.testing.assert_close(d, 2 / k * torch.asinh(k * (x - y).norm(dim=-1) / 2), **TIGHT)
    near = x + 1e-6 * (y - x)
    d = S.dist(S.horosphere(x, c), S.horosphere(near, c), c)
    torch.testing.assert_close(d, (near - x).norm(dim=-1), rtol=1e-9, atol=0)


def test_float32_distances_of_near_points_far_out() -> None:
    """A step of 1e-3 from an element with |f| = 1e3 and Δa = 1e-6, which a plain e^{−Δ}f loses."""
    f = 1e3 * unit(rows(6, 8)).float()
    x = torch.cat([torch.full((6, 1), 0.5), f], -1)
    y = torch.cat([torch.full((6, 1), 0.5 + 2**-20), f + 2**-10], -1)
    truth = S.dist(x.double(), y.double())
    torch.testing.assert_close(S.dist(x, y).double(), truth, rtol=1e-5, atol=0)


# --- the metric -----------------------------------------------------------------------------------


def test_metric_is_that_of_lorentz(c: float) -> None:
    x, u, v = (rows(20, 4, seed=s) for s in range(3))
    _, du = torch.func.jvp(lambda t: S.to_half_space(t), (x,), (u,))
    _, dv = torch.func.jvp(lambda t: S.to_half_space(t), (x,), (v,))
    height = S.to_half_space(x)[:, -1]
    torch.testing.assert_close(S.inner(x, u, v, c), (du * dv).sum(-1) / (c * height**2), **TIGHT)


def test_riemannian_gradient_represents_the_differential(c: float) -> None:
    x, g, v = (rows(20, 4, seed=s) for s in range(3))
    r = S.riemannian_grad(x, g, c)
    torch.testing.assert_close(S.inner(x, r, v, c), (g * v).sum(-1), **TIGHT)


def test_exp0_and_log0_are_inverse_and_radial(c: float) -> None:
    v = rows(30, 5)
    x = S.exp0(v, c)
    torch.testing.assert_close(S.dist0(x, c), v.norm(dim=-1), **TIGHT)
    torch.testing.assert_close(S.log0(x, c), v, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(x, S.from_lorentz(lorentz.exp0(v, c), c), **TIGHT)


def test_exp_and_log_at_a_point(c: float) -> None:
    x, y = rows(30, 5), rows(30, 5, seed=1)
    v = S.log(x, y)
    torch.testing.assert_close(S.exp(x, v), y, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(torch.sqrt(S.inner(x, v, v, c)), S.dist(x, y, c), **TIGHT)
    e = torch.zeros_like(x)
    torch.testing.assert_close(S.exp(e, math.sqrt(c) * v), S.exp0(v, c), **TIGHT)
    half = S.exp(x, v / 2)
    torch.testing.assert_close(S.dist(x, half, c), S.dist(half, y, c), **TIGHT)


def test_geodesics_transport_and_centroids_are_those_of_lorentz(c: float) -> None:
    x, y, u = (rows(30, 5, seed=s) for s in range(3))
    v = S.transport_from0(x, u, c)
    (lx, lv), ly = torch.func.jvp(lambda t: S.to_lorentz(t, c), (x,), (v,)), S.to_lorentz(y, c)
    torch.testing.assert_close(lv, lorentz.transport_from0(lx, u, c), **TIGHT)
    torch.testing.assert_close(S.transport_to0(x, v, c), u, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(S.norm(x, v, c), u.norm(dim=-1), **TIGHT)
    moved = S.transport(x, y, v)
    _, image = torch.func.jvp(lambda t: S.to_lorentz(t, c), (y,), (moved,))
    far = {"rtol": 1e-7, "atol": 1e-7}  # Lorentz coordinates of these points reach 1e4
    torch.testing.assert_close(image, lorentz.transport(lx, ly, lv, c), **far)
    for got, want in [
        (S.midpoint(x, y), lorentz.midpoint(lx, ly, c)),
        (S.geodesic(x, y, 0.2), lorentz.geodesic(lx, ly, 0.2, c)),
        (S.centroid(x[None])[0], lorentz.centroid(lx[None], c=c)[0]),
    ]:
        torch.testing.assert_close(S.to_lorentz(got, c), want, **far)
    torch.testing.assert_close(S.pairwise_dist(x, y, c), S.dist(x[:, None], y, c), **far)


def test_gradients_at_the_identity_and_at_coincident_points() -> None:
    for dtype in (torch.float32, torch.float64):
        for dim in (1, 4):
            zero = torch.zeros(3, dim, dtype=dtype, requires_grad=True)
            x = rows(3, dim).to(dtype).requires_grad_()
            same = x.detach().clone().requires_grad_()
            assert not S.dist(x, same).any()
            for d in (S.dist(x, same), S.dist_sq(x, same)):
                for g in torch.autograd.grad(d.sum(), [x, same]):
                    assert not g.any()
            (g,) = torch.autograd.grad(S.dist0(zero).sum(), zero)
            assert not g.any()
            w = torch.randn(3, dim, dtype=dtype, generator=torch.Generator().manual_seed(0))
            for f in (S.exp0, S.log0, S.to_lorentz, S.from_lorentz, S.group_exp, S.group_log):
                (g,) = torch.autograd.grad((f(zero) * w).sum(), zero)
                torch.testing.assert_close(g, w)
            (g,) = torch.autograd.grad((S.log(x, same) * w).sum(), same)
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4)


# --- rotations ------------------------------------------------------------------------------------


def test_fiber_rotation_is_the_lorentz_rotation() -> None:
    x, theta = rows(40, 5), unit(rows(40, 5, seed=1))
    t0, t = theta[:, :1], theta[:, 1:]
    block = torch.eye(4, dtype=x.dtype) - t.unsqueeze(-1) * t.unsqueeze(-2) / (1 + t0.unsqueeze(-1))
    r = torch.cat([theta.unsqueeze(-2), torch.cat([-t.unsqueeze(-1), block], -1)], -2)
    torch.testing.assert_close(r @ r.mT, torch.eye(5, dtype=x.dtype).expand(40, 5, 5), **TIGHT)
    expected = (r @ S.to_lorentz(x).unsqueeze(-1)).squeeze(-1)
    out = S.fiber_rotation(x, theta)
    torch.testing.assert_close(S.to_lorentz(out), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(S.fiber_rotation(x, 3 * theta), out, **TIGHT)


def test_rotations_are_isometries_that_fix_the_identity(c: float) -> None:
    x, y, theta = rows(40, 5), rows(40, 5, seed=1), rows(40, 5, seed=2)
    q = torch.linalg.qr(rows(4, 4, seed=3)).Q
    d, zero = S.dist(x, y, c), torch.zeros(5, dtype=x.dtype)
    turned = S.dist(S.fiber_rotation(x, theta), S.fiber_rotation(y, theta), c)
    torch.testing.assert_close(turned, d, **TIGHT)
    painted = S.dist(S.paint_rotation(x, q), S.paint_rotation(y, q), c)
    torch.testing.assert_close(painted, d, **TIGHT)
    torch.testing.assert_close(
        S.fiber_rotation(zero, theta), torch.zeros(40, 5, dtype=x.dtype), rtol=0, atol=1e-15
    )
    # a paint rotation is also an automorphism
    torch.testing.assert_close(
        S.paint_rotation(S.product(y, x), q),
        S.product(S.paint_rotation(y, q), S.paint_rotation(x, q)),
        **TIGHT,
    )


def test_special_rotations() -> None:
    x = rows(10, 4).requires_grad_()
    first = torch.eye(4, dtype=torch.float64)[0]
    torch.testing.assert_close(S.fiber_rotation(x, first), x)
    torch.testing.assert_close(S.fiber_rotation(x, 0 * first), x)
    back = S.fiber_rotation(x, -first)
    torch.testing.assert_close(S.to_lorentz(back), -S.to_lorentz(x), **TIGHT)
    line = rows(10, 1)
    torch.testing.assert_close(S.fiber_rotation(line, -torch.ones(1).double()), -line)
    for theta in (first, -first, 0 * first):
        theta = theta.clone().requires_grad_()
        out = S.fiber_rotation(x, theta)
        for g in torch.autograd.grad(out.sum(), [x, theta]):
            assert bool(torch.isfinite(g).all())


def test_float32_rotation_of_large_fibers() -> None:
    """The cases that public code gets wrong: a whole image as the fiber, and |f|² = 1e8."""
    f = unit(rows(4, 1000)).float() * math.sqrt(150528)
    x = torch.cat([torch.zeros(4, 1), f], -1)
    theta = torch.cat([torch.full((4, 1), 0.99), 0.14 * unit(rows(4, 1000, seed=1)).float()], -1)
    truth = S.fiber_rotation(x.double(), theta.double())
    out = S.fiber_rotation(x, theta)
    assert (out[:, 0].double() - truth[:, 0]).abs().max() < 4e-6
    torch.testing.assert_close(out.double(), truth, rtol=1e-5, atol=1e-2)
    x = torch.cat([torch.zeros(1), torch.full((100,), 1e3)])
    assert torch.equal(S.fiber_rotation(x, torch.eye(101)[0]), x)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    r=st.floats(0.0, 40.0),
    angle=st.floats(0.0, 2 * math.pi),
    turn=st.floats(0.0, 2 * math.pi),
)
def test_float32_rotation_keeps_the_radius(r: float, angle: float, turn: float) -> None:
    """Up to what rounding f to eps·cosh(radius) does to a point turned onto the axis."""
    v = torch.tensor([math.cos(angle), math.sin(angle)]) * r
    x = S.exp0(v).requires_grad_()
    theta = torch.tensor([math.cos(turn), math.sin(turn)], requires_grad=True)
    out = S.fiber_rotation(x, theta)
    d = S.dist0(x).item()
    blur = 32 * torch.finfo(torch.float32).eps * math.cosh(r)
    assert abs(S.dist0(out).item() - d) <= 1e-5 * max(1.0, d) + 2 * math.log1p(blur**2)
    for g in torch.autograd.grad(out.sum(), [x, theta]):
        assert bool(torch.isfinite(g).all())


# --- hyperplanes ----------------------------------------------------------------------------------


def test_functional_is_linear_in_lorentz_coordinates() -> None:
    x, w, alpha, beta = rows(20, 4), rows(6, 3, seed=1), rows(6, seed=2), rows(6, seed=3)
    y = S.to_lorentz(x)
    t = lorentz.time(y, keepdim=True)
    expected = t * (alpha + beta) + y[:, :1] * (alpha - beta) + y[:, 1:] @ w.mT
    torch.testing.assert_close(S.functional(x, w, alpha, beta), expected, **TIGHT)


def test_functional_on_the_meta_device() -> None:
    x, w, k = (torch.zeros(shape, device="meta") for shape in ((5, 4), (2, 3), (2,)))
    assert S.functional(x, w, k, k).shape == (5, 2)
    assert S.hyperplane_dist(x, w, k, k).is_meta


def test_hyperplane_distance_is_that_of_the_lorentz_model(c: float) -> None:
    x, w = rows(20, 4), rows(6, 3, seed=1)
    alpha, beta = 0.1 * rows(6, seed=2), 0.1 * rows(6, seed=3)
    # ν = (−(α+β); α−β, w): a normal of length √(|w|²−4αβ), at a distance with tanh = −ν₀/|normal|
    normal = torch.cat([(alpha - beta).unsqueeze(-1), w], -1)
    offset = torch.atanh(-(alpha + beta) / normal.norm(dim=-1)) / math.sqrt(c)
    expected = hyperplane.signed_dist(
        S.to_lorentz(x, c).unsqueeze(-2), normal, offset.unsqueeze(-1), c
    )
    torch.testing.assert_close(S.hyperplane_dist(x, w, alpha, beta, c), expected, **TIGHT)


# --- gradients and bad input ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["product", "relative", "exp", "log", "fiber_rotation", "dist", "dist_sq", "riemannian_grad"],
)
def test_gradients_of_pairs(name: str) -> None:
    f = getattr(S, name)
    x, y = rows(3, 4).requires_grad_(), rows(3, 4, seed=1).requires_grad_()
    assert gradcheck(f, (x, y))
    assert gradgradcheck(f, (x, y))


@pytest.mark.parametrize(
    "name", ["dist0", "exp0", "log0", "to_lorentz", "from_lorentz", "to_poincare", "horosphere"]
)
def test_gradients_with_curvature(name: str) -> None:
    x = rows(3, 4).requires_grad_()
    c = torch.tensor([[0.7]], dtype=torch.float64, requires_grad=True)
    assert gradcheck(getattr(S, name), (x, c))
    assert gradgradcheck(getattr(S, name), (x, c))


def test_gradients_of_the_rest() -> None:
    x = rows(3, 4).requires_grad_()
    w, b = rows(2, 3, seed=1).requires_grad_(), rows(2, seed=2).requires_grad_()
    small = (0.1 * rows(2, seed=3)).requires_grad_()
    assert gradcheck(S.homomorphism, (x, w, b))
    assert gradcheck(S.hyperplane_dist, (x, w, small, small))
    for f in (S.inverse, S.group_exp, S.group_log, S.to_half_space):
        assert gradcheck(f, (x,))
        assert gradgradcheck(f, (x,))


def test_bad_input_is_named() -> None:
    x = rows(2, 4)
    with pytest.raises(ValueError, match="W must have shape"):
        S.homomorphism(x, rows(3, 4))
    with pytest.raises(ValueError, match="b must have shape"):
        S.homomorphism(x, rows(3, 3), rows(2))
    with pytest.raises(ValueError, match="square"):
        S.paint_rotation(x, rows(2, 3))
    with pytest.raises(ValueError, match="w must have shape"):
        S.functional(x, rows(2, 4), rows(2), rows(2))
    with pytest.raises(ValueError, match="beta must have shape"):
        S.functional(x, rows(2, 3), rows(2), rows(3))
    with checks.debug():
        with pytest.raises(ValueError, match="height"):
            S.from_half_space(-x.abs())
        with pytest.raises(ValueError, match="alpha"):
            S.hyperplane_dist(x, torch.zeros(1, 3).double(), torch.ones(1), torch.ones(1))
        with pytest.raises(ValueError, match="outside"):
            S.from_poincare(2 * torch.ones(3))
