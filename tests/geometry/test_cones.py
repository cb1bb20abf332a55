"""Entailment cones: angles against triangles, apertures, the conventions at singular points."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from beltrami.geometry import checks, cones, lorentz

CURVATURES = [0.1, 1.0, 4.0]
TIGHT = {"rtol": 1e-10, "atol": 1e-10}


def rows(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=g)


def to_ball(x: Tensor, c: float) -> Tensor:
    return x / (1 + math.sqrt(c) * lorentz.time(x, c, keepdim=True))


def gradients(out: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    grads = torch.autograd.grad(out.sum(), inputs)
    assert all(bool(torch.isfinite(g).all()) for g in grads)
    return grads


@pytest.fixture(params=CURVATURES)
def c(request: pytest.FixtureRequest) -> float:
    return float(request.param)


# --- exterior angle -------------------------------------------------------------------------------


def test_angle_is_that_of_the_geodesics(c: float) -> None:
    x, y = rows(50, 4), rows(50, 4, seed=1)
    out = -lorentz.log(x, torch.zeros_like(x), c)  # away from the origin
    to_y = lorentz.log(x, y, c)
    cosine = lorentz.inner(x, out, to_y, c) / (lorentz.norm(x, out, c) * lorentz.norm(x, to_y, c))
    torch.testing.assert_close(torch.cos(cones.exterior_angle(x, y, c)), cosine, **TIGHT)


def test_angles_of_a_triangle_and_the_law_of_sines(c: float) -> None:
    """Interior angles π − ext at x and y, φ at the origin: sin/sinh of the side is constant."""
    x, y = rows(50, 4), rows(50, 4, seed=1)
    k = math.sqrt(c)
    at_x, at_y = math.pi - cones.exterior_angle(x, y, c), math.pi - cones.exterior_angle(y, x, c)
    phi = torch.acos(torch.cosine_similarity(x, y, dim=-1))
    assert bool((at_x + at_y + phi < math.pi).all())
    ratio = torch.sin(phi) / torch.sinh(k * lorentz.dist(x, y, c))
    torch.testing.assert_close(
        torch.sin(at_x) / torch.sinh(k * lorentz.dist0(y, c)), ratio, **TIGHT
    )
    torch.testing.assert_close(
        torch.sin(at_y) / torch.sinh(k * lorentz.dist0(x, c)), ratio, **TIGHT
    )


def test_small_curvature_gives_the_euclidean_angle() -> None:
    x, y = rows(30, 4), rows(30, 4, seed=1)
    flat = cones.euclidean_exterior_angle(x, y)
    errors = [(cones.exterior_angle(x, y, c) - flat).abs().max().item() for c in (1e-3, 1e-4, 1e-5)]
    assert 8 < errors[0] / errors[1] < 12
    assert 8 < errors[1] / errors[2] < 12


def test_angle_on_the_axis(c: float) -> None:
    x = rows(20, 5)
    for factor, angle in ((2.0, 0.0), (0.5, math.pi), (-1.0, math.pi), (0.0, math.pi)):
        x.requires_grad_()
        y = (factor * x).detach().requires_grad_()
        out = cones.exterior_angle(x, y, c)
        torch.testing.assert_close(out, torch.full((20,), angle, dtype=x.dtype), rtol=0, atol=1e-7)
        gradients(out, x, y)


def test_conventions_at_the_apex_and_at_the_origin() -> None:
    for dtype in (torch.float32, torch.float64):
        x = rows(20, 5).to(dtype).requires_grad_()
        y = x.detach().clone().requires_grad_()
        out = cones.exterior_angle(x, y, 0.7)
        assert not out.any()
        assert not any(g.any() for g in gradients(out, x, y))
        zero = torch.zeros(20, 5, dtype=dtype, requires_grad=True)
        out = cones.exterior_angle(zero, y)
        assert not out.any()
        assert not any(g.any() for g in gradients(out, zero, y))
        both = cones.exterior_angle(zero, torch.zeros_like(zero))
        assert not both.any()
        assert bool(cones.contains(x, x).all())
        assert bool(cones.contains(zero, y).all())


def test_second_derivatives_stay_finite_at_singular_points() -> None:
    zero = torch.zeros(3, dtype=torch.float64)
    e = torch.eye(3, dtype=torch.float64)[0]
    for x, y in ((e, e), (zero, e), (e, zero), (e, 2 * e), (e, -e), (zero, zero)):
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
        grads = torch.autograd.grad(cones.exterior_angle(x, y), [x, y], create_graph=True)
        gradients(sum((g * g).sum() for g in grads), x, y)


def test_on_a_line_the_angle_is_exactly_0_or_pi() -> None:
    x = torch.tensor([[0.3], [2.7], [-1.1], [1e-4], [3e8]], requires_grad=True)
    y = torch.tensor([[0.7], [-1.9], [-0.3], [2e-4], [7e7]], requires_grad=True)
    out = cones.exterior_angle(x, y)
    expected = torch.tensor([0.0, math.pi, math.pi, 0.0, math.pi])
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-6)
    assert not any(g.any() for g in gradients(out, x, y))


@settings(max_examples=60, deadline=None)
@given(
    rx=st.floats(1e-6, 40.0),
    ry=st.floats(1e-6, 40.0),
    phi=st.floats(0.0, math.pi),
    c=st.floats(0.01, 10.0),
)
def test_float32_angles_are_finite_and_in_range(rx: float, ry: float, phi: float, c: float) -> None:
    k = math.sqrt(c)
    x = torch.tensor([1.0, 0.0]) * (math.sinh(rx) / k)
    y = torch.tensor([math.cos(phi), math.sin(phi)]) * (math.sinh(ry) / k)
    x, y = x.requires_grad_(), y.requires_grad_()
    curvature = torch.tensor([c], requires_grad=True)
    out = cones.exterior_angle(x, y, curvature)
    assert 0 <= out.item() <= math.pi + 1e-6
    gradients(out, x, y, curvature)


@settings(max_examples=60, deadline=None)
@given(r=st.floats(0.01, 30.0), phi=st.floats(0.0, math.pi), seed=st.integers(0, 99))
def test_exterior_angles_shrink_inwards(r: float, phi: float, seed: int) -> None:
    """Seen from a point nearer to the origin on the same ray, y is closer to the axis."""
    y = torch.tensor([math.cos(phi), math.sin(phi)], dtype=torch.float64) * math.sinh(r)
    u = torch.tensor([1.0, 0.0], dtype=torch.float64)
    near, far = sorted(torch.rand(2, generator=torch.Generator().manual_seed(seed)).tolist())
    a = cones.exterior_angle(u * math.sinh(near * r), y)
    b = cones.exterior_angle(u * math.sinh(far * r), y)
    assert a.item() <= b.item() + 1e-9


# --- apertures and energies -----------------------------------------------------------------------


def test_half_aperture_is_the_arcsine_and_constant_inside(c: float) -> None:
    k = math.sqrt(c)
    radius = torch.tensor([0.0, 0.1, 0.2, 0.2000001, 0.5, 1.0, 5.0], dtype=torch.float64) / k
    x = (radius.unsqueeze(-1) * torch.tensor([0.6, 0.8], dtype=torch.float64)).requires_grad_()
    out = cones.half_aperture(x, c)
    inside = torch.tensor([math.pi / 2] * 3, dtype=torch.float64)
    torch.testing.assert_close(out[:3], inside, rtol=0, atol=1e-7)
    torch.testing.assert_close(out[4:], torch.asin(0.2 / (k * radius[4:])), **TIGHT)
    torch.testing.assert_close(out[5].item(), 0.2013579, rtol=1e-6, atol=0)
    (g,) = gradients(out, x)
    assert not g[:2].any()
    slope = -0.2 / (k * radius * torch.sqrt((k * radius) ** 2 - 0.04)) * k
    torch.testing.assert_close((g * x).sum(-1)[3:] / radius[3:], slope[3:], rtol=1e-6, atol=0)


def test_min_radius_scales_the_cone(c: float) -> None:
    x = rows(20, 3, scale=3.0)
    wide, narrow = cones.half_aperture(x, c, 0.2), cones.half_aperture(x, c, 0.05)
    assert bool((wide > narrow).all())
    assert cones.half_aperture(x, c, keepdim=True).shape == (20, 1)


def test_cones_are_nested(c: float) -> None:
    """Ganea's cones are transitive: y in the cone of x has its cone inside that of x."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 2, generator=g, dtype=torch.float64) / math.sqrt(c)
    y = x * (1 + torch.rand(2000, 1, generator=g, dtype=torch.float64))
    y = y + 0.2 * torch.randn(2000, 2, generator=g, dtype=torch.float64) / math.sqrt(c)
    z = y * (1 + torch.rand(2000, 1, generator=g, dtype=torch.float64))
    z = z + 0.2 * torch.randn(2000, 2, generator=g, dtype=torch.float64) / math.sqrt(c)
    far = x.norm(dim=-1) * math.sqrt(c) > 0.2
    chain = cones.contains(x, y, c) & cones.contains(y, z, c) & far
    assert int(chain.sum()) > 50
    assert bool(cones.contains(x, z, c)[chain].all())


