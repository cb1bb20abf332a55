"""The Lorentz residual against its definition in ambient coordinates, in 60 digits."""

from __future__ import annotations

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from beltrami.geometry import lorentz
from beltrami.kernels.layers.residual import residual
from tests.kernels.checks import assert_compiles, gradients, leaf, saved_bytes


def ambient(x: list[float], y: list[float], w: float, c: float) -> list[mpmath.mpf]:
    """(1 + w)·z/(√c·|z|_L) as the definition has it."""
    with mpmath.workdps(60):
        mx, my = [mpmath.mpf(v) for v in x], [mpmath.mpf(v) for v in y]
        t = [mpmath.sqrt(1 / mpmath.mpf(c) + sum(v * v for v in p)) for p in (mx, my)]
        z = [a + w * b for a, b in zip(mx, my, strict=True)]
        z_t = t[0] + w * t[1]
        length = mpmath.sqrt(c * (z_t**2 - sum(v * v for v in z)))
        return [(1 + w) * v / length for v in z]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-3, 1.0, 50.0, 1e3, 1e4])
@pytest.mark.parametrize("kind", ["apart", "near", "twice", "opposite", "same"])
def test_accuracy(kind: str, size: float, dtype: torch.dtype) -> None:
    d, c, w = 8, 1.25, 0.75
    x = torch.randn(d, dtype=dtype)
    x = size * x / x.norm()
    other = torch.randn(d, dtype=dtype)
    y = {
        "apart": size * other / other.norm(),
        "near": x + 1e-3 * other,
        "twice": 2 * x,
        "opposite": -x,
        "same": x.clone(),
    }[kind]
    got = residual(x, y, w, c)
    expected = ambient(x.tolist(), y.tolist(), w, c)
    scale = max(float(abs(v)) for v in expected)
    error = max(abs(g - float(e)) for g, e in zip(got.tolist(), expected, strict=True))
    eps = torch.finfo(dtype).eps
    # x + w·y itself rounds at eps·size when the two are opposite.
    assert error <= 16 * eps * max(scale, size if kind == "opposite" else 0)


@pytest.mark.parametrize(("scale", "keep"), [(None, False), (2.5, False), (None, True)])
def test_gradients(scale: float | None, keep: bool) -> None:
    x, y = leaf(3, 5), leaf(3, 5)
    w = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    c = torch.tensor([1.3], dtype=torch.float64, requires_grad=True)
    inputs = (x, y, w, c)
    assert torch.autograd.gradcheck(lambda *a: residual(*a, scale, keep=keep), inputs)
    assert torch.autograd.gradgradcheck(lambda *a: residual(*a, scale, keep=keep), inputs)


@pytest.mark.parametrize("w", [0.7, torch.tensor([0.7], dtype=torch.float64)])
def test_keep_is_the_scale_of_an_empty_branch(w: float | torch.Tensor) -> None:
    x, y = torch.randn(3, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    shrunk = residual(x, torch.zeros_like(y), w, 1.3)
    gain = (x.norm(dim=-1) / shrunk.norm(dim=-1)).unsqueeze(-1)
    torch.testing.assert_close(residual(x, y, w, 1.3, keep=True), gain * residual(x, y, w, 1.3))
    with pytest.raises(ValueError, match=r"scale=2\.0"):
        residual(x, y, w, 1.3, 2.0, keep=True)


def test_gradients_at_the_origin_and_at_equal_points() -> None:
    x = torch.zeros(2, 4, dtype=torch.float64)
    x[1] = 3.0
    x.requires_grad_()
    y = x.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: residual(x, y, 0.5, 2.0), (x, y))


def test_broadcasts_and_sums_gradients() -> None:
    x, y = leaf(2, 3, 4), leaf(3, 4)
    w = torch.rand(2, 1, 1, dtype=torch.float64).requires_grad_()
    assert residual(x, y, w).shape == (2, 3, 4)
    assert torch.autograd.gradcheck(lambda x, y, w: residual(x, y, w), (x, y, w))


