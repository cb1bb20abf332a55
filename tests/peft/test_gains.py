"""The maps against the formulas they are short forms of."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.peft.gains import IN_BALL, AdapterMap, Curvatures

D, R, OUT = 9, 4, 7


def parts(seed: int = 0, size: float = 1.0) -> tuple[Tensor, ...]:
    """x, A, B and the time columns, in float64."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(5, D), (R, D), (OUT, R), (R,), (OUT,)]
    x, a, b, at, bt = (
        torch.randn(s, generator=generator, dtype=torch.float64) / s[-1] ** 0.5 for s in shapes
    )
    return size * D**0.5 * x, a, b, at, bt


def delta(adapter_map: AdapterMap, x: Tensor, c: float, *weights: Tensor) -> Tensor:
    a, b, at, bt = weights
    u, n2 = x @ a.mT, x.square().sum(-1, keepdim=True)
    return adapter_map(u, n2, Curvatures((c,)), b, time_in=at, time_out=bt)


def exp0(x: Tensor, k: float) -> Tensor:
    """The paper's, with time in front; K is the squared radius."""
    n = x.norm(dim=-1, keepdim=True)
    root = math.sqrt(k)
    return torch.cat([root * torch.cosh(n / root), root * torch.sinh(n / root) * x / n], -1)


def log0(y: Tensor, k: float) -> Tensor:
    root = math.sqrt(k)
    space = y[..., 1:]
    return root * torch.acosh(y[..., :1] / root) * space / space.norm(dim=-1, keepdim=True)


def with_time(space: Tensor, k: float) -> Tensor:
    return torch.cat([torch.sqrt(space.square().sum(-1, keepdim=True) + k), space], -1)


@pytest.mark.parametrize("c", [0.1, 0.5, 1.0, 2.0, 10.0])
@pytest.mark.parametrize("size", [0.3, 1.0, 2.5])
def test_rotation_is_the_five_steps_of_the_paper(c: float, size: float) -> None:
    x, a, b, at, bt = parts(size=size)
    s, k = math.sqrt(D), 1 / c
    down = with_time(exp0(x / s, k)[..., 1:] @ a.mT, k)
    up = with_time(down[..., 1:] @ b.mT, k)
    expected = s * log0(up, k)
    found = delta(AdapterMap("rotation", unit=s), x, c, a, b, at, bt)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("c", [0.1, 0.5, 1.0, 2.0, 10.0])
def test_boost_is_the_five_steps_with_time(c: float) -> None:
    x, a, b, at, bt = parts()
    s, k = math.sqrt(D), 1 / c
    down = with_time(exp0(x / s, k) @ torch.cat([at[:, None], a], -1).mT, k)
    up = with_time(down @ torch.cat([bt[:, None], b], -1).mT, k)
    expected = s * log0(up, k)
    found = delta(AdapterMap("boost", unit=s, cap=40.0), x, c, a, b, at, bt)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_boost_without_time_columns_is_a_rotation() -> None:
    x, a, b, at, bt = parts()
    weights = (a, b, torch.zeros_like(at), torch.zeros_like(bt))
    s = math.sqrt(D)
    found = delta(AdapterMap("boost", unit=s, cap=40.0), x, 0.7, *weights)
    expected = delta(AdapterMap("rotation", unit=s), x, 0.7, *weights)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_simplified_goes_through_the_ball() -> None:
    """x/2 as a point of the ball, to the hyperboloid, BA, back to the ball, times 2."""
    x, a, b, at, bt = parts(size=0.4)
    s, c = math.sqrt(D), 0.8
    y = x / s / 2
    assert (c * y.square().sum(-1) < 1).all()
    lifted = 2 * y / (1 - c * y.square().sum(-1, keepdim=True))
    w = lifted @ a.mT @ b.mT
    expected = s * 2 * w / (1 + torch.sqrt(1 + c * w.square().sum(-1, keepdim=True)))
    found = delta(AdapterMap("simplified", unit=s), x, c, a, b, at, bt)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_simplified_keeps_tokens_inside_the_ball() -> None:
    x, a, b, _at, _bt = parts()
    s = math.sqrt(D)
    far, farther = (x / x.norm(dim=-1, keepdim=True) * s * k for k in (IN_BALL, 50.0))
    adapter_map = AdapterMap("simplified", unit=s)
    u, w = far @ a.mT, b
    at_border = adapter_map.gain(u, far.square().sum(-1, keepdim=True), Curvatures((1.0,)), w)
    beyond = adapter_map.gain(u, farther.square().sum(-1, keepdim=True), Curvatures((1.0,)), w)
    torch.testing.assert_close(beyond, at_border, rtol=1e-12, atol=0)