def test_energy_is_the_hinge_and_zero_inside(c: float) -> None:
    x, y = rows(60, 3), rows(60, 3, seed=1)
    energy = cones.entailment_energy(x, y, c)
    assert bool(((energy == 0) == cones.contains(x, y, c)).all())
    angle, aperture = cones.exterior_angle(x, y, c), cones.half_aperture(x, c)
    torch.testing.assert_close(
        cones.entailment_energy(x, y, c, aperture_scale=0.7, margin=0.1),
        torch.relu(angle - 0.7 * aperture + 0.1),
    )
    torch.testing.assert_close(
        cones.entailment_energy(x, y, c, min_radius=0.3),
        torch.relu(angle - cones.half_aperture(x, c, 0.3)),
    )


def test_ball_cones_are_the_lorentz_ones(c: float) -> None:
    x, y = rows(40, 3), rows(40, 3, seed=1)
    bx, by = to_ball(x, c), to_ball(y, c)
    torch.testing.assert_close(
        cones.poincare_exterior_angle(bx, by, c), cones.exterior_angle(x, y, c), **TIGHT
    )
    torch.testing.assert_close(
        cones.poincare_entailment_energy(bx, by, c, aperture_scale=1.2, min_radius=0.15),
        cones.entailment_energy(x, y, c, aperture_scale=1.2, min_radius=0.15),
        **TIGHT,
    )
    assert bool((cones.poincare_contains(bx, by, c) == cones.contains(x, y, c)).all())
    # the published form, K(1 − |x|²)/|x|
    n = math.sqrt(c) * bx.norm(dim=-1)
    outside = 0.1 * (1 - n * n) / n < 1
    expected = torch.asin((0.1 * (1 - n * n) / n)[outside])
    torch.testing.assert_close(cones.poincare_half_aperture(bx, c)[outside], expected, **TIGHT)


