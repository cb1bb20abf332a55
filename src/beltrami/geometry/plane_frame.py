"""The coordinates of `hyperplane`: the frame of a direction, the light cone, and scores.

The notation is that of `hyperplane`, whose functions are made of these. Each is an autograd
Function that keeps its inputs only and has a gradient that does not cancel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from beltrami.geometry import radial
from beltrami.geometry.checks import Scalar
from beltrami.geometry.chord import dot, root
from beltrami.geometry.radial_map import load_with_scalar, save_with_scalar, sum_to

# --- the frame of a hyperplane, and the light cone ------------------------------------------------


class Split(NamedTuple):
    """A point along and across a direction z."""

    length: Tensor  # |z|, (..., 1)
    unit: Tensor  # ẑ, (..., d); 0 where z = 0
    u: Tensor  # ẑ·x, (..., 1)
    perp: Tensor  # x⊥, (..., d); exactly 0 in one dimension


def split_along(x: Tensor, z: Tensor) -> Split:
    """The parts of x along and across z."""
    length = root(dot(z, z))
    unit = over_or_same(z, length)
    u = dot(unit, x)
    return Split(length, unit, u, x - u * unit)


def over_or_same(a: Tensor, b: Tensor) -> Tensor:
    """a/b, and a where b = 0."""
    return a / torch.where(b > 0, b, 1.0)


def plane_frame(x: Tensor, z: Tensor, a: Tensor, c: Scalar) -> tuple[Tensor, Tensor]:
    """α and β of the module's table, each (..., 1)."""
    out: tuple[Tensor, Tensor] = _Frame.apply(x, z, a, c)
    return out


