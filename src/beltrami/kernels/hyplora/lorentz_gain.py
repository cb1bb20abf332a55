r"""The gain of a linear map between exp0 and log0 of the Lorentz model.

For a matrix M that acts on the space part of a point, `log0(M·exp0(x))` is `g·M·x`: with p = c|x|²,
q = c|Mx|² and sinhc(z) = sinh(z)/z,

    g(p, q) = asinh(v)/√q,    v = S·√q,    S = sinhc(√p).

So a step to the hyperboloid and back costs one number a token. As a function of the *squares* p
and q it is analytic through 0, and its derivatives are

    ∂g/∂p = S'(p)/√(1 + v²),    ∂g/∂q = (S/√(1 + v²) − g)/(2q).

sinh leaves float32 at √p = 89. Beyond √p = 20 everything is written with log S = √p − log(2√p)
instead. Only where q is so small that v is, too, is g as large as S itself; it stops at
`LARGEST_GAIN`, since infinity times a zero update is not a number.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from beltrami.geometry import radial
from beltrami.kernels.launch.dtypes import upcast

LARGEST_GAIN = 2.0**100
FAR = 400.0  # p from which on logarithms are used: √p = 20, e^{−40} is nothing even in float64


def lorentz_gain(p: Tensor, q: Tensor) -> Tensor:
    """`asinh(sinhc(√p)·√q)/√q` for p, q ≥ 0, elementwise; 1 at (0, 0).

    Relative error at most 16 eps·max(1, √p), for √p to 300 and √q from 0 to 1e18. Differentiable
    once.

    Args:
        p: c|x|². q: c|Mx|², of a shape that broadcasts with p's.

    Returns: float32 at least.
    """
    p, q = torch.broadcast_tensors(upcast(p), upcast(q))
    gain: Tensor = _LorentzGain.apply(p, q)
    return gain


class _LorentzGain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, q: Tensor) -> Tensor:
        ctx.save_for_backward(p, q)
        return gain(p, q)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        p, q = ctx.saved_tensors
        _, by_p, by_q = gain_and_slopes(p, q)
        return g * by_p, g * by_q


def gain(p: Tensor, q: Tensor, *, far: bool = True) -> Tensor:
    """g of p and q of one shape, float32 at least, without derivatives and so without series.

    Args:
        p, q: as in `lorentz_gain`.
        far: whether any p may be beyond `FAR`.
    """
    near_p = torch.where(p > FAR, 0.0, p) if far else p
    a, b = near_p.sqrt(), q.sqrt()
    s = torch.where(a > 0, torch.sinh(a) / a, 1.0)
    g = torch.where(b > 0, torch.asinh(s * b) / b, s)
    if not far:
        return g
    beyond, _, _ = _far(torch.where(p > FAR, p, FAR), q, slopes=False)
    return torch.where(p > FAR, beyond, g)


def gain_and_slopes(p: Tensor, q: Tensor, *, far: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """g and its derivatives in p and in q; arguments as of `gain`."""
    if not far:
        return _near(p, q)
    out = p > FAR
    near = _near(torch.where(out, 0.0, p), q)
    beyond = _far(torch.where(out, p, FAR), q)
    g, by_p, by_q = (torch.where(out, b, a) for a, b in zip(near, beyond, strict=True))
    return g, by_p, by_q


def _near(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    s = radial.sinhc_sq(p)
    # √q and not q is multiplied: S²q leaves float32 where v does not
    v = s * q.sqrt()
    small = v < 1.0
    squared = torch.where(small, v * v, 1.0)
    large = torch.where(small, 1.0, v)
    asinhc = torch.where(small, radial.asinhc_sq(squared), _asinh(large) / large)
    g = s * asinhc
    r = torch.where(small, 1 / torch.sqrt(1 + squared), 1 / (large * torch.sqrt(1 + large**-2)))
    by_p = r * radial.sinhc_sq_prime(p)
    closed = (s * r - g) / torch.where(small, 2.0, 2 * q)
    by_q = torch.where(small, s**3 * radial.asinhc_sq_prime(squared), closed)
    return g, by_p, by_q


def _far(p: Tensor, q: Tensor, slopes: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """The same for √p ≥ 20, where S is given by its logarithm."""
    a = p.sqrt()
    log_s = a - torch.log(2 * a)  # e^{−2a} is below rounding
    most = math.log(LARGEST_GAIN)
    none = q == 0
    log_q = torch.where(none, 1.0, q).log()
    log_v = torch.where(none, -torch.inf, log_s + log_q / 2)
    large = log_v > 0
    over = torch.where(large, log_v, 0.0)
    under = torch.where(large, 0.0, log_v)
    root = torch.sqrt(1 + torch.exp(-2 * over))  # √(1 + v^−2)
    far_out = (over + torch.log(1 + root)) * torch.exp(-torch.where(large, log_q, 0.0) / 2)
    v2 = torch.exp(2 * under)
    close_in = torch.exp(torch.where(log_s > most, most, log_s)) * radial.asinhc_sq(v2)
    g = torch.where(large, far_out, close_in)
    capped = g >= LARGEST_GAIN * (1 - 1e-5)
    g = torch.where(capped, LARGEST_GAIN, g)
    if not slopes:
        return g, g, g
    # S/√(1 + v²): e^{−½ log q}/√(1 + v^−2) far out, S/√(1 + v²) close in
    inverse = torch.exp(-torch.where(large, log_q, 0.0) / 2)
    s_r = torch.where(
        large, inverse / root, torch.exp(torch.where(log_s > most, most, log_s)) / (1 + v2).sqrt()
    )
    # S' = (cosh a − S)/(2p) and cosh a = a·S for such a
    by_p = s_r * (a - 1) / (2 * p)
    closed = (s_r - g) / torch.where(large, 2 * q, 2.0)
    cube = torch.exp(3 * torch.where(log_s > most / 3, most / 3, log_s))
    by_q = torch.where(large, closed, cube * radial.asinhc_sq_prime(v2))
    return g, torch.where(capped, 0.0, by_p), torch.where(capped, 0.0, by_q)


def _asinh(z: Tensor) -> Tensor:
    """asinh for z ≥ 1, also where z² leaves the dtype."""
    return torch.log(z) + torch.log(1 + torch.sqrt(1 + z**-2))