@pytest.mark.parametrize("k", [0.1, 0.5, 1.0, 2.0])
def test_repo_is_the_published_code(k: float) -> None:
    """As published: time with 1/K where the logarithm has K, and no scale at the end."""
    x, a, b, at, bt = parts()
    s = math.sqrt(D)
    n = x.norm(dim=-1, keepdim=True)
    radius2 = math.log1p(math.exp(k)) + 1e-6
    radius = math.sqrt(radius2)
    u = (radius * torch.sinh((n / s / radius).clamp(max=12.0)) * x / n) @ a.mT @ b.mT
    norm = u.norm(dim=-1, keepdim=True)
    theta = torch.sqrt(norm**2 + 1 / radius2) / radius
    small = torch.sqrt(2 * (theta - 1).clamp(min=1e-6))
    angle = torch.where(theta < 1.01, small, torch.acosh(theta.clamp(min=1 + 1e-7)))
    expected = radius * angle * u / norm.clamp(min=1e-7)
    found = delta(AdapterMap("rotation", "repo", unit=s), x, 1 / k, a, b, at, bt)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_repo_has_a_dead_zone() -> None:
    """Why it does not train: below |u| = √(K − 1/K) the update has one length for all tokens."""
    x, a, b, at, bt = parts(size=0.01)
    found = delta(AdapterMap("rotation", "repo", unit=3.0), x, 1.0, a, b, at, bt)
    lengths = found.norm(dim=-1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 1.62e-3), rtol=1e-2, atol=0)


@pytest.mark.parametrize("k", [0.5, 1.0])
def test_repo_simplified_is_the_published_code(k: float) -> None:
    x, a, b, at, bt = parts()
    u = (2 * x / (1 + k * x.square().sum(-1, keepdim=True))) @ a.mT @ b.mT
    expected = u / (1 + math.sqrt(k) * torch.sqrt(u.square().sum(-1, keepdim=True) + k))
    found = delta(AdapterMap("simplified", "repo", unit=3.0), x, k, a, b, at, bt)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("variant", ["rotation", "simplified", "tangent"])
def test_small_curvature_is_lora(variant: str) -> None:
    """With an error of order c."""
    x, a, b, at, bt = parts()
    lora = x @ a.mT @ b.mT
    errors = []
    for c in (1e-2, 1e-3, 1e-4):
        found = delta(AdapterMap(variant, unit=3.0), x, c, a, b, at, bt)
        errors.append(float((found - lora).norm() / lora.norm()))
    if variant == "tangent":
        assert errors == [0.0, 0.0, 0.0]
    else:
        assert errors[0] / errors[1] == pytest.approx(10, rel=0.05)
        assert errors[1] / errors[2] == pytest.approx(10, rel=0.05)


def test_the_first_correction() -> None:
    """c/(6s²)·(|x|² − |BAx|²)·BAx: the paper's term, and the one it drops."""
    x, a, b, at, bt = parts()
    s, lora = math.sqrt(D), x @ a.mT @ b.mT
    squares = x.square().sum(-1, keepdim=True) - lora.square().sum(-1, keepdim=True)
    errors = []
    for c in (1e-1, 1e-2, 1e-3):
        found = delta(AdapterMap("rotation", unit=s), x, c, a, b, at, bt) - lora
        first = c / (6 * s**2) * squares * lora
        errors.append(float((found - first).norm()))
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.2)
    assert errors[1] / errors[2] == pytest.approx(100, rel=0.1)


