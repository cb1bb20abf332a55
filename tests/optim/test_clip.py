"""Clipping by the Riemannian norm of gradients."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from beltrami.geometry import (
    Curvature,
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Sphere,
    Stereographic,
    lorentz,
    poincare,
)
from beltrami.optim import RiemannianAdam, RiemannianSGD, clip_grad_norm_, grad_norm
from tests.optim.problems import MyLorentz, Words, points, same, sparse, waves

SIZE = 4
MANIFOLDS = [
    Lorentz(0.7),
    PoincareBall(0.7),
    MyLorentz(0.7),
    Sphere(0.7),
    Stereographic(0.5),
    Product([(Lorentz(1.0), 2), (Euclidean(), 1), (PoincareBall(2.0), 1)]),
]


def with_gradient(manifold: Manifold, *, seed: int = 0, scale: float = 1.0) -> nn.Parameter:
    x = nn.Parameter(points(manifold, 6, SIZE, seed=seed))
    x.grad = scale * torch.randn_like(x)
    return x


def metric_norm(manifold: Manifold, x: Tensor, g: Tensor) -> Tensor:
    """Of all rows together, by the manifold's own methods."""
    vector = manifold.riemannian_grad(x.detach(), g)
    return manifold.inner(x.detach(), vector, vector).sum().sqrt()


