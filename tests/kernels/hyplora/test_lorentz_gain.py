"""The gain of the Lorentz model: against mpmath, at its limits, and its gradients."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest
import torch
from torch import Tensor

from beltrami.kernels.hyplora.lorentz_gain import (
    FAR,
    LARGEST_GAIN,
    gain,
    gain_and_slopes,
    lorentz_gain,
)

F64 = torch.float64
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
ROOTS_P = (0, 1e-6, 1e-3, 0.3, 0.9999, 1.5, 5, 19.9, 20.1, 40, 60, 88, 95, 300)
ROOTS_Q = (0, 1e-30, 1e-12, 1e-6, 1e-3, 0.5, 0.999, 1.7, 30, 1e6, 1e18)
# Values are compared below these, where float32 has room for them; beyond, they must be finite.
LARGE_GAIN, LARGE_SLOPE, SMALL = 1e28, 1e30, 1e-37


def exact(p: float, q: float) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """g, ∂g/∂p and ∂g/∂q; the last loses as many digits as q has zeros, up to 60 of these 150."""
    with mpmath.workdps(150):
        p, q = mpmath.mpf(p), mpmath.mpf(q)
        a = mpmath.sqrt(p)
        s = mpmath.sinh(a) / a if p else mpmath.mpf(1)
        v = s * mpmath.sqrt(q)
        r = 1 / mpmath.sqrt(1 + v * v)
        s_prime = (mpmath.cosh(a) - s) / (2 * p) if p else mpmath.mpf(1) / 6
        g = mpmath.asinh(v) / mpmath.sqrt(q) if q else s
        return g, r * s_prime, (r * s - g) / (2 * q) if q else -(s**3) / 6


def squares(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """p and q of the grid, in which the smallest q is 0 in float32."""
    pairs = torch.tensor(list(itertools.product(ROOTS_P, ROOTS_Q)), dtype=dtype) ** 2
    return pairs[:, 0], pairs[:, 1]


# --- values ---------------------------------------------------------------------------------------


@DTYPES
def test_error_is_within_the_stated_bound(dtype: torch.dtype) -> None:
    p, q = squares(dtype)
    found = torch.stack([lorentz_gain(p, q), *gain_and_slopes(p, q)], -1)
    assert found.isfinite().all()
    eps = torch.finfo(dtype).eps
    for (a, b), row in zip(zip(p.tolist(), q.tolist(), strict=True), found.tolist(), strict=True):
        expected = exact(a, b)
        if expected[0] > LARGE_GAIN:
            continue
        bound = 16 * eps * max(1, math.sqrt(a))
        for x, y in zip(row, [expected[0], *expected], strict=True):
            if SMALL < abs(y) < LARGE_SLOPE:
                assert abs((x - y) / y) <= bound, (a, b, x, y)


@DTYPES
def test_without_far_points_it_is_the_same(dtype: torch.dtype) -> None:
    p, q = squares(dtype)
    near = p <= FAR
    p, q = p[near], q[near]
    assert torch.equal(gain(p, q, far=False), gain(p, q))
    for found, expected in zip(
        gain_and_slopes(p, q, far=False), gain_and_slopes(p, q), strict=True
    ):
        assert torch.equal(found, expected)


def test_one_at_the_origin() -> None:
    zero = torch.zeros((), dtype=F64)
    assert [t.item() for t in gain_and_slopes(zero, zero)] == [1, 1 / 6, -1 / 6]


def test_one_for_an_isometry() -> None:
    """What keeps lengths is no different from itself on the tangent space."""
    p = torch.linspace(0, 300, 301, dtype=F64) ** 2
    g = lorentz_gain(p, p)
    assert ((g - 1).abs() <= 16 * torch.finfo(F64).eps * (1 + p.sqrt())).all()


def test_broadcasts_and_widens() -> None:
    p, q = torch.rand(4, 1).bfloat16(), torch.rand(3).half()
    g = lorentz_gain(p, q)
    assert (g.dtype, g.shape) == (torch.float32, (4, 3))
    assert torch.equal(g, lorentz_gain(p.float().expand(4, 3), q.float().expand(4, 3)))


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 900.0])
def test_gradients(scale: float) -> None:
    """900 is beyond √p = 20, where logarithms are used; 30 has both v < 1 and v > 1 near it."""
    p = (scale * (0.5 + torch.rand(6, 1, dtype=F64))).requires_grad_()
    q = (0.5 + torch.rand(5, dtype=F64)).requires_grad_()
    assert torch.autograd.gradcheck(lorentz_gain, (p, q))
    if scale <= 1:  # v below 1 as well
        assert torch.autograd.gradcheck(lorentz_gain, (p, (q.detach() / 4).requires_grad_()))


@pytest.mark.parametrize("root_p", [0.0, 1.0, 20.0, 69.0, 70.0, 80.0, 89.0, 95.0, 300.0])
def test_largest_gain(root_p: float) -> None:
    """At q = 0 the gain is sinhc(√p), which float32 does not hold; what is returned is finite."""
    p = torch.tensor(root_p**2).requires_grad_()
    q = torch.zeros(()).requires_grad_()
    g = lorentz_gain(p, q)
    gradients = torch.autograd.grad(g, (p, q))
    assert g.isfinite()
    assert g <= LARGEST_GAIN
    assert all(t.isfinite() for t in gradients)
    if root_p > 80:
        assert g == LARGEST_GAIN
        assert not any(gradients)


def test_a_zero_update_stays_zero_far_out() -> None:
    p = torch.tensor([300.0**2])
    assert torch.equal(lorentz_gain(p, torch.zeros(1)) * torch.zeros(1), torch.zeros(1))


def test_compiles() -> None:
    p, q = (torch.rand(7).mul(900).requires_grad_() for _ in "pq")
    compiled = torch.compile(lorentz_gain, fullgraph=True, backend="aot_eager")
    found, expected = compiled(p, q), lorentz_gain(p, q)
    assert torch.equal(found, expected)
    for a, b in zip(
        torch.autograd.grad(found.sum(), (p, q)),
        torch.autograd.grad(expected.sum(), (p, q)),
        strict=True,
    ):
        assert torch.equal(a, b)
