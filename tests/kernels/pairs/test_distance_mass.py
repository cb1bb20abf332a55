"""Sums of e^{−distance}: against mpmath and the literal formula, at its limits, and its errors."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from torch import Tensor

from beltrami.geometry import lorentz
from beltrami.kernels.pairs.distance_mass import distance_mass
from tests.kernels.checks import saved_bytes

F64 = torch.float64
EPS = torch.finfo(F64).eps
CURVATURES = pytest.mark.parametrize("c", [0.3, 1.0, 2.5])


def points(n: int, d: int = 5, *, radius: float = 3.0, c: float = 1.0, seed: int = 0) -> Tensor:
    """Points up to √c times a radius from the origin."""
    g = torch.Generator().manual_seed(seed)
    v = torch.nn.functional.normalize(torch.randn(n, d, generator=g, dtype=F64), dim=-1)
    return lorentz.exp0(v * radius / math.sqrt(c) * torch.rand(n, 1, generator=g, dtype=F64), c)


def literal(x: Tensor, y: Tensor, weights: Tensor, c: float) -> Tensor:
    return (weights * (-lorentz.pairwise_dist(x, y, c)).exp()).sum(-1)


def exact_distance(x: Tensor, y: Tensor, c: float) -> mpmath.mpf:
    """√c times the distance, to 60 digits, of the points as they are."""
    with mpmath.workdps(60):
        a, b = ([mpmath.mpf(t) for t in row.tolist()] for row in (x, y))
        curvature = mpmath.mpf(c)

        def time(p: list[mpmath.mpf]) -> mpmath.mpf:
            return mpmath.sqrt(1 + curvature * mpmath.fdot(p, p))

        cosh = time(a) * time(b) - curvature * mpmath.fdot(a, b)
        return mpmath.acosh(max(cosh, mpmath.mpf(1)))


# --- values ---------------------------------------------------------------------------------------


@CURVATURES
@pytest.mark.parametrize("radius", [0.0, 1e-3, 1.0, 6.0, 12.0, 18.0])
@pytest.mark.parametrize("gap", [1e-9, 1e-6, 1e-3, 0.1, 1.0, None])
def test_error_is_within_the_stated_bound(c: float, radius: float, gap: float | None) -> None:
    """Each term alone; `gap` is the distance within a pair, None for random directions."""
    g = torch.Generator().manual_seed(1)
    root = math.sqrt(c)
    for _ in range(4):
        u, v = torch.nn.functional.normalize(torch.randn(2, 5, generator=g, dtype=F64), dim=-1)
        x = lorentz.exp0(u * radius / root, c)
        if gap is None:
            y = lorentz.exp0(v * radius / root, c)
        else:
            y = lorentz.exp(x, v / lorentz.norm(x, v, c) * gap / root, c)
        found = distance_mass(x[None], y[None], torch.ones(1, 1), c).item()
        d = exact_distance(x, y, c)
        times = [math.sqrt(1 + c * t.square().sum().item()) for t in (x, y)]
        delta = EPS * math.prod(times)
        near = 8 * delta / math.sinh(d) if d else math.inf
        bound = (min(near, 5 * math.sqrt(delta)) + (4 + float(d)) * EPS) / root
        assert abs(float(mpmath.log(found) + d / mpmath.sqrt(c))) <= bound


@CURVATURES
def test_is_the_sum_of_terms(c: float) -> None:
    x, y = points(7, c=c), points(9, c=c, seed=1)
    weights = torch.rand(7, 9, dtype=F64)
    found = distance_mass(x, y, weights, c)
    torch.testing.assert_close(found, literal(x, y, weights, c), rtol=1e-11, atol=0)


def test_far_points_do_not_blur_others() -> None:
    """The rounding of a pair is its own: a candidate far out must not merge those near by."""
    near = 1e-5 * torch.eye(2, dtype=F64)
    far = lorentz.exp0(torch.tensor([[18.0, 0.0]], dtype=F64))
    y = torch.cat([near, far]).requires_grad_()
    x = torch.zeros(1, 2, dtype=F64)
    mass = distance_mass(x, y, torch.ones(1, 3))
    assert mass.item() == pytest.approx(2 * math.exp(-1e-5) + math.exp(-18), rel=1e-15)
    (gradient,) = torch.autograd.grad(mass.sum(), y)
    torch.testing.assert_close(gradient[:2], -math.exp(-1e-5) * torch.eye(2, dtype=F64))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32, F64])
def test_weights_of_any_kind(dtype: torch.dtype) -> None:
    x, y = points(6), points(8, seed=1)
    weights = (torch.rand(6, 8) < 0.5).to(dtype)
    torch.testing.assert_close(
        distance_mass(x, y, weights), literal(x, y, weights.double(), 1.0), rtol=1e-11, atol=0
    )


def test_an_integer_is_a_curvature() -> None:
    x, y, weights = points(3), points(4, seed=1), torch.ones(3, 4)
    assert torch.equal(distance_mass(x, y, weights, 1), distance_mass(x, y, weights, 1.0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_narrow_points_are_computed_in_float64(dtype: torch.dtype) -> None:
    x, y = (t.to(dtype).requires_grad_() for t in (points(6), points(8, seed=1)))
    weights = torch.rand(6, 8) < 0.7
    wide = [t.detach().double().requires_grad_() for t in (x, y)]
    found, expected = distance_mass(x, y, weights, 0.7), distance_mass(*wide, weights, 0.7)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected.float())
    ours = torch.autograd.grad(found.sum(), (x, y))
    for a, b in zip(ours, torch.autograd.grad(expected.sum(), wide), strict=True):
        assert a.dtype == dtype
        assert torch.equal(a, b.to(dtype))


def test_mixed_dtypes_give_the_wider_one() -> None:
    x, y = points(3).float().requires_grad_(), points(4, seed=1).requires_grad_()
    found = distance_mass(x, y, torch.ones(3, 4))
    assert found.dtype == F64
    assert [g.dtype for g in torch.autograd.grad(found.sum(), (x, y))] == [torch.float32, F64]


def test_ignores_autocast() -> None:
    x, y, weights = points(6).float().requires_grad_(), points(8, seed=1).float(), torch.ones(6, 8)
    exact = distance_mass(x, y, weights)
    with torch.autocast("cpu", torch.bfloat16):
        found = distance_mass(x, y, weights)
        (gradient,) = torch.autograd.grad(found.sum(), x)
    assert torch.equal(found, exact)
    assert torch.equal(gradient, torch.autograd.grad(exact.sum(), x)[0])


# --- flat space -----------------------------------------------------------------------------------


def flat_literal(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    return (weights * (-(x[:, None] - y).norm(dim=-1)).exp()).sum(-1)


def test_flat_space() -> None:
    g = torch.Generator().manual_seed(4)
    x, y = (torch.randn(n, 3, generator=g, dtype=F64).requires_grad_() for n in (5, 7))
    weights = torch.rand(5, 7, generator=g, dtype=F64)
    found, expected = distance_mass(x, y, weights, 0.0), flat_literal(x, y, weights)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)
    ours, theirs = (torch.autograd.grad(t.sin().sum(), (x, y)) for t in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-13)


def test_flat_space_is_the_limit_of_small_curvature() -> None:
    g = torch.Generator().manual_seed(5)
    x, y = (torch.randn(n, 3, generator=g, dtype=F64) for n in (5, 7))
    weights = torch.rand(5, 7, generator=g, dtype=F64)
    errors = [
        (distance_mass(x, y, weights, c) / distance_mass(x, y, weights, 0) - 1).abs().max().item()
        for c in (1e-2, 1e-4, 1e-6)
    ]
    assert errors[0] < 0.1
    assert errors[1] < errors[0] / 50
    assert errors[2] < errors[1] / 50


def test_flat_space_far_from_the_origin() -> None:
    """Where all points are is no matter; a product would lose half of the digits."""
    g = torch.Generator().manual_seed(6)
    x, y = (torch.randn(n, 3, generator=g, dtype=F64) for n in (5, 7))
    weights = torch.rand(5, 7, generator=g, dtype=F64)
    offset = 2.0**20
    found = distance_mass(x + offset, y + offset, weights, 0.0)
    torch.testing.assert_close(found, distance_mass(x, y, weights, 0.0), rtol=1e-8, atol=0)


def test_flat_points_that_are_one_pull_nowhere() -> None:
    x = 1e3 * torch.randn(5, 3, dtype=F64)
    x[0] = 0.0
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    mass = distance_mass(a, b, torch.eye(5, dtype=torch.bool), 0.0)
    assert torch.equal(mass, torch.ones(5, dtype=F64))
    assert not any(g.any() for g in torch.autograd.grad(mass.sum(), (a, b)))


# --- gradients ------------------------------------------------------------------------------------


@CURVATURES
@pytest.mark.parametrize("binary", [True, False])
def test_gradients(c: float, binary: bool) -> None:
    x, y = points(4, 3, c=c).requires_grad_(), points(5, 3, c=c, seed=1).requires_grad_()
    weights = torch.rand(4, 5, dtype=F64)
    weights = weights < 0.5 if binary else weights
    assert torch.autograd.gradcheck(lambda a, b: distance_mass(a, b, weights, c), (x, y))
    for wanted in (x, y):  # and each alone
        others = {id(x): x.detach(), id(y): y.detach()} | {id(wanted): wanted}
        found = distance_mass(others[id(x)], others[id(y)], weights, c).sum()
        expected = literal(others[id(x)], others[id(y)], weights.double(), c).sum()
        (a,), (b,) = (torch.autograd.grad(t, wanted) for t in (found, expected))
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@CURVATURES
def test_gradients_far_out(c: float) -> None:
    """Riemannian length of a gradient is that of −e^{−d}, also where coordinates are 1e7."""
    g = torch.Generator().manual_seed(3)
    u, v = (torch.nn.functional.normalize(torch.randn(6, 5, generator=g, dtype=F64)) for _ in "xy")
    x, y = (lorentz.exp0(17 * t / math.sqrt(c), c).requires_grad_() for t in (u, v))
    for i in range(6):
        mass = distance_mass(x[i : i + 1], y[i : i + 1], torch.ones(1, 1), c)
        for wanted in (x, y):
            (gradient,) = torch.autograd.grad(mass.sum(), wanted, retain_graph=True)
            length = lorentz.norm(wanted[i], lorentz.riemannian_grad(wanted[i], gradient[i], c), c)
            assert length.item() == pytest.approx(mass.item(), rel=1e-7)


@pytest.mark.parametrize("radius", [0.0, 1.0, 6.0, 18.0, 40.0])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_coincident_points_pull_nowhere(radius: float, dtype: torch.dtype) -> None:
    v = torch.nn.functional.normalize(torch.randn(5, 3, dtype=F64), dim=-1)
    x = lorentz.exp0(v * radius).to(dtype)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    mass = distance_mass(a, b, torch.eye(5, dtype=torch.bool))
    assert torch.equal(mass, torch.ones(5, dtype=dtype))
    for gradient in torch.autograd.grad(mass.sum(), (a, b)):
        assert not gradient.any()


def test_finite_at_the_ends_of_float64() -> None:
    """Where a product of times overflows the mass is 0, and so is its gradient."""
    x = lorentz.exp0(torch.tensor([[300.0, 0.0], [0.0, -300.0], [0.0, 0.0]], dtype=F64))
    x.requires_grad_()
    mass = distance_mass(x, x, ~torch.eye(3, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(mass.sum(), x)
    torch.testing.assert_close(mass[2].item(), 2 * math.exp(-300), rtol=1e-12, atol=0.0)
    assert mass.isfinite().all()
    assert gradient.isfinite().all()


def test_only_once_differentiable() -> None:
    x, y = points(2).requires_grad_(), points(3, seed=1)
    mass = distance_mass(x, y, torch.ones(2, 3)).log().sum()
    (gradient,) = torch.autograd.grad(mass, x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.sum().backward()


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(0, 4), (3, 0), (0, 0)])
def test_empty_sets(n: int, m: int) -> None:
    x, y = points(3)[:n].requires_grad_(), points(4, seed=1)[:m].requires_grad_()
    mass = distance_mass(x, y, torch.ones(n, m))
    assert torch.equal(mass, torch.zeros(n, dtype=F64))
    for point, gradient in zip((x, y), torch.autograd.grad(mass.sum(), (x, y)), strict=True):
        assert gradient.shape == point.shape
        assert not gradient.any()


def test_non_contiguous() -> None:
    x, y = points(8, 6)[::2, 1::2].requires_grad_(), points(3, 9, seed=1).T.requires_grad_()
    weights = torch.rand(9, 4, dtype=F64).T
    found = distance_mass(x, y, weights)
    plain = [t.detach().contiguous().requires_grad_() for t in (x, y)]
    expected = distance_mass(*plain, weights.contiguous())
    torch.testing.assert_close(found, expected)
    ours = torch.autograd.grad(found.sum(), (x, y))
    for a, b in zip(ours, torch.autograd.grad(expected.sum(), plain), strict=True):
        torch.testing.assert_close(a, b)


def test_keeps_one_matrix() -> None:
    x, y = points(60).requires_grad_(), points(70, seed=1).requires_grad_()
    kept = saved_bytes(lambda: distance_mass(x, y, torch.ones(60, 70)))
    assert kept == 8 * (60 * 70 + (60 + 70) * (5 + 1))


def test_inputs_are_left_alone() -> None:
    x, y, weights = points(5), points(5, seed=1), torch.rand(5, 5, dtype=F64)
    copies = [t.clone() for t in (x, y, weights)]
    distance_mass(x, y, weights)
    assert all(map(torch.equal, (x, y, weights), copies))


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"c": torch.ones(1)}, TypeError, "c must be a number here, got Tensor"),
        ({"c": torch.zeros(2)}, TypeError, "c must be a number here, got Tensor"),
        ({"c": True}, TypeError, "c must be"),
        ({"c": False}, TypeError, "c must be"),
        ({"c": -1.0}, ValueError, "c must be a positive finite number, got -1"),
        ({"x": torch.ones(2, 3, dtype=torch.int64)}, TypeError, "x must be a floating point"),
        ({"x": [[0.0]]}, TypeError, "x must be a torch.Tensor, got list"),
        ({"y": torch.ones(4, 2)}, ValueError, "same last dimension"),
        ({"x": torch.ones(3)}, ValueError, r"one set of points each.*\(3,\)"),
        ({"y": torch.ones(1, 4, 3)}, ValueError, r"one set of points each.*\(1, 4, 3\)"),
        ({"weights": torch.ones(4, 2)}, ValueError, r"weights must be of shape \(2, 4\).*\(4, 2\)"),
        ({"weights": torch.ones(4)}, ValueError, r"weights must be of shape \(2, 4\)"),
        ({"weights": None}, TypeError, "weights must be a tensor.*NoneType"),
        ({"weights": torch.ones(2, 4) * 1j}, TypeError, "weights must be a tensor.*complex"),
    ],
)
def test_bad_input(arguments: dict, kind: type[Exception], text: str) -> None:
    good = {"x": torch.ones(2, 3), "y": torch.ones(4, 3), "weights": torch.ones(2, 4)}
    with pytest.raises(kind, match=text):
        distance_mass(**good | arguments)
