"""What Triton kernels share: functions of a block of numbers, sizes of tiles, where kernels run.

Series take over near 0 where `geometry.radial` lets them. Triton's exp and logarithm in float32 are
right to about two units in the last place, which is enough where they are called, at arguments
beyond 1.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)  # that are multiplied on a GPU
LEAST_TILE = 16  # numbers a side that tensor cores multiply


def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on tensors of any device."""
    return not isinstance(root, triton.JITFunction)


def unsupported_device(name: str, device: torch.device) -> str | None:
    """Why kernels cannot run on a device, where a tensor called `name` is; None if they can."""
    if device.type == "cuda" or interpreted():
        return None
    return f"it runs on a CUDA device, and {name} is on {device}"


def unsupported_devices(name: str, first: Tensor, *others: Tensor | None) -> str | None:
    """Why kernels cannot run where tensors are, the first called `name`; None if they can."""
    if reason := unsupported_device(name, first.device):
        return reason
    for t in others:
        if t is not None and t.device != first.device:
            return f"its tensors must be on one device, got {first.device} and {t.device}"
    return None


def padded(count: int) -> int:
    """The size of a tile that holds so many numbers a row and can be multiplied."""
    return max(LEAST_TILE, power_of_2(count))


def power_of_2(n: int) -> int:
    """The least power of 2 that is not less: Triton's own takes microseconds."""
    return 1 << (n - 1).bit_length()


# Below these squares of their argument functions are series, as in `geometry.radial`.
_SINH_LIMIT = tl.constexpr(1.0)
_ASINH_LIMIT = tl.constexpr(1.0)
_ATANH_LIMIT = tl.constexpr(0.25)


@triton.jit
def root(q: tl.tensor) -> tl.tensor:
    """√q, correctly rounded; Triton's own is not in float32."""
    if q.dtype == tl.float64:
        return tl.sqrt(q)
    else:  # noqa: RET505 - Triton needs both branches
        return tl.sqrt_rn(q)


@triton.jit
def ratio(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """a/b, correctly rounded; Triton's own is not in float32."""
    if a.dtype == tl.float64:
        return a / b
    else:  # noqa: RET505
        return tl.div_rn(a, b)


@triton.jit
def _factorial_series(q: tl.tensor, first: tl.constexpr) -> tl.tensor:
    """Σ first!·qⁿ/(2n + first)!: sinh(√q)/√q for first = 1, (cosh √q − 1)·2/q for first = 2."""
    terms: tl.constexpr = 12 if q.dtype == tl.float64 else 7
    total = tl.full(q.shape, 1.0, q.dtype)
    for i in tl.static_range(1, terms):
        total = 1.0 + total * q * (
            1.0 / ((2 * (terms - i) + first) * (2 * (terms - i) + first - 1))
        )
    return total


@triton.jit
def _atanh_series(q: tl.tensor) -> tl.tensor:
    """Σ qⁿ/(2n + 1) = aThe function tanh(√q)/√q."""
    terms: tl.constexpr = 28 if q.dtype == tl.float64 else 15
    total = tl.full(q.shape, 1.0 / (2 * terms - 1), q.dtype)
    for i in tl.static_range(1, terms):
        total = total * q + 1.0 / (2 * (terms - i) - 1)
    return total


@triton.jit
def hyperbolic(q: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """sinh(z)/z, cosh z − 1 and e⁻ᶻ of z = √q."""
    small = q < _SINH_LIMIT
    near = tl.where(small, q, 0.0)
    z = root(tl.where(small, _SINH_LIMIT, q))
    grown, fallen = tl.exp(z), tl.exp(-z)
    sinhc, rise = _factorial_series(near, 1), near / 2 * _factorial_series(near, 2)
    return (
        tl.where(small, sinhc, (grown - fallen) / (2 * z)),
        tl.where(small, rise, (grown + fallen) / 2 - 1.0),
        tl.where(small, 1.0 + (rise - root(near) * sinhc), fallen),
    )


@triton.jit
def asinhc(q: tl.tensor) -> tl.tensor:
    """The function asinh(√q)/√q."""
    small = q < _ASINH_LIMIT
    near = tl.where(small, q, 0.0)
    wide = 1.0 + root(1.0 + near)
    t = near / (wide * wide)  # tanh²(asinh(√q)/2)
    far = tl.where(small, _ASINH_LIMIT, q)
    z = root(far)
    return tl.where(small, (1.0 - t) * _atanh_series(t), tl.log(z + root(1.0 + far)) / z)


@triton.jit
def atanhc(q: tl.tensor) -> tl.tensor:
    """atanh(√q)/√q of q < 1."""
    small = q < _ATANH_LIMIT
    far = tl.where(small, _ATANH_LIMIT, q)
    z = root(far)
    closed = tl.log((1.0 + z) * (1.0 + z) / (1.0 - far)) / (2 * z)
    return tl.where(small, _atanh_series(tl.where(small, q, 0.0)), closed)


@triton.jit
def tanhc(q: tl.tensor) -> tl.tensor:
    """The function tanh(√q)/√q."""
    small = q < _SINH_LIMIT
    near = tl.where(small, q, 0.0)
    z = root(tl.where(small, _SINH_LIMIT, q))
    fallen = tl.exp(-2 * z)
    closed = (1.0 - fallen) / ((1.0 + fallen) * z)
    series = _factorial_series(near, 1) / (1.0 + near / 2 * _factorial_series(near, 2))
    return tl.where(small, series, closed)


@triton.jit
def excess_time(q: tl.tensor, radius: tl.tensor) -> tl.tensor:
    """τ = |x|²/(t + R) of q = |x|²."""
    return ratio(q, root(q + radius * radius) + radius)


@triton.jit
def sinhc_prime(q: tl.tensor, sinhc: tl.tensor, cosh: tl.tensor) -> tl.tensor:
    """(cosh √q − sinhc)/(2q); below 1 its series Σ (n + 1)·qⁿ/(2n + 3)!."""
    small = q < 1.0
    near = tl.where(small, q, 0.0)
    total = tl.full(q.shape, 1.0, tl.float32)
    for i in tl.static_range(6):
        total = 1.0 + total * near * (1.0 / (2 * (6 - i) * (2 * (5 - i) + 5)))
    closed = ratio(cosh - sinhc, 2.0 * tl.where(small, 1.0, q))
    return tl.where(small, total * (1.0 / 6.0), closed)


@triton.jit
def asinhc_prime(q: tl.tensor) -> tl.tensor:
    """The derivative of asinh(√q)/√q for q ≤ 1: the series of `geometry.radial`."""
    s = root(1.0 + q)
    wide = 1.0 + s
    t = ratio(q, wide * wide)
    total = tl.full(q.shape, -2.0 * 12 / (23 * 25), tl.float32)
    for i in tl.static_range(11):
        total = total * t - 2.0 * (11 - i) / ((2 * (10 - i) + 1) * (2 * (10 - i) + 3))
    return ratio(total, s * wide * wide)


@triton.jit
def rounded(z: tl.tensor, dtype: tl.constexpr) -> tl.tensor:
    """Not beyond float16's largest number, as in the plain one."""
    if dtype == tl.float16:
        z = tl.where(z > 65504.0, 65504.0, tl.where(z < -65504.0, -65504.0, z))
    return z.to(dtype)


@triton.jit
def single(number: tl.tensor) -> tl.tensor:
    """In float32: `torch.compile` hands over numbers in float64."""
    return tl.cast(number, tl.float32)