def grads(model: nn.Module) -> list[Tensor | None]:
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
def test_the_norm_is_that_of_the_riemannian_gradient(manifold: Manifold) -> None:
    x = with_gradient(manifold)
    optimizer = RiemannianSGD([x], manifold=manifold)
    assert x.grad is not None
    before, expected = x.grad.clone(), metric_norm(manifold, x, x.grad)
    torch.testing.assert_close(grad_norm(optimizer), expected)
    assert torch.equal(x.grad, before)  # measured, not changed
    torch.testing.assert_close(clip_grad_norm_(optimizer, 0.5), expected)
    torch.testing.assert_close(x.grad, before * 0.5 / expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(
        metric_norm(manifold, x, x.grad), torch.tensor(0.5, dtype=torch.float64), rtol=1e-5, atol=0
    )


@given(st.floats(1e-3, 1e3), st.floats(1e-2, 10.0), st.integers(0, 1000))
def test_what_is_short_enough_is_left_alone(max_norm: float, scale: float, seed: int) -> None:
    x = with_gradient(Lorentz(0.7), seed=seed, scale=scale)
    optimizer = RiemannianSGD([x], manifold=Lorentz(0.7))
    assert x.grad is not None
    before = x.grad.clone()
    norm = clip_grad_norm_(optimizer, max_norm)
    if norm + 1e-6 <= max_norm:
        assert torch.equal(x.grad, before)
    assert grad_norm(optimizer) <= max_norm * (1 + 1e-12)


def test_the_norm_does_not_depend_on_the_chart() -> None:
    """One loss in two models: gradients have other entries, without bound, but the same norm."""
    loss = waves(SIZE)
    H, ball = Lorentz(1.0), PoincareBall(1.0)
    x = nn.Parameter(points(H, 6, SIZE, std=1.5))
    b = nn.Parameter(poincare.from_lorentz(x.detach(), 1.0))
    loss(lorentz.log0(x)).backward()
    loss(poincare.log0(b)).backward()
    assert x.grad is not None
    assert b.grad is not None
    assert b.grad.norm() > 3 * x.grad.norm()
    a = grad_norm(RiemannianSGD([x], manifold=H))
    torch.testing.assert_close(a, grad_norm(RiemannianSGD([b], manifold=ball)), rtol=1e-10, atol=0)


def test_a_plain_model_is_clipped_as_by_torch() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    model(torch.randn(5, 4)).square().sum().backward()
    other = copy.deepcopy(model)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert p.grad is not None
        q.grad = p.grad.clone()
    for max_norm in (math.inf, 1e3, 0.3):
        norm = clip_grad_norm_(model, max_norm)
        torch.testing.assert_close(
            norm, torch.nn.utils.clip_grad_norm_(other.parameters(), max_norm)
        )
        torch.testing.assert_close(grads(model), grads(other))


@pytest.mark.parametrize("kind", [Lorentz, PoincareBall])
def test_a_model_and_its_optimiser_are_clipped_alike(kind: type[Manifold]) -> None:
    """Points, curvature and plain parameters in one sum of squares."""
    model = Words(kind).double()
    model.loss().backward()
    optimizer = RiemannianAdam(model)
    total = torch.zeros((), dtype=torch.float64)
    for group in optimizer.param_groups:
        for p in group["params"]:
            total += metric_norm(group["manifold"], p, p.grad) ** 2
    torch.testing.assert_close(grad_norm(model), total.sqrt())
    other = copy.deepcopy(model)
    other.loss().backward()
    norm = clip_grad_norm_(model, 0.01)
    assert same(norm, clip_grad_norm_(RiemannianAdam(other), 0.01))
    assert same(grads(model), grads(other))
    torch.testing.assert_close(grad_norm(model), torch.tensor(0.01).double(), rtol=1e-3, atol=0)


def test_infinity_only_measures() -> None:
    x = with_gradient(Lorentz())
    optimizer = RiemannianSGD([x], manifold=Lorentz())
    assert x.grad is not None
    before = x.grad.clone()
    assert clip_grad_norm_(optimizer, math.inf) > 0
    assert torch.equal(x.grad, before)


def test_zero_clips_to_nothing() -> None:
    x = with_gradient(Lorentz())
    clip_grad_norm_(RiemannianSGD([x], manifold=Lorentz()), 0.0)
    assert x.grad is not None
    assert x.grad.abs().max() == 0


@pytest.mark.parametrize("manifold", [Lorentz(0.7), PoincareBall(0.7), Euclidean()], ids=repr)
def test_sparse_gradients(manifold: Manifold) -> None:
    """Rows that are named twice count with their sum."""
    start = points(manifold, 6, SIZE)
    gradient = sparse([4, 1, 4], 6, SIZE)
    x, y = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    x.grad, y.grad = gradient.clone(), gradient.to_dense()
    norms = [clip_grad_norm_(RiemannianSGD([p], manifold=manifold), 0.1) for p in (x, y)]
    torch.testing.assert_close(norms[0], norms[1])
    assert x.grad.is_sparse
    torch.testing.assert_close(x.grad.to_dense(), y.grad)


def test_several_curvatures() -> None:
    curvature = Curvature(1.0, size=3).double()
    with torch.no_grad():
        curvature.raw.copy_(torch.tensor([-1.0, 0.0, 1.0]))
    x = nn.Parameter(torch.randn(5, 3, 2, dtype=torch.float64))
    x.grad = torch.randn_like(x)
    alone = [
        metric_norm(Lorentz(float(c)), x[:, i], x.grad[:, i]) ** 2
        for i, c in enumerate(curvature.value.detach())
    ]
    norm = grad_norm(RiemannianSGD([x], manifold=Lorentz(curvature)))
    torch.testing.assert_close(norm, torch.stack(alone).sum().sqrt())


def test_half_precision_is_summed_in_float32() -> None:
    x = nn.Parameter(torch.zeros(100, 50, dtype=torch.float16))
    x.grad = torch.full_like(x, 60.0)  # its square sum is 1.8e7, beyond float16
    norm = clip_grad_norm_(RiemannianSGD([x], manifold=Lorentz()), 1.0)
    assert norm.dtype == torch.float32
    assert norm.item() == pytest.approx(60 * 5000**0.5)
    assert x.grad.dtype == torch.float16
    assert x.grad.float().norm().item() == pytest.approx(1.0, rel=1e-2)


def test_far_out_nothing_overflows_or_cancels() -> None:
    """At radius 30 in float32: the gradient of a distance has length 1."""
    H = Lorentz(1.0)
    x = nn.Parameter(H.exp0(30 * nn.functional.normalize(torch.randn(8, 3), dim=-1)))
    H.dist(x, H.random(8, 3)).sum().backward()
    norm = grad_norm(RiemannianSGD([x], manifold=H))
    assert norm.item() == pytest.approx(8**0.5, rel=1e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_norms_that_are_not_finite(bad: float) -> None:
    x = with_gradient(Lorentz())
    assert x.grad is not None
    x.grad[2, 1] = bad
    before = x.grad.clone()
    optimizer = RiemannianSGD([x], manifold=Lorentz())
    with pytest.raises(RuntimeError, match=r"total norm of the gradients is (nan|inf)"):
        clip_grad_norm_(optimizer, 1.0, error_if_nonfinite=True)
    assert torch.equal(x.grad.nan_to_num(7.0), before.nan_to_num(7.0))  # nothing was changed
    assert not clip_grad_norm_(optimizer, 1.0).isfinite()


def test_without_gradients_the_norm_is_zero() -> None:
    assert clip_grad_norm_(nn.Linear(2, 2), 1.0) == 0
    assert grad_norm(Words()) == 0
    partly = Words()
    partly.curvature.raw.grad = torch.full((1,), 3.0)
    assert grad_norm(partly) == 3


@pytest.mark.parametrize(
    ("params", "max_norm", "error", "words"),
    [
        ([nn.Parameter(torch.zeros(2))], 1.0, TypeError, "a module or of an optimiser"),
        (torch.optim.SGD(nn.Linear(2, 2).parameters()), 1.0, TypeError, "of beltrami.optim"),
        (nn.Linear(2, 2), -1.0, ValueError, "max_norm must be at least 0"),
        (nn.Linear(2, 2), math.nan, ValueError, "max_norm"),
        (nn.Linear(2, 2), "1", TypeError, "max_norm must be a number"),
    ],
)
def test_bad_input(params: Any, max_norm: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        clip_grad_norm_(params, max_norm)


def test_measuring_writes_nothing() -> None:
    """A parameter that a graph has saved could else not be used in its backward any more."""
    table = nn.Parameter(points(Lorentz(1.0), 5, 3))
    optimizer = RiemannianAdam([table], manifold=Lorentz(1.0))
    table.grad = sparse([1, 3], 5, 3)
    version = table._version
    clip_grad_norm_(optimizer, 0.1)
    assert table._version == version