def test_debug_finds_points_outside_the_ball() -> None:
    outside = torch.tensor([1.0, 0.5])
    with checks.debug(), pytest.raises(ValueError, match="outside the ball"):
        cones.poincare_exterior_angle(outside, outside)


# --- Euclidean ------------------------------------------------------------------------------------


def test_euclidean_angle_against_the_arccosine() -> None:
    x, y, origin = rows(40, 6), rows(40, 6, seed=1), rows(6, seed=2)
    expected = torch.acos(torch.cosine_similarity(x - origin, y - x, dim=-1))
    torch.testing.assert_close(cones.euclidean_exterior_angle(x, y, origin), expected, **TIGHT)
    torch.testing.assert_close(
        cones.euclidean_exterior_angle(x - origin, y - origin), expected, **TIGHT
    )


def test_euclidean_conventions_at_singular_points() -> None:
    for dtype in (torch.float32, torch.float64):
        x, y, origin = (rows(5, 4, seed=s).to(dtype).requires_grad_() for s in range(3))
        for args in ((x, x, origin), (x, y, x), (x, 2 * x - origin, origin), (x, x, x)):
            out = cones.euclidean_exterior_angle(*args)
            torch.testing.assert_close(out, torch.zeros_like(out), rtol=0, atol=1e-3)
            gradients(out, x)