@given(st.floats(0.05, 20.0), st.floats(0.1, 5.0))
def test_commutes_with_boosts(w: float, c: float) -> None:
    """γ = 1 makes it a point of the manifold: the weighted centroid, which isometries carry."""
    x, y, p = (torch.randn(4, 6, dtype=torch.float64) for _ in range(3))
    moved = residual(lorentz.boost(x, p, c), lorentz.boost(y, p, c), w, c, scale=1.0)
    expected = lorentz.boost(residual(x, y, w, c, scale=1.0), p, c)
    torch.testing.assert_close(moved, expected, rtol=1e-9, atol=1e-9)


def test_scale_one_is_the_centroid() -> None:
    x, y = torch.randn(7, 6), torch.randn(7, 6)
    weights = torch.tensor([1.0, 0.4]).expand(7, 2)
    expected = lorentz.centroid(torch.stack([x, y], -2), weights, 0.7)
    torch.testing.assert_close(residual(x, y, 0.4, 0.7, scale=1.0), expected)


def test_tends_to_the_sum() -> None:
    x, y = torch.randn(5, 6, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
    errors = [(residual(x, y, 0.4, c) - (x + 0.4 * y)).norm() for c in (1e-2, 1e-4, 1e-6)]
    assert errors[1] < 0.02 * errors[0]
    assert errors[2] < 0.02 * errors[1]


def test_keeps_only_its_inputs() -> None:
    x, y = leaf(64, 32, dtype=torch.float32), leaf(64, 32, dtype=torch.float32)
    w = torch.ones(1, requires_grad=True)
    assert saved_bytes(lambda: residual(x, y, w, 1.0), besides=(x, y, w)) == 0


def test_half_precision_is_computed_in_float32() -> None:
    x, y = (10 * torch.randn(16, 32) for _ in range(2))
    half_x, half_y = x.bfloat16().requires_grad_(), y.bfloat16().requires_grad_()
    got = residual(half_x, half_y, 0.5, 1.0)
    assert got.dtype == torch.bfloat16
    expected = residual(half_x.double(), half_y.double(), 0.5, 1.0)
    torch.testing.assert_close(got.double(), expected, rtol=2**-8, atol=2**-8)
    assert residual(x, half_y, 0.5, 1.0).dtype == torch.float32
    (gx, gy) = gradients(lambda x, y: residual(x, y, 0.5, 1.0), half_x, half_y)
    wide = gradients(lambda x, y: residual(x, y, 0.5, 1.0), half_x.double(), half_y.double())
    for half, double in zip((gx, gy), wide, strict=True):
        torch.testing.assert_close(half.double(), double, rtol=0.02, atol=0.02)


def test_odd_shapes() -> None:
    for shape in [(0, 4), (1, 1), (3, 1, 2, 5)]:
        x, y = leaf(*shape), leaf(*shape)
        assert residual(x, y).shape == shape
        assert gradients(residual, x, y)[0].shape == shape
    x = leaf(6, 4).transpose(0, 1)
    torch.testing.assert_close(residual(x, 2 * x), residual(x.contiguous(), (2 * x).contiguous()))


def test_vmap_and_compile() -> None:
    x, y = leaf(3, 5, dtype=torch.float32), leaf(3, 5, dtype=torch.float32)
    w = torch.tensor([0.3], requires_grad=True)
    by_row = torch.vmap(lambda x, y: residual(x, y, w))(x, y)
    torch.testing.assert_close(by_row, residual(x, y, w))
    assert_compiles(lambda x, y, w: residual(x, y, w, 1.5), x, y, w)


def test_far_out_stays_finite() -> None:
    for r in (20.0, 40.0):
        x: Tensor = lorentz.exp0(torch.nn.functional.normalize(torch.randn(8, 16), dim=-1) * r)
        y = lorentz.exp0(torch.nn.functional.normalize(torch.randn(8, 16), dim=-1) * r)
        x.requires_grad_()
        y.requires_grad_()
        out = residual(x, y)
        assert out.isfinite().all()
        assert all(g.isfinite().all() for g in gradients(residual, x, y))
