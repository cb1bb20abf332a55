"""Hyperplanes, horospheres and projections: their defining properties, limits and corners."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from beltrami.geometry import checks, hyperplane, lorentz
from beltrami.geometry.plane_frame import scaled_asinh, scaled_sinh
from tests.kernels.checks import saved_bytes

H = hyperplane
CURVATURES = [0.1, 1.0, 4.0]
TIGHT = {"rtol": 1e-10, "atol": 1e-10}


def rows(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=g)


def unit(z: Tensor) -> Tensor:
    return z / z.norm(dim=-1, keepdim=True)


def to_ball(x: Tensor, c: float) -> Tensor:
    return x / (1 + math.sqrt(c) * lorentz.time(x, c, keepdim=True))


def isometry(x: Tensor, c: float) -> Tensor:
    """A fixed boost after a fixed rotation."""
    q = torch.linalg.qr(rows(x.shape[-1], x.shape[-1], seed=98)).Q
    return lorentz.boost(lorentz.rotate(x, q), rows(x.shape[-1], seed=99), c)


@pytest.fixture(params=CURVATURES)
def c(request: pytest.FixtureRequest) -> float:
    return float(request.param)


# --- hyperplanes ----------------------------------------------------------------------------------


def test_distance_is_that_of_the_foot_and_vanishes_on_the_hyperplane(c: float) -> None:
    x, z, a = rows(40, 5), rows(40, 5, seed=1), rows(40, 1, seed=2)
    foot, d = H.project_to_hyperplane(x, z, a, c), H.signed_dist(x, z, a, c)
    torch.testing.assert_close(H.signed_dist(foot, z, a, c), torch.zeros_like(d), **TIGHT)
    torch.testing.assert_close(lorentz.dist(x, foot, c), d.abs(), **TIGHT)
    torch.testing.assert_close(H.project_to_hyperplane(foot, z, a, c), foot, **TIGHT)
    # the hyperplane meets its axis at distance a
    torch.testing.assert_close(
        H.signed_dist(lorentz.exp0(a * unit(z), c), z, a, c), torch.zeros_like(d), **TIGHT
    )
    torch.testing.assert_close(
        H.signed_dist(torch.zeros_like(x), z, a, c, keepdim=True), -a, **TIGHT
    )


def test_distance_agrees_with_the_textbook_form(c: float) -> None:
    x, z, a = rows(40, 5), rows(40, 5, seed=1), rows(40, 1, seed=2)
    k = math.sqrt(c)
    alpha = torch.cosh(k * a) * (unit(z) * x).sum(-1, keepdim=True)
    alpha = alpha - torch.sinh(k * a) * lorentz.time(x, c, keepdim=True)
    torch.testing.assert_close(
        H.signed_dist(x, z, a, c, keepdim=True), torch.asinh(k * alpha) / k, **TIGHT
    )


def test_reflection_is_an_isometric_involution_that_changes_sides(c: float) -> None:
    x, y, z, a = rows(30, 4), rows(30, 4, seed=1), rows(30, 4, seed=2), rows(30, 1, seed=3)
    image = H.reflect(x, z, a, c)
    torch.testing.assert_close(H.reflect(image, z, a, c), x, **TIGHT)
    torch.testing.assert_close(H.signed_dist(image, z, a, c), -H.signed_dist(x, z, a, c), **TIGHT)
    torch.testing.assert_close(
        lorentz.dist(image, H.reflect(y, z, a, c), c), lorentz.dist(x, y, c), **TIGHT
    )
    middle = lorentz.midpoint(x, image, c)
    torch.testing.assert_close(middle, H.project_to_hyperplane(x, z, a, c), **TIGHT)


def test_all_classes_at_once_are_the_single_ones(c: float) -> None:
    x, z, a = rows(3, 6, 5), rows(7, 5, seed=1), rows(7, seed=2)
    expected = H.logit(x.unsqueeze(-2), z, a.unsqueeze(-1), c)
    torch.testing.assert_close(H.hyperplane_logits(x, z, a, c), expected, **TIGHT)
    ball = to_ball(x, c)
    torch.testing.assert_close(
        H.poincare_logits(ball, z, a / 2, c), 2 * H.hyperplane_logits(x, z, a, c), **TIGHT
    )


def test_float32_near_a_hyperplane_far_out() -> None:
    """Where the textbook form has no digit left: offset 10, 0.01 in front of the hyperplane."""
    for dim in (1, 3):
        x = torch.zeros(dim)
        x[0] = math.sinh(10.01)
        z = torch.eye(dim)[0]
        d = H.signed_dist(x, z, 10.0)
        truth = math.asinh(x[0].item()) - 10.0
        assert abs(d.item() - truth) < 4e-6  # a few times the rounding of 10 itself
        wide = H.hyperplane_logits(x, z[None], torch.tensor([10.0]), product_dtype=torch.float64)
        assert wide.dtype == torch.float32
        assert abs(wide.item() - truth) < 1e-6


def test_float32_is_finite_with_gradients_at_radius_40() -> None:
    for dim in (1, 2, 16):
        g = torch.Generator().manual_seed(dim)
        z = torch.randn(8, dim, generator=g).requires_grad_()
        x = (torch.randn(8, 1, generator=g).sign() * unit(z) * math.sinh(40.0)).detach()
        x.requires_grad_()
        a = torch.linspace(-40, 40, 8).unsqueeze(-1).requires_grad_()
        for f, offset in (
            (H.signed_dist, a),
            (H.logit, a),
            (H.project_to_hyperplane, a),
            (H.project_to_horosphere, a / 40),  # 40 from a point at 40 would leave the range
        ):
            out = f(x, z, offset)
            grads = torch.autograd.grad(out.sum(), [x, z, a])
            assert all(bool(torch.isfinite(t).all()) for t in (out, *grads)), f.__name__
        torch.testing.assert_close(
            H.signed_dist(x, z, 0.0).abs(), torch.full((8,), 40.0), rtol=1e-6, atol=0
        )


def test_a_hyperplane_without_a_normal_is_harmless() -> None:
    x, a = rows(3, 4), torch.tensor([[0.3]], dtype=torch.float64)
    z = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    out = H.logit(x, z, a)
    assert not out.any()
    (g,) = torch.autograd.grad(out.sum(), z, create_graph=True)
    assert bool(torch.isfinite(g).all())
    assert bool(torch.isfinite(H.hyperplane_logits(x, z, a[0].expand(3))).all())
    torch.testing.assert_close(H.reflect(x, z, a), x)


@pytest.mark.parametrize("form", ["pairs", "product"])
def test_small_curvature_gives_affine_scores_with_error_of_order_c(form: str) -> None:
    x, z, a = rows(20, 4), rows(5, 4, seed=1), rows(5, seed=2)
    flat = x @ z.mT - a * z.norm(dim=-1)
    errors = []
    for c in (1e-2, 1e-3, 1e-4):
        if form == "pairs":
            out = H.logit(x.unsqueeze(-2), z, a.unsqueeze(-1), c)
        else:
            out = H.hyperplane_logits(x, z, a, c)
        errors.append((out - flat).abs().max().item())
    assert 8 < errors[0] / errors[1] < 12
    assert 8 < errors[1] / errors[2] < 12


# --- the Poincaré ball ----------------------------------------------------------------------------


def test_ball_forms_agree_with_lorentz(c: float) -> None:
    x, z, a = rows(30, 4), rows(30, 4, seed=1), rows(30, 1, seed=2)
    ball = to_ball(x, c)
    torch.testing.assert_close(
        H.poincare_logit(ball, z, a / 2, c), 2 * H.logit(x, z, a, c), **TIGHT
    )
    torch.testing.assert_close(H.poincare_busemann(ball, z, c), H.busemann(x, z, c), **TIGHT)
    # the hyperplane (z, a) passes through the point at a on its axis, with normal z
    p = to_ball(lorentz.exp0(a * unit(z), c), c)
    torch.testing.assert_close(
        H.poincare_signed_dist(ball, p, z, c), H.signed_dist(x, z, a, c), **TIGHT
    )


def test_hnnpp_score_is_its_published_formula(c: float) -> None:
    x, z, r = to_ball(rows(30, 4), c), rows(30, 4, seed=1), rows(30, 1, seed=2)
    k, length = math.sqrt(c), z.norm(dim=-1, keepdim=True)
    lam = 2 / (1 - c * (x * x).sum(-1, keepdim=True))
    inside = lam * k * (x * z / length).sum(-1, keepdim=True) * torch.cosh(2 * k * r)
    inside = inside - (lam - 1) * torch.sinh(2 * k * r)
    expected = 2 * length / k * torch.asinh(inside)
    torch.testing.assert_close(H.poincare_logit(x, z, r, c, keepdim=True), expected, **TIGHT)


def test_ball_distance_is_zero_at_its_point_and_odd_in_the_normal(c: float) -> None:
    x, p, w = to_ball(rows(30, 4), c), to_ball(rows(30, 4, seed=1), c), rows(30, 4, seed=2)
    assert not H.poincare_signed_dist(p, p, w, c).any()
    d = H.poincare_signed_dist(x, p, w, c)
    torch.testing.assert_close(H.poincare_signed_dist(x, p, -3 * w, c), -d, **TIGHT)


def test_debug_finds_points_outside_the_ball() -> None:
    outside = torch.tensor([1.0, 0.5])
    with checks.debug(), pytest.raises(ValueError, match="outside the ball"):
        H.poincare_busemann(outside, torch.ones(2))


# --- horospheres ----------------------------------------------------------------------------------


def test_busemann_is_the_limit_of_distances_along_the_ray(c: float) -> None:
    x, p = rows(20, 4), rows(20, 4, seed=1)
    s = 18.0 / math.sqrt(c)
    ray = lorentz.exp0(s * unit(p), c)
    torch.testing.assert_close(
        H.busemann(x, p, c), lorentz.dist(x, ray, c) - s, rtol=1e-9, atol=1e-9
    )
    assert not H.busemann(torch.zeros(4), p[0].float(), c).any()
    on_ray = lorentz.exp0(2.5 * unit(p), c)
    torch.testing.assert_close(
        H.busemann(on_ray, p, c), torch.full((20,), -2.5, dtype=x.dtype), **TIGHT
    )


def test_busemann_gradient_has_length_one(c: float) -> None:
    x, p = rows(20, 4).requires_grad_(), rows(20, 4, seed=1)
    (g,) = torch.autograd.grad(H.busemann(x, p, c).sum(), x)
    v = lorentz.riemannian_grad(x, g, c)
    torch.testing.assert_close(lorentz.norm(x, v, c), torch.ones(20, dtype=x.dtype), **TIGHT)


def test_projection_to_a_horosphere_is_the_nearest_point_on_the_way_to_p(c: float) -> None:
    x, p, level = rows(30, 4), rows(30, 4, seed=1), rows(30, 1, seed=2)
    y = H.project_to_horosphere(x, p, level, c)
    torch.testing.assert_close(H.busemann(y, p, c, keepdim=True), level, **TIGHT)
    gap = (H.busemann(x, p, c, keepdim=True) - level).abs()
    torch.testing.assert_close(lorentz.dist(x, y, c, keepdim=True), gap, **TIGHT)
    torch.testing.assert_close(
        H.project_to_horosphere(x, p, H.busemann(x, p, c, keepdim=True), c), x, **TIGHT
    )


def test_small_curvature_gives_linear_busemann_functions() -> None:
    x, p = rows(20, 4), rows(20, 4, seed=1)
    errors = [
        (H.busemann(x, p, c) + (x * unit(p)).sum(-1)).abs().max().item() for c in (1e-4, 1e-6, 1e-8)
    ]
    assert 8 < errors[0] / errors[1] < 12  # of order √c
    assert 8 < errors[1] / errors[2] < 12


# --- geodesics and subspaces ----------------------------------------------------------------------


def test_foot_on_a_geodesic(c: float) -> None:
    x, p, q = rows(40, 4), rows(40, 4, seed=1), rows(40, 4, seed=2)
    foot, d = H.project_to_geodesic(x, p, q, c), H.dist_to_geodesic(x, p, q, c)
    torch.testing.assert_close(lorentz.dist(x, foot, c), d, **TIGHT)
    # on the geodesic: one of the three distances is the sum of the others
    sides = torch.stack([lorentz.dist(p, foot, c), lorentz.dist(q, foot, c), lorentz.dist(p, q, c)])
    torch.testing.assert_close(2 * sides.amax(0), sides.sum(0), rtol=1e-8, atol=1e-8)
    # nearest: perpendicular to it
    angle = lorentz.inner(foot, lorentz.log(foot, x, c), lorentz.log(foot, q, c), c)
    torch.testing.assert_close(angle, torch.zeros_like(angle), rtol=0, atol=1e-8)
    # independent of the two points that name it
    other = lorentz.geodesic(p, q, 1.7, c)
    torch.testing.assert_close(H.project_to_geodesic(x, q, other, c), foot, rtol=1e-8, atol=1e-8)


def test_a_foot_beyond_the_ends_in_float32() -> None:
    """As near to the right one as rounding the inputs allows, and finite with its gradients."""
    g = torch.Generator().manual_seed(1)
    p, q = (lorentz.uniform_ball(2000, 3, radius=5.0, generator=g).double() for _ in range(2))
    x = lorentz.geodesic(p, q, 1 + torch.rand(2000, 1, generator=g, dtype=torch.float64))
    inputs = [t.float().requires_grad_() for t in (x, p, q)]
    foot, d = H.project_to_geodesic(*inputs), H.dist_to_geodesic(*inputs)
    exact = [t.detach().double() for t in inputs]
    right = H.project_to_geodesic(*exact)
    rounding = [t * (1 + torch.finfo(torch.float32).eps * torch.randn_like(t)) for t in exact]
    forced = lorentz.dist(H.project_to_geodesic(*rounding), right)
    assert lorentz.dist(foot.double(), right).median() < forced.median()
    assert (d.double() - H.dist_to_geodesic(*exact)).abs().median() < forced.median()
    assert all(bool(t.isfinite().all()) for t in torch.autograd.grad(d.sum(), inputs))


@pytest.mark.parametrize("far", [False, True])
def test_a_foot_ten_units_beyond_a_short_segment(far: bool) -> None:
    """One unit beside the geodesic, where float32 inputs resolve the distance to 3e-3."""
    p = torch.tensor([0.3, -0.4, 0.2], dtype=torch.float64)
    v = torch.tensor([1.0, 0.3, -0.2], dtype=torch.float64)
    v = v / lorentz.norm(p, v)
    q, foot = lorentz.exp(p, 1.46 * v), lorentz.exp(p, 10.9 * v)
    along, side = lorentz.transport(p, foot, v), lorentz.transport(p, foot, rows(3, seed=3))
    side = side - lorentz.inner(foot, side, along, keepdim=True) * along
    x = lorentz.exp(foot, side / lorentz.norm(foot, side))
    points = [t.float() for t in ((x, q, p) if far else (x, p, q))]
    assert abs(H.dist_to_geodesic(*points).item() - 1) < 3e-3


def test_projections_commute_with_isometries(c: float) -> None:
    x, p, q = rows(20, 4), rows(20, 4, seed=1), rows(20, 4, seed=2)
    moved = [isometry(t, c) for t in (x, p, q)]
    torch.testing.assert_close(
        H.project_to_geodesic(*moved, c),
        isometry(H.project_to_geodesic(x, p, q, c), c),
        rtol=1e-8,
        atol=1e-8,
    )


def test_degenerate_geodesics() -> None:
    x, p = rows(5, 3).requires_grad_(), rows(5, 3, seed=1).requires_grad_()
    torch.testing.assert_close(H.project_to_geodesic(x, p, p), p)
    d = H.dist_to_geodesic(x, p, p)
    torch.testing.assert_close(d, lorentz.dist(x, p))
    grads = torch.autograd.grad(d.sum(), [x, p])
    assert all(bool(torch.isfinite(g).all()) for g in grads)
    (g,) = torch.autograd.grad(H.dist_to_geodesic(x, x.detach(), p).sum(), x)
    assert bool(torch.isfinite(g).all())


def test_projection_to_a_subspace_is_nearest(c: float) -> None:
    x, v = rows(30, 6), torch.linalg.qr(rows(6, 3, seed=1)).Q.mT
    y = H.project_to_subspace(x, v, c)
    torch.testing.assert_close(y @ v.mT @ v, y, **TIGHT)
    d = lorentz.dist(x, y, c)
    for seed in range(5):
        other = y + 0.1 * rows(30, 3, seed=seed) @ v
        assert bool((lorentz.dist(x, other, c) >= d).all())
    # k = 1 is a geodesic through the origin
    line = H.project_to_geodesic(x, torch.zeros(6, dtype=x.dtype), v[0], c)
    torch.testing.assert_close(H.project_to_subspace(x, v[:1], c), line, **TIGHT)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_horospherical_projection_keeps_busemann_values(c: float, k: int) -> None:
    x, v = rows(30, 6), torch.linalg.qr(rows(6, k, seed=1)).Q.mT
    y = H.horospherical_projection(x, v, c)
    torch.testing.assert_close(y @ v.mT @ v, y, **TIGHT)
    for p in v:
        torch.testing.assert_close(H.busemann(y, p, c), H.busemann(x, p, c), **TIGHT)
    torch.testing.assert_close(H.horospherical_projection(y, v, c), y, **TIGHT)
    zero = torch.zeros(6, dtype=x.dtype)
    torch.testing.assert_close(H.horospherical_projection(zero, v, c), zero, **TIGHT)


# --- all of them ----------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    r=st.floats(1e-6, 40.0),
    a=st.floats(-40.0, 40.0),
    c=st.floats(0.01, 10.0),
    angle=st.floats(0.0, math.pi),
)
def test_distances_stay_between_the_triangle_bounds(
    r: float, a: float, c: float, angle: float
) -> None:
    """In float32, at any radius and offset: |d| ≤ r + |a|, and gradients are at most 1."""
    k = math.sqrt(c)
    x = torch.tensor([math.cos(angle), math.sin(angle)]) * math.sinh(r) / k
    x.requires_grad_()
    offset = torch.tensor([a / k], requires_grad=True)
    d = H.signed_dist(x, torch.tensor([1.0, 0.0]), offset, c)
    assert abs(d.item()) <= (r + abs(a)) / k * (1 + 1e-5)
    gx, ga = torch.autograd.grad(d, [x, offset])
    assert bool(torch.isfinite(gx).all())
    # the offset moves the whole plane by at least as much where it is not on the axis
    assert ga.item() <= -1 + 1e-5


WITH_OFFSET = ["signed_dist", "logit", "project_to_hyperplane", "reflect", "project_to_horosphere"]


@pytest.mark.parametrize("name", WITH_OFFSET)
def test_gradients_with_an_offset(name: str) -> None:
    f = getattr(H, name)
    x, z, a = rows(2, 3), rows(2, 3, seed=1), rows(2, 1, seed=2)
    c = torch.tensor([[0.7]], dtype=torch.float64)
    inputs = [t.requires_grad_() for t in (x, z, a, c)]
    assert gradcheck(f, inputs)
    assert gradgradcheck(f, inputs)


def test_gradients_of_the_others() -> None:
    x, y, z = (rows(2, 3, seed=s).requires_grad_() for s in range(3))
    c = torch.tensor([[0.7]], dtype=torch.float64, requires_grad=True)
    table, offsets = rows(4, 3, seed=5).requires_grad_(), rows(4, seed=6).requires_grad_()
    v = torch.linalg.qr(rows(3, 2, seed=1)).Q.mT
    for f, inputs in (
        (H.busemann, (x, z, c)),
        (H.project_to_geodesic, (x, y, z, c)),
        (H.dist_to_geodesic, (x, y, z, c)),
        (H.hyperplane_logits, (x, table, offsets, c)),
        (lambda x, c: H.horospherical_projection(x, v, c), (x, c)),
        (lambda x, c: H.project_to_subspace(x, v, c), (x, c)),
    ):
        assert gradcheck(f, inputs)
        assert gradgradcheck(f, inputs)
    ball = rows(2, 3, seed=7, scale=0.3).requires_grad_()
    point = rows(2, 3, seed=8, scale=0.3).requires_grad_()
    assert gradcheck(H.poincare_signed_dist, (ball, point, z, c))
    assert gradcheck(H.poincare_busemann, (ball, z, c))


@pytest.mark.parametrize("far", [0.0, 3.0])
def test_scores_of_products_with_a_stretch(far: float) -> None:
    """Points given as s·v; c of its own for each row, too."""
    v, z, a = rows(4, 3), rows(5, 3, seed=1), rows(5, seed=2) + far
    for shape in ((1,), (4, 1)):
        stretch = rows(4, 1, seed=3).exp()
        c = torch.full(shape, 0.7, dtype=torch.float64)

        def scores(v: Tensor, z: Tensor, a: Tensor, stretch: Tensor, c: Tensor) -> Tensor:
            x = stretch * v
            times = torch.sqrt(1 + c * (x * x).sum(-1, keepdim=True))
            return H.scores_of_products(
                v @ z.mT, times, z.norm(dim=-1), a, c, torch.float64, stretch=stretch
            )

        inputs = [t.detach().requires_grad_() for t in (v, z, a, stretch, c)]
        torch.testing.assert_close(
            scores(*inputs), H.hyperplane_logits(stretch * v, z, a, c), **TIGHT
        )
        assert gradcheck(scores, inputs)
        assert gradgradcheck(scores, inputs)


@pytest.mark.parametrize(("wide", "copies"), [(torch.float32, 1), (torch.float64, 2)])
def test_logits_keep_one_product_for_the_backward_pass(wide: torch.dtype, copies: int) -> None:
    x, z, a = (t.float().requires_grad_() for t in (rows(600, 4), rows(500, 4), rows(500)))
    c = torch.tensor([0.7], requires_grad=True)
    out = H.hyperplane_logits(x, z, a, c, product_dtype=wide)
    saved = saved_bytes(lambda: H.hyperplane_logits(x, z, a, c, product_dtype=wide))
    assert saved < (copies + 0.2) * out.nbytes


# --- one coordinate -------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [1e-6, 0.7, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scaled_sinh_and_asinh(c: float, dtype: torch.dtype) -> None:
    """Against Python's functions, at every size float32 has, and their gradients."""
    size = torch.logspace(-30, 34, 257, dtype=dtype)
    v = torch.cat((-size, torch.zeros(1, dtype=dtype), size)).requires_grad_()
    k, tolerance = math.sqrt(c), {"rtol": 8 * torch.finfo(dtype).eps, "atol": 0.0}
    out = scaled_asinh(v, c)
    truth = [math.asinh(k * t) / k for t in v.tolist()]
    torch.testing.assert_close(out, torch.tensor(truth, dtype=dtype), **tolerance)
    (g,) = torch.autograd.grad(out.sum(), v)
    truth = [1 / math.hypot(1, k * t) for t in v.tolist()]
    torch.testing.assert_close(g, torch.tensor(truth, dtype=dtype), **tolerance)
    back = scaled_sinh(out, c)
    rtol = 400 * torch.finfo(dtype).eps  # of a number of size 80 in the exponent
    torch.testing.assert_close(back, v, rtol=rtol, atol=0)