def test_a_mixture_of_one_is_that_one() -> None:
    x, a, b, _at, _bt = parts()
    u, n2 = x @ a.mT, x.square().sum(-1, keepdim=True)
    adapter_map = AdapterMap("rotation", unit=3.0)
    weights = F.one_hot(torch.tensor([0, 1, 2, 1, 0]), 3).double()
    values = (0.1, 1.0, 2.0)
    found = adapter_map(u, n2, Curvatures(values, weights=weights), b)
    for row, which in enumerate([0, 1, 2, 1, 0]):
        expected = adapter_map(u[row : row + 1], n2[row : row + 1], Curvatures((values[which],)), b)
        torch.testing.assert_close(found[row : row + 1], expected, rtol=1e-12, atol=1e-12)


def test_a_token_moves_its_curvature() -> None:
    x, a, b, _at, _bt = parts()
    u, n2 = x @ a.mT, x.square().sum(-1, keepdim=True)
    adapter_map = AdapterMap("rotation", unit=3.0)
    factor = torch.tensor([0.25, 0.5, 1.0, 2.0, 4.0], dtype=torch.float64)[:, None]
    found = adapter_map(u, n2, Curvatures((1.0,), factor=factor), b)
    for row in range(5):
        one = Curvatures((float(factor[row]),))
        expected = adapter_map(u[row : row + 1], n2[row : row + 1], one, b)
        torch.testing.assert_close(found[row : row + 1], expected, rtol=1e-12, atol=1e-12)


LEARNED = pytest.mark.parametrize("learned", [False, True])


def values_and_gradients(out: Tensor, *leaves: object) -> tuple[Tensor, ...]:
    """Of those that are tensors."""
    return out, *torch.autograd.grad(out.sin().sum(), [t for t in leaves if isinstance(t, Tensor)])


@LEARNED
@pytest.mark.parametrize("numbers", [(0.1, 1.0, 2.0), (1.5,)], ids=["weighed", "moved"])
@pytest.mark.parametrize("cap", [None, 0.6])
def test_calibration_sees_what_the_operation_does(
    numbers: tuple[float, ...], learned: bool, cap: float | None
) -> None:
    """With the gradients that autograd has of the gain, those of curvatures and router included."""
    x, a, b, _at, _bt = parts()
    tensors = tuple(torch.tensor([c], dtype=torch.float64, requires_grad=True) for c in numbers)
    values = tensors if learned else numbers
    routed = torch.rand(5, len(values), dtype=torch.float64).requires_grad_()
    role = "weights" if len(values) > 1 else "factor"
    curvatures = Curvatures(values, **{role: routed})
    u, n2 = (x @ a.mT).requires_grad_(), x.square().sum(-1, keepdim=True).requires_grad_()
    b.requires_grad_()
    adapter_map = AdapterMap("rotation", unit=3.0, cap=cap)
    z, weight = adapter_map.coefficients(u, n2, curvatures, b)
    expected, found = (
        values_and_gradients(out, u, n2, b, routed, *values)
        for out in (1.3 * z @ weight.mT, adapter_map(u, n2, curvatures, b, scaling=1.3))
    )
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


@LEARNED
@pytest.mark.parametrize("cap", [40.0, 0.6])
def test_calibration_sees_what_boost_does(learned: bool, cap: float) -> None:
    x, a, b, at, bt = parts()
    leaves = [x @ a.mT, x.square().sum(-1, keepdim=True), b, at, bt]
    u, n2, b, at, bt = (t.requires_grad_() for t in leaves)
    c = torch.tensor([1.5], dtype=torch.float64, requires_grad=True) if learned else 1.5
    adapter_map = AdapterMap("boost", unit=3.0, cap=cap)
    times = {"time_in": at, "time_out": bt}
    z, weight = adapter_map.coefficients(u, n2, Curvatures((c,)), b, **times)
    operation = adapter_map(u, n2, Curvatures((c,)), b, **times, scaling=1.3)
    expected, found = (
        values_and_gradients(out, u, n2, b, at, bt, c) for out in (1.3 * z @ weight.mT, operation)
    )
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


def test_boost_is_no_gain() -> None:
    x, a, b, _at, _bt = parts()
    with pytest.raises(ValueError, match="direction"):
        AdapterMap("boost").gain(x @ a.mT, x[:, :1], Curvatures((1.0,)), b)
