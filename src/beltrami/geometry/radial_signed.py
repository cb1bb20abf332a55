r"""The functions of `radial` continued to negative arguments, where they turn trigonometric.

`f_signed(q)` is `f(√q)/√q` for q ≥ 0 and its analytic continuation for q < 0: tanh becomes tan,
atanh becomes atan, √q becomes √−q. They are smooth through q = 0, and so is every map made of them
as curvature changes its sign.

| function          | q > 0        | q < 0          | derivative               |
|-------------------|--------------|----------------|--------------------------|
| `tanhc_signed`    | tanh(√q)/√q  | tan(√−q)/√−q   | `tanhc_signed_prime(q)`  |
| `atanhc_signed`   | atanh(√q)/√q | atan(√−q)/√−q  | `atanhc_signed_prime(q)` |

Below 0 each is a series or a closed form of its own; above, the function of `radial`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.geometry import radial

# The series of sinh and cosh converge fast up to 1, that of atanh up to 1/4; for negative arguments
# their terms alternate, which costs less than a digit.
_TAN_LIMIT = 1.0
_ATAN_LIMIT = 0.25


def _split(q: Tensor, limit: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Where q is ≥ 0 and where it is small and negative; q made safe for each of the branches."""
    positive, small = q >= 0, q > -limit
    above = torch.where(positive, q, 0.0)
    near = torch.where(small & ~positive, q, 0.0)
    below = torch.where(small, limit, -q)
    return positive, small, above, near, below


def tanhc_signed(q: Tensor) -> Tensor:
    """tanh(√q)/√q, tan(√−q)/√−q for q < 0; a pole at q = −π²/4."""
    positive, small, above, near, below = _split(q, _TAN_LIMIT)
    z = below.sqrt()
    series = radial.power_series(near, radial.SINHC) / radial.power_series(near, radial.COSH)
    negative = torch.where(small, series, torch.tan(z) / z)
    return torch.where(positive, radial.tanhc_sq(above), negative)


def tanhc_signed_prime(q: Tensor) -> Tensor:
    """The derivative of `tanhc_signed`, −1/3 at 0."""
    positive, small, above, near, below = _split(q, _TAN_LIMIT)
    z = below.sqrt()
    s, ch = radial.power_series(near, radial.SINHC), radial.power_series(near, radial.COSH)
    series = (radial.power_series(near, radial.SINHC_PRIME) * ch - s * s / 2) / (ch * ch)
    closed = (torch.tan(z) / z - 1 / torch.cos(z) ** 2) / (2 * below)
    return torch.where(positive, radial.tanhc_sq_prime(above), torch.where(small, series, closed))


def atanhc_signed(q: Tensor) -> Tensor:
    """atanh(√q)/√q for q < 1, atan(√−q)/√−q for q < 0."""
    positive, small, above, near, below = _split(q, _ATAN_LIMIT)
    z = below.sqrt()
    negative = torch.where(small, radial.power_series(near, radial.ATANHC), torch.atan(z) / z)
    return torch.where(positive, radial.atanhc_sq(above), negative)


def atanhc_signed_prime(q: Tensor) -> Tensor:
    """The derivative of `atanhc_signed`, 1/3 at 0."""
    positive, small, above, near, below = _split(q, _ATAN_LIMIT)
    z = below.sqrt()
    closed = (torch.atan(z) / z - 1 / (1 + below)) / (2 * below)
    negative = torch.where(small, radial.power_series(near, radial.ATANHC_PRIME), closed)
    return torch.where(positive, radial.atanhc_sq_prime(above), negative)
