"""Scores of words against the classifiers of `beltrami.nn`, formulas in float64, and limits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Lorentz, lorentz
from beltrami.kernels.layers import word_scores as ws
from tests.kernels.checks import assert_compiles, leaf

F64 = torch.float64
KINDS = pytest.mark.parametrize("kind", ["linear", "hyperplane", "distance"])


def terms_of(
    kind: str, x: Tensor, w: Tensor, b: Tensor, radius: float | Tensor, temperature: Tensor
) -> ws.ScoreTerms:
    """Of each kind from the same arguments; b are time weights, offsets, or not used."""
    if kind == "linear":
        return ws.linear_terms(x, b, radius)
    if kind == "hyperplane":
        return ws.hyperplane_terms(x, w, b, radius)
    return ws.distance_terms(x, w, temperature, radius)


def inputs(n: int = 7, words: int = 11, d: int = 5, dtype: torch.dtype = F64) -> tuple[Tensor, ...]:
    """x, w, b, R and T, of which each kind uses four."""
    radius = torch.tensor([1.5], dtype=dtype, requires_grad=True)
    temperature = torch.tensor([0.7], dtype=dtype, requires_grad=True)
    x, w, b = (leaf(*s, dtype=dtype) for s in ((n, d), (words, d), (words,)))
    return x, w, b, radius, temperature


def plain(kind: str, x: Tensor, w: Tensor, *others: Tensor) -> Tensor:
    return ws.word_scores(ws.word_products(x, w), terms_of(kind, x, w, *others))


def test_linear_is_the_map_with_a_time_column() -> None:
    x, w, b, radius, _ = inputs()
    expected = F.linear(x, w) + lorentz.excess_time(x, radius**-2, keepdim=True) * b
    torch.testing.assert_close(ws.word_scores(x @ w.mT, ws.linear_terms(x, b, radius)), expected)
    assert torch.equal(ws.word_scores(x @ w.mT, ws.ScoreTerms("linear")), x @ w.mT)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("kind", ["hyperplane", "distance"])
def test_agrees_with_the_classifier(kind: str, dtype: torch.dtype) -> None:
    """Values and gradients, that of the curvature too."""
    curvature = Curvature(0.6).to(dtype)
    manifold = Lorentz(curvature)
    if kind == "hyperplane":
        layer: torch.nn.Module = bnn.MLR(5, 11, manifold=manifold).to(dtype)
        torch.nn.init.normal_(layer.offset)
    else:
        layer = bnn.DistanceClassifier(5, 11, manifold=manifold, temperature=0.7).to(dtype)
    x = leaf(2, 7, 5, dtype=dtype)
    radius = curvature.value**-0.5
    weight: Tensor = layer.weight
    if kind == "hyperplane":
        terms = ws.hyperplane_terms(x, weight, layer.offset, radius)
    else:
        terms = ws.distance_terms(x, weight, layer.log_temperature.exp(), radius)
    got, expected = ws.word_scores(ws.word_products(x, weight), terms), layer(x)
    tolerance = {"rtol": 1e-4, "atol": 2e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(got, expected, **tolerance)
    leaves = [x, *layer.parameters(), *curvature.parameters()]
    for a, b in zip(
        *(
            torch.autograd.grad(s.square().sum(), leaves, retain_graph=True)
            for s in (got, expected)
        ),
        strict=True,
    ):
        torch.testing.assert_close(a, b, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@KINDS
def test_flat_limit(kind: str, dtype: torch.dtype) -> None:
    x, w, b, _, temperature = (t.detach() for t in inputs(dtype=dtype))
    expected = {
        "linear": x @ w.mT,
        "hyperplane": x @ w.mT - b * w.norm(dim=-1),
        "distance": -torch.cdist(x, w).square() / temperature,
    }[kind]
    errors = []
    for radius in (1e1, 1e2, 1e3):  # an error of O(c), but for linear scores, whose time is O(√c)
        got = plain(kind, x, w, b, radius, temperature)
        errors.append(float((got - expected).abs().max()))
    rate = 20.0 if kind == "linear" else 1e3
    assert errors[2] <= max(3 * errors[0] / rate, 2e-5 if dtype == torch.float32 else 0.0)


@KINDS
def test_gradients(kind: str) -> None:
    arguments = inputs(n=3, words=4)
    assert torch.autograd.gradcheck(lambda *given: plain(kind, *given), arguments)


@KINDS
def test_finite_where_it_is_delicate(kind: str) -> None:
    """At w = 0, x = 0, x = w and far out; slopes as they are by autograd."""
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0], [1e4, 0.0], [1e15, 1e15]])
    w = torch.tensor([[0.0, 0.0], [1.0, 2.0], [1e4, 0.0], [1e-25, 0.0]])
    b = torch.tensor([1.0, 0.0, -3.0, 20.0])
    radius, temperature = torch.ones(1), torch.ones(1)
    leaves = [t.requires_grad_() for t in (x, w, b, radius, temperature)]
    scores = plain(kind, *leaves)
    assert scores.isfinite().all()
    used = [t for t in leaves if t is not b] if kind == "distance" else leaves[:4]
    weights = 1 / (1 + scores.detach().abs()) ** 2
    for g in torch.autograd.grad((weights * scores).sum(), used):
        assert g.isfinite().all()
    if kind == "hyperplane":
        assert not scores[:, 0].any()
    if kind == "distance":
        assert scores[0, 0] == 0
    u = torch.tensor([-1e30, -3.0, 0.0, 1e-30, 0.5, 1e12], requires_grad=True)
    value = ws.value_of(u, kind)
    (slope,) = torch.autograd.grad(value.sum(), u)
    torch.testing.assert_close(ws.slope_of(u, value, kind), slope, atol=1e-25, rtol=1e-6)


def test_bfloat16_rounds_the_points_and_nothing_else() -> None:
    x, w, b = 4 * torch.randn(64, 384), torch.randn(99, 384) / 384**0.5, torch.randn(99)
    radius, temperature = 384**0.5, torch.ones(1)
    for kind in ("linear", "hyperplane", "distance"):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = plain(kind, x, w, b, radius, temperature)
            with torch.no_grad():
                assert torch.equal(plain(kind, x, w, b, radius, temperature), got)
        rounded = (x.bfloat16().double(), w.bfloat16().double(), b.double())
        expected = plain(kind, *rounded, radius, temperature.double())
        assert got.dtype == torch.float32
        error = (got - expected).abs()
        assert (error <= 3e-6 * expected.std() + 1e-6 * expected.abs()).all()


@KINDS
def test_compiles(kind: str) -> None:
    x, w, b, radius, temperature = inputs(dtype=torch.float32)
    fixed = {"distance": b}.get(kind, temperature)
    last = {"distance": temperature}.get(kind, b)

    def scores(x: Tensor, w: Tensor, radius: Tensor, last: Tensor) -> Tensor:
        b, temperature = (fixed, last) if kind == "distance" else (last, fixed)
        return plain(kind, x, w, b, radius, temperature)

    assert_compiles(scores, x, w, radius, last)