def test_euclidean_cones() -> None:
    x, y, origin = rows(40, 3), rows(40, 3, seed=1), rows(3, seed=2)
    aperture = cones.euclidean_half_aperture(x, origin, 0.1)
    torch.testing.assert_close(aperture, torch.asin(0.1 / (x - origin).norm(dim=-1)), **TIGHT)
    assert cones.euclidean_half_aperture(origin, origin).item() == pytest.approx(math.pi / 2)
    torch.testing.assert_close(
        cones.euclidean_entailment_energy(x, y, origin, aperture_scale=0.5, margin=0.2),
        torch.relu(cones.euclidean_exterior_angle(x, y, origin) - 0.5 * aperture + 0.2),
    )


def test_path_angles_are_root_or_parent_relative() -> None:
    path, start = torch.nn.functional.normalize(rows(2, 5, 4), dim=-1), rows(4, seed=1)
    chain = torch.cat([start.expand(2, 1, 4), path], 1)
    parent = [
        cones.euclidean_exterior_angle(chain[:, i + 1], chain[:, i + 2], chain[:, i])
        for i in range(4)
    ]
    torch.testing.assert_close(cones.path_angles(path, start), torch.stack(parent, -1))
    from_root = [
        cones.euclidean_exterior_angle(path[:, i], path[:, i + 1], start) for i in range(4)
    ]
    torch.testing.assert_close(
        cones.path_angles(path, start, relative="root"), torch.stack(from_root, -1)
    )
    assert cones.path_angles(path[:, :1], start).shape == (2, 0)
    assert cones.path_angles(path[:, :2], start.expand(2, 4)).shape == (2, 1)


# --- gradients and bad input ----------------------------------------------------------------------


def test_gradients() -> None:
    x, y, z = (rows(3, 4, seed=s).requires_grad_() for s in range(3))
    c = torch.tensor([[0.7]], dtype=torch.float64, requires_grad=True)
    ball = rows(3, 4, seed=5, scale=0.3).requires_grad_()
    for f, inputs in (
        (cones.exterior_angle, (x, y, c)),
        (cones.half_aperture, (x, c)),
        (cones.euclidean_exterior_angle, (x, y, z)),
    ):
        assert gradcheck(f, inputs)
        assert gradgradcheck(f, inputs)
    assert gradcheck(cones.poincare_exterior_angle, (ball, 0.5 * x, c))
    assert gradcheck(
        lambda p, s: cones.path_angles(p, s), (rows(2, 4, 3).requires_grad_(), z[0, :3])
    )


def test_bad_input_is_named() -> None:
    x = rows(2, 3)
    with pytest.raises(ValueError, match="min_radius must be positive"):
        cones.half_aperture(x, min_radius=0.0)
    with pytest.raises(TypeError, match="min_radius"):
        cones.half_aperture(x, min_radius=torch.ones(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="x and y"):
        cones.exterior_angle(x, rows(2, 4))
    with pytest.raises(ValueError, match="relative"):
        cones.path_angles(x, x[0], relative="sibling")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="path must have shape"):
        cones.path_angles(x[0], x[0])
