r"""Scalar functions behind every radial map, exact at and near 0.

All are written in the *square* of their usual argument, `f_sq(z²) = f(z)`: as functions of `q = z²`
they are analytic through 0, so that neither a value nor a derivative of any order needs a norm,
which has none at the origin. `sinhc(z) = sinh(z)/z` and its sisters are thin wrappers.

| function        | value                | derivative                                    |
|-----------------|----------------------|-----------------------------------------------|
| `sinhc_sq(q)`   | sinh(√q)/√q          | `sinhc_sq_prime(q)  = (cosh √q − sinhc)/2q`   |
| `cosh_sq(q)`    | cosh √q              | `sinhc_sq(q)/2`                               |
| `asinhc_sq(q)`  | asinh(√q)/√q         | `asinhc_sq_prime(q) = (1/√(1+q) − asinhc)/2q` |
| `tanhc_sq(q)`   | tanh(√q)/√q          | `tanhc_sq_prime(q)  = (sech²√q − tanhc)/2q`   |
| `atanhc_sq(q)`  | atanh(√q)/√q         | `atanhc_sq_prime(q) = (1/(1−q) − atanhc)/2q`  |
| `log_sinhc_sq(q)` | log(sinh(√q)/√q)   | by autograd                                   |
| `sinh_ratio(t, q)` | sinh(t√q)/sinh(√q) | by autograd                                  |

The derivatives cancel as `q → 0`, so each function switches to a power series below a threshold
that is far enough out for the closed form to lose less than a digit. Both branches of every
`torch.where` get a safe argument: the unused one must not overflow, or its gradient is 0·inf = NaN.
Everything is made of differentiable torch operations, so double backward, vmap and compile work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# sinh and cosh: the series of cosh √q is used up to q = 1, where 11 terms reach 1e-18 (float64)
# and 6 terms 1e-9 (float32).
_SINH_LIMIT = 1.0
SINHC = [1 / math.factorial(2 * n + 1) for n in range(12)]
COSH = [1 / math.factorial(2 * n) for n in range(12)]
SINHC_PRIME = [(n + 1) / math.factorial(2 * n + 3) for n in range(12)]

# atanh: Σ qⁿ/(2n+1), used up to q = 1/4, where 27 terms reach 1e-18 and 13 terms 1e-9.
_ATANH_LIMIT = 0.25
ATANHC = [1 / (2 * n + 1) for n in range(28)]
ATANHC_PRIME = [(n + 1) / (2 * n + 3) for n in range(28)]

# asinh: with p = tanh²(asinh(√q)/2) = q/(1+√(1+q))², asinh(√q)/√q = (1−p)·atanhc_sq(p) and its
# derivative in p is −2·Σ (n+1)pⁿ/((2n+1)(2n+3)): one sign, no cancellation. q = 1 is p = 0.17.
_ASINH_LIMIT = 1.0
_ASINHC_PRIME = [-2 * (n + 1) / ((2 * n + 1) * (2 * n + 3)) for n in range(23)]


def power_series(q: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Σ aₙ qⁿ by Horner's rule, with half of the terms in float32, which need no more."""
    terms = coefficients if q.dtype == torch.float64 else coefficients[: len(coefficients) // 2 + 1]
    total = torch.full_like(q, terms[-1])
    for a in reversed(terms[:-1]):
        total = total * q + a
    return total


def _branches(q: Tensor, limit: float) -> tuple[Tensor, Tensor, Tensor]:
    """Whether q is small, and q made safe for the series and for the closed form."""
    small = q < limit
    return small, torch.where(small, q, 0.0), torch.where(small, limit, q)


def sinhc_sq(q: Tensor) -> Tensor:
    """sinh(√q)/√q for q ≥ 0, with all derivatives, also at 0."""
    small, near, far = _branches(q, _SINH_LIMIT)
    z = far.sqrt()
    return torch.where(small, power_series(near, SINHC), torch.sinh(z) / z)


def sinhc_sq_prime(q: Tensor) -> Tensor:
    """The derivative of `sinhc_sq`: (cosh √q − sinh(√q)/√q)/(2q), 1/6 at 0."""
    small, near, far = _branches(q, _SINH_LIMIT)
    z = far.sqrt()
    closed = (torch.cosh(z) - torch.sinh(z) / z) / (2 * far)
    return torch.where(small, power_series(near, SINHC_PRIME), closed)


def cosh_sq(q: Tensor) -> Tensor:
    """cosh √q for q ≥ 0, with all derivatives, also at 0."""
    small, near, far = _branches(q, _SINH_LIMIT)
    return torch.where(small, power_series(near, COSH), torch.cosh(far.sqrt()))


def log_sinhc_sq(q: Tensor) -> Tensor:
    """log(sinh(√q)/√q) for q ≥ 0; does not overflow where sinh does."""
    small, near, far = _branches(q, _SINH_LIMIT)
    z = far.sqrt()
    closed = z + torch.log1p(-torch.exp(-2 * z)) - torch.log(2 * z)
    # sinhc − 1 = q·Σ qⁿ/(2n+3)!, summed without the 1 so that log1p keeps its digits.
    return torch.where(small, torch.log1p(near * power_series(near, SINHC[1:])), closed)


def _asinh(z: Tensor) -> Tensor:
    """asinh of z away from 0: a logarithm is twenty times faster than torch.asinh on a CPU."""
    return torch.log(z + torch.sqrt(1 + z * z))


def asinhc_sq(q: Tensor) -> Tensor:
    """asinh(√q)/√q for q ≥ 0, with all derivatives, also at 0."""
    small, near, far = _branches(q, _ASINH_LIMIT)
    p = near / (1 + torch.sqrt(1 + near)) ** 2
    z = far.sqrt()
    return torch.where(small, (1 - p) * power_series(p, ATANHC), _asinh(z) / z)


def asinhc_sq_prime(q: Tensor) -> Tensor:
    """The derivative of `asinhc_sq`: (1/√(1+q) − asinh(√q)/√q)/(2q), −1/6 at 0."""
    small, near, far = _branches(q, _ASINH_LIMIT)
    s = torch.sqrt(1 + near)
    p = near / (1 + s) ** 2
    z = far.sqrt()
    closed = (1 / torch.sqrt(1 + far) - _asinh(z) / z) / (2 * far)
    return torch.where(small, power_series(p, _ASINHC_PRIME) / (s * (1 + s) ** 2), closed)


def asinhc_sq_gain(q: Tensor) -> Tensor:
    """q times the derivative of `asinhc_sq`, which itself underflows where q is huge."""
    small, near, far = _branches(q, _ASINH_LIMIT)
    z = far.sqrt()
    closed = (1 / torch.sqrt(1 + far) - _asinh(z) / z) / 2
    return torch.where(small, near * asinhc_sq_prime(near), closed)


def tanhc_sq(q: Tensor) -> Tensor:
    """tanh(√q)/√q for q ≥ 0, with all derivatives, also at 0."""
    small, near, far = _branches(q, _SINH_LIMIT)
    z = far.sqrt()
    return torch.where(
        small, power_series(near, SINHC) / power_series(near, COSH), torch.tanh(z) / z
    )


def tanhc_sq_prime(q: Tensor) -> Tensor:
    """The derivative of `tanhc_sq`: (sech²√q − tanh(√q)/√q)/(2q), −1/3 at 0."""
    small, near, far = _branches(q, _SINH_LIMIT)
    s, ch = power_series(near, SINHC), power_series(near, COSH)
    series = (power_series(near, SINHC_PRIME) * ch - s * s / 2) / (ch * ch)
    z = far.sqrt()
    return torch.where(small, series, (sech_sq(z) - torch.tanh(z) / z) / (2 * far))


def sech_sq(z: Tensor) -> Tensor:
    """1/cosh²(z) without overflow."""
    e = torch.exp(-2 * z.abs())
    return 4 * e / (1 + e) ** 2


def atanhc_sq(q: Tensor) -> Tensor:
    """atanh(√q)/√q for 0 ≤ q < 1, with all derivatives, also at 0."""
    small, near, far = _branches(q, _ATANH_LIMIT)
    return torch.where(small, power_series(near, ATANHC), _atanh_ratio(far))


def _atanh_ratio(q: Tensor) -> Tensor:
    """atanh(√q)/√q away from 0. Through 1 − q, which is exact, and not 1 − √q, which is rounded."""
    z = q.sqrt()
    return torch.log((1 + z) ** 2 / (1 - q)) / (2 * z)


def atanhc_sq_prime(q: Tensor) -> Tensor:
    """The derivative of `atanhc_sq`: (1/(1−q) − atanh(√q)/√q)/(2q), 1/3 at 0."""
    small, near, far = _branches(q, _ATANH_LIMIT)
    closed = (1 / (1 - far) - _atanh_ratio(far)) / (2 * far)
    return torch.where(small, power_series(near, ATANHC_PRIME), closed)


def sinh_ratio(t: Tensor | float, q: Tensor) -> Tensor:
    """sinh(t·z)/sinh(z) with z = √q ≥ 0: t at 0, and no overflow where sinh(z) has one.

    The weights of a geodesic's end points: `w(1−t)·x + w(t)·y`.
    """
    small, near, far = _branches(q, _SINH_LIMIT)
    z = far.sqrt()
    closed = torch.exp((t - 1) * z) * torch.expm1(-2 * t * z) / torch.expm1(-2 * z)
    return torch.where(small, t * sinhc_sq(t * t * near) / sinhc_sq(near), closed)


def sinhc(z: Tensor) -> Tensor:
    """sinh(z)/z, 1 at 0; even."""
    return sinhc_sq(z * z)


def asinhc(z: Tensor) -> Tensor:
    """asinh(z)/z, 1 at 0; even."""
    return asinhc_sq(z * z)


def tanhc(z: Tensor) -> Tensor:
    """tanh(z)/z, 1 at 0; even."""
    return tanhc_sq(z * z)


def atanhc(z: Tensor) -> Tensor:
    """atanh(z)/z for |z| < 1, 1 at 0; even."""
    return atanhc_sq(z * z)