class _Frame(torch.autograd.Function):
    """`(α, β)`. Autograd through η would cancel along the normal; the derivatives are

    ∂α/∂x = (β/T)·ẑ − (√c·sinh A/T)·x⊥     ∂α/∂z =  cosh A·x⊥/|z|       ∂α/∂a = −β
    ∂β/∂x = (cα/T)·ẑ + (c·cosh A/T)·x⊥     ∂β/∂z = −√c·sinh A·x⊥/|z|    ∂β/∂a = −cα

    with A = √c·a and T = √(1 + c|x|²); those in c go through η, which keeps their digits.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, z: Tensor, a: Tensor, c: Scalar) -> tuple[Tensor, Tensor]:
        _, _, u, perp = split_along(x, z)
        mu = torch.sqrt(1 + c * dot(perp, perp))
        v = u / mu
        shift = v * radial.asinhc_sq(c * v * v) - a  # η − a
        q = c * shift * shift
        return mu * shift * radial.sinhc_sq(q), mu * radial.cosh_sq(q)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, ga: Tensor, gb: Tensor) -> tuple[Tensor | None, ...]:
        x, z, a, c = load_with_scalar(ctx)
        length, unit, _, perp = split_along(x, z)
        alpha, beta = plane_frame(x, z, a, c)
        q = c * a * a
        cosh_a, sinh_a = radial.cosh_sq(q), c * a * radial.sinhc_sq(q)  # the latter √c·sinh A
        needs = ctx.needs_input_grad
        grads: list[Tensor | None] = [None] * 4
        if needs[0]:
            time = torch.sqrt(1 + c * dot(x, x))
            along = (ga * beta + gb * (c * alpha)) / time
            across = (gb * (c * cosh_a) - ga * sinh_a) / time
            grads[0] = sum_to(along * unit + across * perp, x)
        if needs[1]:
            # nothing to differentiate at z = 0, where the direction is not defined
            across = torch.where(length > 0, over_or_same(ga * cosh_a - gb * sinh_a, length), 0.0)
            grads[1] = sum_to(across * perp, z)
        if needs[2]:
            grads[2] = sum_to(-(ga * beta + gb * (c * alpha)), a)
        if needs[3] and isinstance(c, Tensor):
            da, db = _frame_curvature_derivatives(x, z, a, c)
            grads[3] = sum_to(ga * da + gb * db, c)
        return tuple(grads)


def _frame_curvature_derivatives(
    x: Tensor, z: Tensor, a: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """∂α/∂c and ∂β/∂c at fixed x, z and a."""
    _, _, u, perp = split_along(x, z)
    p2 = dot(perp, perp)
    mu = torch.sqrt(1 + c * p2)
    v = u / mu
    eta = v * radial.asinhc_sq(c * v * v)
    shift = eta - a
    q = c * shift * shift
    sinhc, cosh = radial.sinhc_sq(q), radial.cosh_sq(q)
    d_mu = p2 / (2 * mu)
    slope = 1 / torch.sqrt(1 + c * v * v)
    d_eta = _asinh_curvature_derivative(v, slope, eta, c) - slope * v * d_mu / mu
    d_alpha = d_mu * shift * sinhc + mu * (
        cosh * d_eta + shift * shift * shift * radial.sinhc_sq_prime(q)
    )
    d_beta = d_mu * cosh + mu * sinhc * shift * (shift / 2 + c * d_eta)
    return d_alpha, d_beta


def _asinh_curvature_derivative(v: Tensor, slope: Tensor, value: Tensor, c: Tensor) -> Tensor:
    """∂/∂c of asinh(√c·v)/√c, given its value and 1/√(1 + c·v²)."""
    small = (v * c**0.5).abs() < 1
    near = torch.where(small, v, 0.0)
    series = near * near * near * radial.asinhc_sq_prime(c * near * near)
    return torch.where(small, series, (v * slope - value) / (2 * c))


def log_light_cone(u: Tensor, perp: Tensor, c: Scalar) -> Tensor:
    r"""`−log(√c(t − u))/√c` for the point with coordinate u along an axis and perp across it.

    Minus the Busemann function of the axis, and the coordinate a of the solvable group. Shapes
    (..., 1) and (..., k) to (..., 1). `asinh(√c u/μ) − log μ` where that does not cancel, and
    `log((T + √c u)/μ²)` for u far out along the axis, in units of 1/√c.
    """
    out: Tensor = _LogLightCone.apply(u, perp, c)
    return out


class _LogLightCone(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(u: Tensor, perp: Tensor, c: Scalar) -> Tensor:
        w, p2 = u * c**0.5, c * dot(perp, perp)
        mu2 = 1 + p2
        z = w / torch.sqrt(mu2)
        near = torch.asinh(z) - torch.log1p(p2) / 2
        far = torch.log((torch.sqrt(mu2 + w * w) + w.abs()) / mu2)
        return torch.where(z > 1, far, near) / c**0.5

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Scalar], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        u, perp, c = load_with_scalar(ctx)
        w, p2 = u * c**0.5, c * dot(perp, perp)
        mu2 = 1 + p2
        time = torch.sqrt(mu2 + w * w)
        total = time + w.abs()
        # e^a = 1/(T − w), by the sum that does not cancel
        exp_a = torch.where(w > 0, total / mu2, 1 / total)
        gu = sum_to(g / time, u) if ctx.needs_input_grad[0] else None
        gp = sum_to(-(g * exp_a / time * c**0.5) * perp, perp) if ctx.needs_input_grad[1] else None
        gc = None
        if ctx.needs_input_grad[2] and isinstance(c, Tensor):
            v = u / torch.sqrt(mu2)
            value = v * radial.asinhc_sq(c * v * v)
            d_asinh = _asinh_curvature_derivative(v, torch.sqrt(mu2) / time, value, c)
            rest = torch.log1p(p2) / 2 - p2 * exp_a / time
            gc = sum_to(g * (d_asinh + rest / (2 * c * c**0.5)), c)
        return gu, gp, gc


# --- one coordinate: its distance and back --------------------------------------------------------


def scaled_asinh(v: Tensor, c: Scalar) -> Tensor:
    """asinh(√c·v)/√c of every entry, also where v² overflows; keeps v for the backward pass.

    The signed distance from the hyperplane across an axis to a point with coordinate v along it.
    """
    out: Tensor = _Asinh.apply(v, c.to(v.dtype) if isinstance(c, Tensor) else c)
    return out


def scaled_sinh(v: Tensor, c: Scalar) -> Tensor:
    """sinh(√c·v)/√c of every entry, the inverse of `scaled_asinh`; keeps v for the backward pass.

    HNN++ makes its points so, coordinate by coordinate.
    """
    out: Tensor = _Sinh.apply(v, c.to(v.dtype) if isinstance(c, Tensor) else c)
    return out


def _asinh_value(v: Tensor, c: Scalar) -> Tensor:
    w = v * c**0.5
    size = w.abs()
    log = torch.log1p(size + size * (size / (1 + _time(size))))
    return torch.copysign(log, w) / c**0.5


def _time(w: Tensor) -> Tensor:
    """√(1 + w²), also where w² overflows."""
    return torch.hypot(torch.ones_like(w), w)


class _Asinh(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(v: Tensor, c: Scalar) -> Tensor:
        return _asinh_value(v, c)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Scalar], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        v, c = load_with_scalar(ctx)
        slope = 1 / _time(v * c**0.5)
        gv = sum_to(g * slope, v) if ctx.needs_input_grad[0] else None
        gc = None
        if ctx.needs_input_grad[1] and isinstance(c, Tensor):
            by_c = _asinh_curvature_derivative(v, slope, scaled_asinh(v, c), c)
            gc = sum_to(g * by_c, c)
        return gv, gc


class _Sinh(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(v: Tensor, c: Scalar) -> Tensor:
        return torch.sinh(v * c**0.5) / c**0.5

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Scalar], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        v, c = load_with_scalar(ctx)
        w = v * c**0.5
        cosh = torch.cosh(w)
        gv = sum_to(g * cosh, v) if ctx.needs_input_grad[0] else None
        gc = None
        if ctx.needs_input_grad[1] and isinstance(c, Tensor):
            small = w.abs() < 1
            near = torch.where(small, v, 0.0)
            series = near * near * near * radial.sinhc_sq_prime(c * near * near)
            closed = (v * cosh - torch.sinh(w) / c**0.5) / (2 * c)
            gc = sum_to(g * torch.where(small, series, closed), c)
        return gv, gc


def plane_scores(
    p: Tensor,
    up: Tensor,
    stretch: Tensor | None,
    down: Tensor,
    time: Tensor,
    length: Tensor,
    c: Scalar,
) -> Tensor:
    """`length·asinh(√c·α)/√c` with `α = up·(stretch·p) − down·time`; of (..., k) only p is saved.

    α is made in the dtype of p and rounded to that of length; c serves the asinh alone.
    """
    out: Tensor = _Scores.apply(p, up, stretch, down, time, length, c)
    return out


class _Scores(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        p: Tensor,
        up: Tensor,
        stretch: Tensor | None,
        down: Tensor,
        time: Tensor,
        length: Tensor,
        c: Scalar,
    ) -> Tensor:
        return length * _asinh_value(_alpha(p, up, stretch, down, time, length.dtype), c)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        p, up, stretch, down, time, length, c = inputs
        ctx.stretched = stretch is not None
        save_with_scalar(ctx, *((stretch,) if ctx.stretched else ()), p, up, down, time, length, c)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        saved = load_with_scalar(ctx)
        stretch = saved[0] if ctx.stretched else None
        p, up, down, time, length, c = saved[-6:]
        needs = ctx.needs_input_grad
        grads: list[Tensor | None] = [None] * 7
        alpha = _alpha(p, up, stretch, down, time, length.dtype)
        slope = 1 / _time(alpha * c**0.5)
        h = _cast(g * length * slope, p.dtype)  # the gradient in α
        if needs[0] or needs[1] or needs[2]:
            by_product = h if stretch is None else h * stretch
            if needs[0]:
                grads[0] = sum_to(by_product * up, p)
            if needs[1]:
                grads[1] = sum_to(by_product * p, up)
            if stretch is not None and needs[2]:
                grads[2] = sum_to(h * up * p, stretch)
        if needs[3]:
            grads[3] = sum_to(-h * time, down)
        if needs[4]:
            grads[4] = sum_to(-h * down, time)
        by_c = needs[6] and isinstance(c, Tensor)
        if needs[5] or by_c:
            value = scaled_asinh(alpha, c)
            if needs[5]:
                grads[5] = sum_to(g * value, length)
            if by_c:
                d_asinh = _asinh_curvature_derivative(alpha, slope, value, c)
                grads[6] = sum_to(g * length * d_asinh, c)
        return tuple(grads)


def _alpha(
    p: Tensor, up: Tensor, stretch: Tensor | None, down: Tensor, time: Tensor, dtype: torch.dtype
) -> Tensor:
    along = p if stretch is None else stretch * p
    return _cast(up * along - down * time, dtype)


def _cast(t: Tensor, dtype: torch.dtype) -> Tensor:
    # No cast is traced if there is nothing to cast: see `kernels.dtypes.cast`.
    return t if t.dtype == dtype else t.to(dtype)
