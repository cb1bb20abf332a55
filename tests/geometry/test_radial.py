import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from beltrami.geometry import radial

F = {
    "sinhc": mpmath.sinh,
    "asinhc": mpmath.asinh,
    "tanhc": mpmath.tanh,
    "atanhc": mpmath.atanh,
}
# Where series and closed form meet, and far from there on both sides.
Z = [1e-20, 1e-6, 1e-3, 0.1, 0.4999, 0.5, 0.5001, 0.9, 0.9999, 1.0, 1.0001, 2.0, 10.0, 40.0]


def _arguments(name: str, dtype: torch.dtype) -> torch.Tensor:
    z = torch.tensor([v for v in Z if name != "atanhc" or v < 1], dtype=dtype)
    return z * z


def _truth(name: str, q: torch.Tensor, order: int) -> list[mpmath.mpf]:
    def f(s: mpmath.mpf) -> mpmath.mpf:
        return F[name](mpmath.sqrt(s)) / mpmath.sqrt(s)

    with mpmath.workdps(80):
        return [
            mpmath.diff(f, mpmath.mpf(v), order) if order else f(mpmath.mpf(v)) for v in q.tolist()
        ]


def _worst(value: torch.Tensor, truth: list[mpmath.mpf]) -> float:
    return (
        max(
            float(abs(mpmath.mpf(v) - t) / abs(t))
            for v, t in zip(value.tolist(), truth, strict=True)
        )
        / torch.finfo(value.dtype).eps
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", F)
def test_values_and_derivatives(name: str, dtype: torch.dtype) -> None:
    q = _arguments(name, dtype)
    q = q[q > 1e-30].requires_grad_()  # mpmath.diff needs room around its argument
    f = getattr(radial, f"{name}_sq")
    value = f(q)
    # exp-type functions have the condition number of their argument
    growth = 40 if name == "sinhc" else 1
    assert _worst(value.detach(), _truth(name, q, 0)) < 4 * growth
    first = torch.autograd.grad(value.sum(), q, create_graph=True)[0]
    prime = getattr(radial, f"{name}_sq_prime")(q)
    truth = _truth(name, q, 1)
    small = [i for i, t in enumerate(truth) if abs(t) > torch.finfo(dtype).tiny * 1e8]
    assert _worst(first.detach()[small], [truth[i] for i in small]) < 16 * growth
    assert _worst(prime.detach()[small], [truth[i] for i in small]) < 16 * growth
    second = torch.autograd.grad(first.sum(), q)[0]
    assert torch.isfinite(second).all()
    near = [i for i, v in enumerate(q.tolist()) if v < 1.5 and (name != "atanhc" or v < 0.9)]
    assert _worst(second[near], [_truth(name, q, 2)[i] for i in near]) < 2000


@pytest.mark.parametrize("name", [*(f"{n}_sq" for n in F), "cosh_sq", "log_sinhc_sq"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_zero(name: str, dtype: torch.dtype) -> None:
    taylor = {  # value, first and second derivative at 0
        "sinhc_sq": (1, 1 / 6, 1 / 60),
        "asinhc_sq": (1, -1 / 6, 3 / 20),
        "tanhc_sq": (1, -1 / 3, 4 / 15),
        "atanhc_sq": (1, 1 / 3, 2 / 5),
        "cosh_sq": (1, 1 / 2, 1 / 12),
        "log_sinhc_sq": (0, 1 / 6, -1 / 90),
    }
    q = torch.zeros(1, dtype=dtype, requires_grad=True)
    value = getattr(radial, name)(q)
    first = torch.autograd.grad(value, q, create_graph=True)[0]
    second = torch.autograd.grad(first, q)[0]
    got = (value.item(), first.item(), second.item())
    assert got == pytest.approx(taylor[name], rel=8 * torch.finfo(dtype).eps)


def test_wrappers_take_the_argument_itself() -> None:
    z = torch.tensor([-0.7, 0.0, 0.3], dtype=torch.float64)
    safe = torch.where(z == 0, 1.0, z)
    for name in F:
        expected = torch.where(z == 0, 1.0, getattr(torch, name[:-1])(z) / safe)
        torch.testing.assert_close(getattr(radial, name)(z), expected)


@given(st.floats(0, 1e6))
def test_log_sinhc_never_overflows(q: float) -> None:
    value = radial.log_sinhc_sq(torch.tensor(q, dtype=torch.float32)).item()
    with mpmath.workdps(50):
        z = mpmath.sqrt(mpmath.mpf(torch.tensor(q).item()))
        truth = mpmath.log(mpmath.sinh(z) / z) if z else mpmath.mpf(0)
    assert math.isfinite(value)
    assert value == pytest.approx(float(truth), rel=2e-6, abs=1e-37)


@pytest.mark.parametrize("name", [*(f"{n}_sq" for n in F), *(f"{n}_sq_prime" for n in F)])
def test_gradcheck(name: str) -> None:
    q = torch.tensor([0.0, 0.01, 0.2, 0.3, 0.7], dtype=torch.float64, requires_grad=True)
    f = getattr(radial, name)
    # At 0 the finite difference would leave the domain.
    assert torch.autograd.gradcheck(f, q.detach()[1:].requires_grad_())
    assert torch.autograd.gradgradcheck(f, q.detach()[1:].requires_grad_())
    assert torch.isfinite(f(q)).all()


def test_asinhc_gain_does_not_underflow() -> None:
    q = torch.tensor([1e-8, 0.5, 2.0, 1e34], dtype=torch.float32)
    gain = radial.asinhc_sq_gain(q)
    wide = q.double()
    torch.testing.assert_close(
        gain.double(), wide * radial.asinhc_sq_prime(wide), rtol=1e-6, atol=0
    )
