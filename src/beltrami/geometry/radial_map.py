r"""Radial maps `y = F(a·|x|²)·x`: the exponential and logarithmic maps at the origin of any model.

One autograd Function serves them all. It saves nothing but its inputs, and its backward treats the
direction of x and the plane across it apart: across, the map stretches by `F`; along, by the slope
`d(F·|x|)/d|x|`, which for a contracting map is exponentially smaller and would drown in the
rounding of the usual `F·g + 2aF'·(x·g)·x`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from beltrami.geometry import radial, radial_signed
from beltrami.geometry.checks import Scalar

# Below this a·|x|², the slope has the size of F and the smooth formula is used: it has all higher
# derivatives at 0, where the direction of x does not exist.
_SMOOTH_BELOW = 1.0


class Profile(NamedTuple):
    """F(q), F'(q) and the slope F + 2qF' of the map along x; `contracts` if the slope is < F."""

    value: Callable[[Tensor], Tensor]
    prime: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    contracts: bool


PROFILES = {
    "sinh": Profile(radial.sinhc_sq, radial.sinhc_sq_prime, radial.cosh_sq, False),
    "asinh": Profile(
        radial.asinhc_sq, radial.asinhc_sq_prime, lambda q: 1 / torch.sqrt(1 + q), True
    ),
    "tanh": Profile(
        radial.tanhc_sq, radial.tanhc_sq_prime, lambda q: radial.sech_sq(q.sqrt()), True
    ),
    "atanh": Profile(radial.atanhc_sq, radial.atanhc_sq_prime, lambda q: 1 / (1 - q), False),
    # The ball's exp0 and log0, whose factors are 1/2 and 2.
    "half_tanh": Profile(
        lambda q: radial.tanhc_sq(q) / 2,
        lambda q: radial.tanhc_sq_prime(q) / 2,
        lambda q: radial.sech_sq(q.sqrt()) / 2,
        True,
    ),
    "twice_atanh": Profile(
        lambda q: 2 * radial.atanhc_sq(q),
        lambda q: 2 * radial.atanhc_sq_prime(q),
        lambda q: 2 / (1 - q),
        False,
    ),
    # Of an argument of either sign, for curvatures of either sign.
    "signed_tanh": Profile(
        radial_signed.tanhc_signed, radial_signed.tanhc_signed_prime, radial.sech_sq, False
    ),
    "signed_atanh": Profile(
        radial_signed.atanhc_signed,
        radial_signed.atanhc_signed_prime,
        lambda q: 1 / (1 - q),
        False,
    ),
    # Conversions between models: tanh(asinh(z)/2) and tanh(asinh z), in T = √(1 + z²).
    "lorentz_to_poincare": Profile(
        lambda q: 1 / (1 + torch.sqrt(1 + q)),
        lambda q: -1 / (2 * torch.sqrt(1 + q) * (1 + torch.sqrt(1 + q)) ** 2),
        lambda q: 1 / (torch.sqrt(1 + q) * (1 + torch.sqrt(1 + q))),
        True,
    ),
    "lorentz_to_klein": Profile(
        lambda q: 1 / torch.sqrt(1 + q),
        lambda q: -1 / (2 * (1 + q) * torch.sqrt(1 + q)),
        lambda q: 1 / ((1 + q) * torch.sqrt(1 + q)),
        True,
    ),
}


def radial_map(x: Tensor, a: Scalar, kind: str) -> Tensor:
    """`F(a·|x|²)·x` with F(z²) = f(z)/z for the odd function f named by `kind`.

    Args:
        x: (..., d), float32 or float64.
        a: positive scale, broadcasting against x[..., :1]; the curvature, or a quarter of it.
        kind: "sinh", "asinh", "tanh", "atanh", "half_tanh", "twice_atanh"; "signed_tanh" and
            "signed_atanh", for which `a` may have any sign; or a conversion, "lorentz_to_poincare"
            or "lorentz_to_klein".
    """
    out: Tensor = _RadialMap.apply(x, a, kind)
    return out


def sum_to(t: Tensor, like: Tensor) -> Tensor:
    """Sum a gradient over the dimensions along which `like` was broadcast."""
    if t.shape == like.shape:
        return t
    if like.ndim == 0:
        return t.sum()
    extra = t.ndim - like.ndim
    dims = [*range(extra), *(i + extra for i, n in enumerate(like.shape) if n == 1)]
    return t.sum(dims, keepdim=True).reshape(like.shape) if dims else t


class _RadialMap(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, a: Scalar, kind: str) -> Tensor:
        n = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # one pass where x·x takes two
        return PROFILES[kind].value(a * (n * n)) * x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Scalar, str], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs[:2])
        ctx.kind = inputs[2]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, a = load_with_scalar(ctx)
        return *radial_vjp(x, a, g, PROFILES[ctx.kind], ctx.needs_input_grad[1]), None


def radial_vjp(
    x: Tensor, a: Scalar, g: Tensor, profile: Profile, scale_grad: bool
) -> tuple[Tensor, Tensor | None]:
    """The gradients of g·(F(a|x|²)·x) in x, and in a if `scale_grad`."""
    n2 = (x * x).sum(-1, keepdim=True)
    q = a * n2
    value, prime = profile.value(q), profile.prime(q)
    if profile.contracts:
        smooth = q < _SMOOTH_BELOW
        n = torch.where(smooth, 1.0, n2).sqrt()
        u = x / n  # the unit vector along x; x itself where the smooth formula is used
        s = (u * g).sum(-1, keepdim=True)
        slope = profile.slope(torch.where(smooth, _SMOOTH_BELOW, q))
        along = torch.where(smooth, 2 * a * prime * s, slope * s)
        across = torch.addcmul(g, -torch.where(smooth, 0.0, s), u)
        gx = torch.addcmul(value * across, along, u)
        # q·F' = (slope − F)/2: F' alone underflows where q is huge.
        by_scale = torch.where(smooth, prime * n2, (slope - value) / (2 * a)) * s * n
    else:
        s = (x * g).sum(-1, keepdim=True)
        gx = torch.addcmul(value * g, 2 * a * prime * s, x)
        by_scale = prime * n2 * s
    return gx, sum_to(by_scale, a) if scale_grad and isinstance(a, Tensor) else None


def save_with_scalar(ctx: Any, *inputs: Tensor | float) -> None:
    """Save the inputs of a Function whose last one may be a Python number."""
    scalar = inputs[-1]
    is_tensor = isinstance(scalar, Tensor)
    ctx.scalar = None if is_tensor else scalar
    ctx.save_for_backward(*(inputs if is_tensor else inputs[:-1]))


def load_with_scalar(ctx: Any) -> Any:
    """What `save_with_scalar` saved, in the same order."""
    return ctx.saved_tensors if ctx.scalar is None else (*ctx.saved_tensors, ctx.scalar)
