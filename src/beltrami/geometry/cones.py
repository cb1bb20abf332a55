r"""Entailment cones: half apertures, exterior angles and energies.

The cone at x opens away from the origin, around the ray that prolongs the geodesic from the origin
to x. A point y lies in it if the exterior angle at x, between that ray and the geodesic to y, is at
most the half aperture. Public code takes the angle as the acos of a quotient, which has no digits
for near pairs and an infinite gradient on the axis. Split the direction from x to y into a part
along the radius and a part across it, with n = |x|, m = |y|, T(x) = √(1 + c·n²), φ the angle at
the origin and χ = |x̂ − ŷ|:

    along_x  = T(x)·(x̂·y) − n·T(y) = −S − m·T(x)·χ²/2,     S = sinh(√c(r_x − r_y))/√c
    across_x = m·sin φ
    angle    = atan2(across_x, along_x),      along_x² + across_x² = sinh²(√c·d)/c

All parts are rationalised as in `chord.py`: they vanish together at x = y, and none of them is
larger than twice the length of the whole, so that the angle has an absolute error of a few eps.

Conventions at the singular points, in every model: at x = y and at x = 0 the angle is 0 (a cone
contains its apex; the origin entails everything) and the gradient 0; on the axis, where the angle
is 0 or π and has a corner, the gradient across the axis is 0.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from beltrami.geometry import poincare
from beltrami.geometry.checks import Scalar, as_scalar, prepare
from beltrami.geometry.chord import dot, root
from beltrami.geometry.radial_map import load_with_scalar, save_with_scalar, sum_to

# --- Lorentz --------------------------------------------------------------------------------------


def half_aperture(
    x: Tensor, c: Scalar = 1.0, min_radius: float = 0.1, *, keepdim: bool = False
) -> Tensor:
    r"""Half aperture of the entailment cone at x: `asin(2K/(√c|x|))`, K = min_radius.

    Taken as `atan2(w, √((1−w)(1+w)))`, w = 2K/(√c|x|). Inside √c|x| ≤ 2K the cone is a half-space:
    the value is π/2 and the gradient 0. At that border the slope jumps from 0 to −∞; outside it is
    correct, and large next to the border.

    Args:
        x: apexes, (..., d).
        c: curvature −c.
        min_radius: K > 0, in units of 1/√c.

    Returns:
        (...), or (..., 1) with keepdim; in (0, π/2], relative error a few eps (next to the border
        the square root of that, as the rounding of x forces).
    """
    (x,), c, _ = prepare(c, x=x)
    out = _aperture(_norm(x) * c**0.5, 2 * _check_radius(min_radius))
    return as_scalar(out, keepdim)


def exterior_angle(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    r"""Angle at x between the prolonged ray from the origin and the geodesic to y.

    `π − ∠(origin, x, y)`, by the `atan2` form of the module's head. Saves its inputs only, so all
    pairs of two sets by broadcasting, `exterior_angle(x[:, None], y)`, keep no (n, m, d) tensor for
    the backward, although they pass through some.

    Args:
        x: apexes, (..., d).
        y: points, (..., d).
        c: curvature −c.

    Returns:
        (...), or (..., 1) with keepdim; in [0, π]. Absolute error a few eps (times cosh(√c r) for
        near pairs, as the rounding of the points forces). For the singular points see the module.
    """
    (x, y), c, _ = prepare(c, x=x, y=y)
    out: Tensor = _ExteriorAngle.apply(x, y, c)
    return as_scalar(out, keepdim)


def entailment_energy(
    x: Tensor,
    y: Tensor,
    c: Scalar = 1.0,
    *,
    aperture_scale: float = 1.0,
    margin: float = 0.0,
    min_radius: float = 0.1,
    keepdim: bool = False,
) -> Tensor:
    r"""How far y is outside the cone of x: `relu(exterior_angle − η·half_aperture + margin)`.

    0 when y is inside (by `margin`, an angle); MERU's loss is its mean with η = 1, HyCoCLIP's and
    PHyCLIP's use η = 0.7 between modalities and 1.2 within one.

    Args:
        x: apexes, the more general concepts, (..., d).
        y: points, the more specific ones, (..., d).
        c: curvature −c.
        aperture_scale: η.
        margin: angle by which y must be inside.
        min_radius: K of `half_aperture`.
    """
    angle = exterior_angle(x, y, c, keepdim=keepdim)
    aperture = half_aperture(x, c, min_radius, keepdim=keepdim)
    return torch.relu(angle - aperture_scale * aperture + margin)


def contains(
    x: Tensor,
    y: Tensor,
    c: Scalar = 1.0,
    *,
    aperture_scale: float = 1.0,
    min_radius: float = 0.1,
) -> Tensor:
    """Whether y lies in the cone of x, `exterior_angle ≤ η·half_aperture`; boolean, (...)."""
    return exterior_angle(x, y, c) <= aperture_scale * half_aperture(x, c, min_radius)


# --- Poincaré ball --------------------------------------------------------------------------------


def poincare_half_aperture(
    x: Tensor, c: Scalar = 1.0, min_radius: float = 0.1, *, keepdim: bool = False
) -> Tensor:
    """`asin(K(1 − c|x|²)/(√c|x|))`: the same cone as `half_aperture`, with the same K.

    Args:
        x: apexes in the ball, (..., d), c|x|² < 1.
        c: curvature −c.
        min_radius: K > 0.
    """
    (x,), c, _ = prepare(c, x=x)
    return half_aperture(poincare.to_lorentz(x, c), c, min_radius, keepdim=keepdim)


def poincare_exterior_angle(
    x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False
) -> Tensor:
    """`exterior_angle` of points of the ball, (..., d), evaluated at their Lorentz points.

    The error grows by cosh(√c r) near the boundary, where the rounding of the points forces it.
    """
    (x, y), c, _ = prepare(c, x=x, y=y)
    return exterior_angle(poincare.to_lorentz(x, c), poincare.to_lorentz(y, c), c, keepdim=keepdim)


def poincare_entailment_energy(
    x: Tensor,
    y: Tensor,
    c: Scalar = 1.0,
    *,
    aperture_scale: float = 1.0,
    margin: float = 0.0,
    min_radius: float = 0.1,
    keepdim: bool = False,
) -> Tensor:
    """`entailment_energy` of points of the ball, (..., d)."""
    (x, y), c, _ = prepare(c, x=x, y=y)
    return entailment_energy(
        poincare.to_lorentz(x, c),
        poincare.to_lorentz(y, c),
        c,
        aperture_scale=aperture_scale,
        margin=margin,
        min_radius=min_radius,
        keepdim=keepdim,
    )


def poincare_contains(
    x: Tensor,
    y: Tensor,
    c: Scalar = 1.0,
    *,
    aperture_scale: float = 1.0,
    min_radius: float = 0.1,
) -> Tensor:
    """`contains` for points of the ball, (..., d)."""
    (x, y), c, _ = prepare(c, x=x, y=y)
    x, y = poincare.to_lorentz(x, c), poincare.to_lorentz(y, c)
    return contains(x, y, c, aperture_scale=aperture_scale, min_radius=min_radius)


# --- Euclidean features, seen from a root ---------------------------------------------------------


def euclidean_half_aperture(
    x: Tensor, origin: Tensor | None = None, min_radius: float = 0.1, *, keepdim: bool = False
) -> Tensor:
    """`asin(K/|x − origin|)`, π/2 within K; the Euclidean cone of the same name.

    Args:
        x: apexes, (..., d).
        origin: (..., d), by default 0.
        min_radius: K > 0, a length.
    """
    (x, origin), _ = _prepare_euclidean(origin, x=x)
    arm = x - origin
    out = _aperture(_norm(arm), _check_radius(min_radius))
    return as_scalar(out, keepdim)


def euclidean_exterior_angle(
    x: Tensor, y: Tensor, origin: Tensor | None = None, *, keepdim: bool = False
) -> Tensor:
    r"""Euclidean angle at x between the prolonged ray from `origin` and the segment to y.

    `∠(x − origin, y − x)`, as atan2 of the parts of y − x across and along the ray. With the root
    of a hierarchy as `origin` it is the root-relative angle of radial embeddings; with the parent
    of x it is the parent-relative one of RCME, where features are first scaled to length 1 (the
    angle is Euclidean, not spherical, also for those). `path_angles` gives both along a path.

    Args:
        x: apexes, (..., d).
        y: points, (..., d).
        origin: (..., d), by default 0.

    Returns:
        (...), or (..., 1) with keepdim; in [0, π], 0 with gradient 0 at y = x and at x = origin.
    """
    (x, y, origin), _ = _prepare_euclidean(origin, x=x, y=y)
    arm, step = x - origin, y - x
    length = root(dot(arm, arm))
    unit = arm / torch.where(length > 0, length, 1.0)
    along = dot(unit, step)
    rest = step - along * unit
    across = torch.where(length > 0, root(dot(rest, rest)), 0.0)
    none = (along == 0) & (across == 0)
    out = torch.atan2(across, torch.where(none, 1.0, along))
    return as_scalar(out, keepdim)


def euclidean_entailment_energy(
    x: Tensor,
    y: Tensor,
    origin: Tensor | None = None,
    *,
    aperture_scale: float = 1.0,
    margin: float = 0.0,
    min_radius: float = 0.1,
    keepdim: bool = False,
) -> Tensor:
    """`relu(angle − η·aperture + margin)` of the Euclidean cone at x, seen from `origin`."""
    angle = euclidean_exterior_angle(x, y, origin, keepdim=keepdim)
    aperture = euclidean_half_aperture(x, origin, min_radius, keepdim=keepdim)
    return torch.relu(angle - aperture_scale * aperture + margin)


def path_angles(
    path: Tensor, root_point: Tensor, *, relative: Literal["parent", "root"] = "parent"
) -> Tensor:
    r"""Euclidean exterior angles along paths E₀, …, E_{L−1}, from general to special.

    Entry i is the angle at E_i towards E_{i+1} (`∠(E_i − O, E_{i+1} − E_i)`), where the origin O is
    the root ("root") or the parent E_{i−1}, with E_{−1} the root ("parent", as in RCME).

    Args:
        path: (..., L, d), L ≥ 1.
        root_point: (..., d), or one (d,) for all paths.
        relative: which origin.

    Returns:
        (..., L − 1).
    """
    (path, root_point), _ = _prepare_euclidean(root_point, path=path)
    if path.ndim < 2 or path.shape[-2] < 1:
        raise ValueError(f"path must have shape (..., L, d) with L ≥ 1, got {tuple(path.shape)}")
    if relative not in ("parent", "root"):
        raise ValueError(f'relative must be "parent" or "root", got {relative!r}')
    first = root_point.unsqueeze(-2).expand(*path.shape[:-2], 1, path.shape[-1])
    here, there = path[..., :-1, :], path[..., 1:, :]
    parents = torch.cat([first, path[..., :-2, :]], -2)[..., : here.shape[-2], :]
    origin = parents if relative == "parent" else first
    return euclidean_exterior_angle(here, there, origin)


# --- inside ---------------------------------------------------------------------------------------


def _aperture(radius: Tensor, inner: float) -> Tensor:
    """asin(inner/radius) for radius > inner, else π/2 with gradient 0."""
    outside = radius > inner
    safe = torch.where(outside, radius, 2 * inner)
    sine = inner / safe
    # 1 − sine² from the exact difference; scale-free, so that nothing underflows far out
    cosine = torch.sqrt((safe - inner) / safe * (1 + sine))
    return torch.where(outside, torch.atan2(sine, cosine), math.pi / 2)


def _norm(x: Tensor) -> Tensor:
    """|x|, (..., 1); in units of the largest entry, so that no gradient underflows at radius 40."""
    unit = x.detach().abs().amax(-1, keepdim=True)
    scaled = x / torch.where(unit > 0, unit, 1.0)
    return unit * root(dot(scaled, scaled))


class _Angles(NamedTuple):
    """The parts of a pair; scalars (..., 1), vectors (..., d)."""

    n: Tensor
    m: Tensor
    tx: Tensor
    ty: Tensor
    unit_x: Tensor
    unit_y: Tensor
    to_y: Tensor  # at x̂, tangent to the sphere, towards ŷ; length sin φ
    to_x: Tensor  # at ŷ, towards x̂
    along_x: Tensor
    along_y: Tensor
    sine: Tensor


def _angles(x: Tensor, y: Tensor, c: Scalar) -> _Angles:
    delta = x - y
    n2, m2 = dot(x, x), dot(y, y)
    n, m = root(n2), root(m2)
    tx, ty = torch.sqrt(1 + c * n2), torch.sqrt(1 + c * m2)
    unit_x, unit_y = _over_or_same(x, n), _over_or_same(y, m)
    diff = _over_or_same(dot(delta, x + y), n + m)  # n − m
    shift = diff * _over_or_same(n + m, n * ty + m * tx)
    x_is_lo = n <= m
    # x̂ − ŷ from the difference of the points, which is exact for near pairs
    hi = torch.where(x_is_lo, m, n)
    gap = _over_or_same(delta - diff * torch.where(x_is_lo, unit_x, unit_y), hi)
    half_chi2 = dot(gap, gap) / 2
    # For nearly opposite points the gap is almost 2x̂, and x̂ + ŷ, formed likewise, is what is small.
    toward = torch.where(x_is_lo, unit_x, -unit_y)
    total = _over_or_same(x + y - diff * toward, hi)
    opposite = half_chi2 > 1
    seen_x, seen_y = torch.where(opposite, total, -gap), torch.where(opposite, total, gap)
    to_y = seen_x - unit_x * dot(unit_x, seen_x)
    to_x = seen_y - unit_y * dot(unit_y, seen_y)
    return _Angles(
        n=n,
        m=m,
        tx=tx,
        ty=ty,
        unit_x=unit_x,
        unit_y=unit_y,
        to_y=to_y,
        to_x=to_x,
        along_x=-shift - m * tx * half_chi2,
        along_y=shift - n * ty * half_chi2,
        sine=root(dot(to_y, to_y)),
    )


class _ExteriorAngle(torch.autograd.Function):
    """`atan2(across_x, along_x)`; with s = sinh(√c·d)/√c, the gradients are

    ∂/∂y = [along_y·(towards x) − across_y·ŷ/T(y)]/s²
    ∂/∂x = [(m/n)·along_y·(towards y) + across_x·(cosh √cd/T(x))·x̂]/s²
    ∂/∂c = −across_x·along_y·n·m/(2·T(x)·T(y)·s²)

    "towards" being unit vectors across the radius. Quotients by s are formed first: s² overflows.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, c: Scalar) -> Tensor:
        p = _angles(x, y, c)
        across = p.m * p.sine
        # said aloud at x = y, since atan2(0, −0) is π
        none = (p.n == 0) | ((across == 0) & (p.along_x == 0))
        return torch.where(none, 0.0, torch.atan2(across, p.along_x))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Scalar], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, y, c = load_with_scalar(ctx)
        p = _angles(x, y, c)
        across_x, across_y = p.m * p.sine, p.n * p.sine
        # Off the axis s > 0; on it (also at x = y, x = 0 and y = 0) the gradient is 0.
        off = across_x * across_y > 0
        s = torch.where(off, torch.hypot(across_x, torch.where(off, p.along_x, 1.0)), 1.0)
        g = torch.where(off, g, 0.0) / s
        sine = torch.where(off, p.sine, 1.0)
        turn = p.along_y / s  # the cosine and the sine of the angle at y
        gx = gy = gc = None
        if ctx.needs_input_grad[0]:
            coth = torch.hypot(torch.ones_like(s), s * c**0.5) / s
            away = g * turn * _over_or_same(p.m, p.n) / sine
            gx = sum_to(away * p.to_y + (g * across_x * coth / p.tx) * p.unit_x, x)
        if ctx.needs_input_grad[1]:
            gy = (g * turn / sine) * p.to_x - (g * (across_y / s) / p.ty) * p.unit_y
            gy = sum_to(gy, y)
        if ctx.needs_input_grad[2] and isinstance(c, Tensor):
            gc = -g * across_x * turn * (p.n / p.tx) * (p.m / p.ty) / 2
            gc = sum_to(gc, c)
        return gx, gy, gc


def _over_or_same(a: Tensor, b: Tensor) -> Tensor:
    """a/b, and a where b = 0."""
    return a / torch.where(b > 0, b, 1.0)


def _prepare_euclidean(
    origin: Tensor | None, **tensors: Tensor
) -> tuple[list[Tensor], torch.dtype]:
    """`prepare` without a curvature; the origin, by default 0, comes last."""
    first = next(iter(tensors.values()))
    if origin is None and isinstance(first, Tensor) and first.ndim:
        origin = first.new_zeros(first.shape[-1])
    if origin is not None:
        tensors["origin"] = origin
    rows, _, dtype = prepare(1.0, **tensors)
    return rows, dtype


def _check_radius(min_radius: float) -> float:
    if isinstance(min_radius, bool) or not isinstance(min_radius, int | float):
        raise TypeError(f"min_radius must be a number, got {type(min_radius).__name__}")
    if not (math.isfinite(min_radius) and min_radius > 0):
        raise ValueError(f"min_radius must be positive, got {min_radius}")
    return float(min_radius)