def test_gradients_of_scaled_sinh_and_asinh() -> None:
    v = torch.tensor([0.0, 1e-3, -0.4, 0.9, -1.1, 1.7, 30.0], dtype=torch.float64)
    for c in (torch.tensor([0.8]), torch.tensor([[0.4], [1.0], [2.5]])):
        inputs = [v.requires_grad_(), c.double().requires_grad_()]
        for f, scale in ((scaled_asinh, 1.0), (scaled_sinh, 0.1)):
            assert gradcheck(lambda v, c, f=f, s=scale: f(s * v, c), inputs)
            assert gradgradcheck(lambda v, c, f=f, s=scale: f(s * v, c), inputs)


def test_curvature_gradient_of_tiny_coordinates_has_digits() -> None:
    """∂/∂c of sinh(√c v)/√c is v³/6 + c·v⁵/60 + ..., of asinh −v³/6 + 3c·v⁵/20."""
    v = torch.tensor([1e-4, 0.03])
    for f, first, second in ((scaled_sinh, 1 / 6, 1 / 60), (scaled_asinh, -1 / 6, 3 / 20)):
        c = torch.full((2,), 0.5, requires_grad=True)
        (g,) = torch.autograd.grad(f(v, c).sum(), c)
        expected = first * v**3 + second * 0.5 * v**5
        torch.testing.assert_close(g, expected, rtol=1e-5, atol=0)


def test_logits_do_not_run_in_bfloat16_under_autocast() -> None:
    x, z, a = rows(8, 16).float(), rows(4, 16, seed=1).float(), rows(4, seed=2).float()
    expected = H.hyperplane_logits(x, z, a)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = H.hyperplane_logits(x, z, a)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, expected, rtol=0, atol=0)


def test_bad_input_is_named() -> None:
    x = rows(2, 3)
    with pytest.raises(ValueError, match="normals must have shape"):
        H.hyperplane_logits(x, rows(4, 3), rows(3))
    with pytest.raises(TypeError, match="offsets"):
        H.hyperplane_logits(x, rows(4, 3), torch.arange(4))
    with pytest.raises(ValueError, match="directions must have shape"):
        H.project_to_subspace(x, rows(4, 3))
    with pytest.raises(ValueError, match="level"):
        H.project_to_horosphere(x, x, rows(2))
    with pytest.raises(ValueError, match="x and z"):
        H.signed_dist(x, rows(2, 4))
    with pytest.raises(ValueError, match="c must be"):
        H.busemann(x, x, -1.0)
