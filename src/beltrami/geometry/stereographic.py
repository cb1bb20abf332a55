r"""The κ-stereographic model: constant curvature κ of any sign, smooth through 0.

For κ < 0 it is the Poincaré ball of curvature κ = −c, for κ > 0 the sphere of radius 1/√κ seen by
stereographic projection (all of R^d, the pole opposite the origin at infinity), and at κ = 0 flat
space. Every function is analytic in κ also at 0, so that a learnable κ has the right gradient there
and may change its sign in training: geometry itself is learned.

The metric is `λ(x)²·|dx|²` with `λ(x) = 2/(1 + κ|x|²)`. At κ = 0 it is 4·|dx|²: coordinates are
half of Euclidean ones and `dist(x, y) = 2|x − y|`, which is the limit of the ball. As in
`poincare`, `exp0`, `log0`, `transport_from0` and `transport_to0` use an orthonormal frame at the
origin, so that |v| is a distance, and all other functions use the model's own coordinates.

`kappa` is a float or a tensor that broadcasts against `x[..., :1]`, of mixed signs if need be. If
the sign is known, `poincare`, `lorentz` and `sphere` are faster; for κ < 0 accuracy is that of
`poincare`, except for gradients along the radius near the border. In the formulas c = −κ.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from beltrami.geometry import poincare, radial
from beltrami.geometry.ball import (
    BORDER_EPS,
    check_inside,
    combine,
    gap,
    halfway,
    mobius,
    pair,
    pairwise_sq,
    turn,
)
from beltrami.geometry.checks import (
    Scalar,
    as_fraction,
    as_scalar,
    check_curvature,
    debugging,
    prepare,
)
from beltrami.geometry.chord import dot, root
from beltrami.geometry.radial_map import load_with_scalar, radial_map, save_with_scalar, sum_to
from beltrami.geometry.radial_signed import atanhc_signed
from beltrami.geometry.sets import as_weights, check_sets, curvature_of_set

# tan²(√κ·d/2) beyond which the angle is taken by atan2 instead of a series.
_ATAN_LIMIT = 0.25


def _prepare(
    kappa: Scalar, vectors: dict[str, Tensor] | None = None, **points: Tensor
) -> tuple[list[Tensor], Scalar, torch.dtype]:
    """The checked tensors, points first, then −κ, then the dtype of rows."""
    tensors, _, dtype = prepare(1.0, **points, **(vectors or {}))
    first = tensors[0]
    kappa = check_curvature(kappa, first.dtype, first.device, name="kappa", signed=True)
    if debugging():
        for name, x in zip(points, tensors, strict=False):
            check_inside(name, x, -kappa)
    return tensors, -kappa, dtype


# --- metric --------------------------------------------------------------------------------------


def conformal_factor(x: Tensor, kappa: Scalar, *, keepdim: bool = False) -> Tensor:
    """`λ(x) = 2/(1 + κ|x|²)`, by which the metric stretches coordinates at x."""
    (x,), c, _ = _prepare(kappa, x=x)
    return as_scalar(2 / gap(x, c), keepdim)


def inner(x: Tensor, u: Tensor, v: Tensor, kappa: Scalar, *, keepdim: bool = False) -> Tensor:
    """Metric at x of two tangent vectors, `λ(x)²·(u·v)`."""
    (x, u, v), c, _ = _prepare(kappa, x=x, vectors={"u": u, "v": v})
    return as_scalar(4 * dot(u, v) / gap(x, c) ** 2, keepdim)


def norm(x: Tensor, v: Tensor, kappa: Scalar, *, keepdim: bool = False) -> Tensor:
    """Metric norm `λ(x)·|v|` of a tangent vector at x; its gradient at v = 0 is 0."""
    (x, v), c, _ = _prepare(kappa, x=x, vectors={"v": v})
    return as_scalar(2 * root(dot(v, v)) / gap(x, c), keepdim)


def riemannian_grad(x: Tensor, g: Tensor, kappa: Scalar) -> Tensor:
    """The Riemannian gradient `g/λ(x)²` for a Euclidean gradient g."""
    (x, g), c, dtype = _prepare(kappa, x=x, vectors={"g": g})
    return (g * (gap(x, c) / 2) ** 2).to(dtype)


# --- distances -----------------------------------------------------------------------------------


def _half_angle(s: Tensor, ab: Tensor, total: Tensor, c: Scalar) -> Tensor:
    """G with d = 2·√s·G, from s, AB and D = AB + c·s.

    `asinh(√(cs/AB))/√(cs)` for c > 0, `atan2(√(−cs), √D)/√(−cs)` for c < 0: neither form cancels,
    and both are series in c·s around 0.
    """
    cs = c * s
    hyperbolic = cs > 0
    ab, inside = torch.where(hyperbolic, ab, 1.0), torch.where(hyperbolic, cs, 0.0)
    ball = radial.asinhc_sq(inside / ab) / torch.sqrt(ab)
    wide = -cs > _ATAN_LIMIT * total
    near = torch.where(hyperbolic | wide, 0.0, cs)
    flat = torch.where(hyperbolic | wide, 1.0, total)
    series = atanhc_signed(near / flat) / torch.sqrt(flat)
    sine = torch.where(wide, -cs, 1.0).sqrt()
    arc = torch.atan2(sine, root(torch.where(wide, total, 1.0))) / sine
    return torch.where(hyperbolic, ball, torch.where(wide, arc, series))


def _scalars(x: Tensor, y: Tensor, c: Scalar) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """s, A, B, D = AB + c·s and the half angle G."""
    s, a, b = pair(x, y, c)
    total: Tensor = _Total.apply(x, y, c)
    return s, a, b, total, _half_angle(s, a * b, total, c)


def _positive_total(x: Tensor, y: Tensor, c: Scalar) -> Tensor:
    """D, and 1 at antipodes, which have no one geodesic between them: finite, if arbitrary."""
    total: Tensor = _Total.apply(x, y, c)
    return torch.where(total > 0, total, 1.0)


def dist(x: Tensor, y: Tensor, kappa: Scalar, *, keepdim: bool = False) -> Tensor:
    """Geodesic distance `(2/√−κ)·asinh(√−κ·|x−y|/√(AB))` or `(2/√κ)·asin(√κ·|x−y|/√(AB))`.

    With A = 1 + κ|x|² and B = 1 + κ|y|²; 2|x − y| at κ = 0. Where it is not differentiable, at
    x = y and at antipodes, the gradient is 0. The sine is not inverted, but the angle taken by
    atan2 of sine and cosine, so that distances close to π/√κ keep their digits.
    """
    (x, y), c, _ = _prepare(kappa, x=x, y=y)
    s, _, _, _, g = _scalars(x, y, c)
    return as_scalar(2 * root(s) * g, keepdim)


def dist_sq(x: Tensor, y: Tensor, kappa: Scalar, *, keepdim: bool = False) -> Tensor:
    """Squared geodesic distance; twice differentiable also at x = y."""
    (x, y), c, _ = _prepare(kappa, x=x, y=y)
    s, _, _, _, g = _scalars(x, y, c)
    return as_scalar(4 * s * g * g, keepdim)


def dist0(x: Tensor, kappa: Scalar, *, keepdim: bool = False) -> Tensor:
    """Distance from the origin, `2·atanκ(|x|)`; gradient 0 at the origin."""
    (x,), c, _ = _prepare(kappa, x=x)
    n2 = dot(x, x)
    return as_scalar(2 * root(n2) * atanhc_signed(c * n2), keepdim)


def pairwise_dist(x: Tensor, y: Tensor, kappa: Scalar) -> Tensor:
    """Distances between all pairs of rows, (..., n, d) and (..., m, d) to (..., n, m).

    Memory O(n·m). Pairs within a few √eps of being antipodes are found to √eps only.

    Args:
        x: (..., n, d). y: (..., m, d).
        kappa: one for each set: a float, a tensor of shape (1,), or (..., 1, 1).
    """
    (x, y), c, _ = _prepare(kappa, x=x, y=y)
    check_sets(x, y, c)
    ab = gap(x, c) * gap(y, c).transpose(-1, -2)
    s = pairwise_sq(x, y)
    return 2 * root(s) * _half_angle(s, ab, torch.relu(ab + c * s), c)


# --- exponential and logarithmic maps -----------------------------------------------------------


def exp0(v: Tensor, kappa: Scalar) -> Tensor:
    """Exponential map at the origin, `tanκ(|v|/2)·v/|v|`; |v| is the distance travelled.

    tanκ(z) is tanh(√−κ·z)/√−κ or tan(√κ·z)/√κ; the result is v/2 at κ = 0, and at infinity for
    √κ|v| = π, the pole opposite the origin.
    """
    (v,), c, dtype = _prepare(kappa, vectors={"v": v})
    return (radial_map(v, c / 4, "signed_tanh") / 2).to(dtype)


def log0(x: Tensor, kappa: Scalar) -> Tensor:
    """Logarithmic map at the origin, `2·atanκ(|x|)·x/|x|`; its norm is `dist0(x)`."""
    (x,), c, dtype = _prepare(kappa, x=x)
    return (2 * radial_map(x, c, "signed_atanh")).to(dtype)


def exp(x: Tensor, v: Tensor, kappa: Scalar) -> Tensor:
    """Exponential map at x, `x ⊕ tanκ(|v|/A)·v/|v|`, v in the model's coordinates."""
    (x, v), c, dtype = _prepare(kappa, x=x, vectors={"v": v})
    return mobius(x, radial_map(v / gap(x, c), c, "signed_tanh"), c).to(dtype)


def log(x: Tensor, y: Tensor, kappa: Scalar) -> Tensor:
    """Logarithmic map: the tangent vector at x whose exponential is y, 0 at y = x.

    `(A·G/√D)·(A·(y − x) + κ·s·x)` with D = AB − κ·s and 2√s·G the distance. Also 0 at the antipode
    of x, which is reached in every direction.
    """
    (x, y), c, dtype = _prepare(kappa, x=x, y=y)
    s, a, _, total, g = _scalars(x, y, c)
    there = total > 0
    gain = torch.where(there, a * g / torch.where(there, total, 1.0).sqrt(), 0.0)
    return combine(x, y, gain * a, -gain * c * s).to(dtype)


def geodesic(x: Tensor, y: Tensor, t: Tensor | float, kappa: Scalar) -> Tensor:
    """The point at fraction t of the geodesic from x (t = 0) to y: `exp(x, t·log(x, y))`."""
    (x, y), c, dtype = _prepare(kappa, x=x, y=y)
    t = as_fraction(t, x)
    return exp(x, t * log(x, y, -c), -c).to(dtype)


# --- transport and gyrovectors -------------------------------------------------------------------


def transport(x: Tensor, y: Tensor, v: Tensor, kappa: Scalar) -> Tensor:
    """Parallel transport of the tangent vector v from x to y: `(λ(x)/λ(y))·gyr[y, −x]v`."""
    (x, y, v), c, dtype = _prepare(kappa, x=x, y=y, vectors={"v": v})
    return turn(x, y, v, c, metric=True, total=_positive_total(x, y, c)).to(dtype)


def transport_from0(y: Tensor, v: Tensor, kappa: Scalar) -> Tensor:
    """Parallel transport of v, in the orthonormal frame at the origin, to y: `v/λ(y)`."""
    (y, v), c, dtype = _prepare(kappa, y=y, vectors={"v": v})
    return (v * (gap(y, c) / 2)).to(dtype)


def transport_to0(x: Tensor, v: Tensor, kappa: Scalar) -> Tensor:
    """Parallel transport of v from x to the origin, into the orthonormal frame there: `λ(x)·v`."""
    (x, v), c, dtype = _prepare(kappa, x=x, vectors={"v": v})
    return (v * (2 / gap(x, c))).to(dtype)


def mobius_add(x: Tensor, y: Tensor, kappa: Scalar) -> Tensor:
    """Möbius addition x ⊕ y: y moved by the translation that takes the origin to x; x + y at κ = 0.

    `(A·(x + y) − κ·s·x)/(AB − κ·s)` with s = |x + y|².
    """
    (x, y), c, dtype = _prepare(kappa, x=x, y=y)
    return mobius(x, y, c).to(dtype)


def mobius_scalar(r: Tensor | float, x: Tensor, kappa: Scalar) -> Tensor:
    """Möbius scalar multiple `r ⊗ x = exp0(r·log0(x))`; r·x at κ = 0."""
    (x,), c, dtype = _prepare(kappa, x=x)
    if isinstance(r, Tensor):
        r = r.to(x.dtype)
    return radial_map(r * radial_map(x, c, "signed_atanh"), c, "signed_tanh").to(dtype)


def gyration(u: Tensor, v: Tensor, w: Tensor, kappa: Scalar) -> Tensor:
    """The rotation `gyr[u, v]w = −(u ⊕ v) ⊕ (u ⊕ (v ⊕ w))`; the identity at κ = 0."""
    (u, v, w), c, dtype = _prepare(kappa, u=u, v=v, vectors={"w": w})
    return turn(-v, u, w, c, metric=False, total=_positive_total(-v, u, c)).to(dtype)


# --- means ---------------------------------------------------------------------------------------


def midpoint(x: Tensor, y: Tensor, kappa: Scalar) -> Tensor:
    """The point halfway between x and y, `(B·x + A·y)/(√(AB·D) + A + B − AB)`, D = AB − κ·s."""
    (x, y), c, dtype = _prepare(kappa, x=x, y=y)
    return halfway(x, y, c, total=_positive_total(x, y, c)).to(dtype)


def centroid(x: Tensor, weights: Tensor | None = None, kappa: Scalar = 0.0) -> Tensor:
    """Weighted gyromidpoint `½ ⊗ Σ wᵢλᵢxᵢ/Σ wᵢ(λᵢ − 1)`; the weighted mean at κ = 0.

    The centroid of the points on the hyperboloid or on the sphere, projected back to it. Not
    defined (infinite) for points that average to the pole opposite the origin.

    Args:
        x: points, (..., n, d).
        weights: (..., n), not negative and not all 0; equal if None. Their scale does not matter.
        kappa: broadcasts against the result's [..., :1].

    Returns: (..., d).
    """
    (x,), c, dtype = _prepare(curvature_of_set(kappa), x=x)
    factor = 2 / gap(x, c)
    w = as_weights(weights, x)
    a = w * factor
    total, mass = a.sum(-2, keepdim=True), w.sum(-2, keepdim=True)
    m = (a * x).sum(-2, keepdim=True) / total
    spread = c * (a * dot(x - m, x - m)).sum(-2, keepdim=True) / total
    # m = z/Λ with the sum z = Σ λwx and height Σ (λ−1)w, all in units of Λ = Σ λw.
    share, bend = mass / total, c * dot(m, m)
    height = 1 - share
    curved = bend > 0
    # |z|² in two forms, without a difference for κ < 0 and for κ > 0.
    length = torch.sqrt(torch.where(curved, share * share + spread, height * height - bend))
    # On the far half of the sphere height < 0, and length + height is taken without cancelling.
    back = (height < 0) & (bend < 0)
    lower = -bend / torch.where(back, length - height, 1.0)
    return (m / torch.where(back, lower, length + height)).squeeze(-2).to(dtype)


gyromidpoint = centroid


# --- the border and conversions ------------------------------------------------------------------


def project(x: Tensor, kappa: Scalar) -> Tensor:
    """Pull points at or beyond the border, where there is one (κ < 0), inside.

    To √−κ·|x| = 1 − 4 eps, as `poincare.project` does; for κ ≥ 0 every point is left as it is.
    """
    given = x
    (x,), _, dtype = prepare(1.0, x=x)
    kappa = check_curvature(kappa, x.dtype, x.device, name="kappa", signed=True)
    if not isinstance(kappa, Tensor):
        return poincare.project(given, -kappa) if kappa < 0 else given
    bounded = kappa < 0
    radius = torch.where(bounded, -kappa, 1.0) ** -0.5
    limit = (1 - BORDER_EPS * torch.finfo(dtype).eps) * radius
    n2 = dot(x, x)
    inside = ~bounded | (n2.sqrt() <= limit)
    return torch.where(inside, x, x * (limit / torch.where(inside, 1.0, n2).sqrt())).to(dtype)


def _check_negative(kappa: Scalar) -> None:
    if isinstance(kappa, int | float) and kappa >= 0:
        raise ValueError(f"kappa must be negative to have a Lorentz model, got {kappa}")


def to_lorentz(x: Tensor, kappa: Scalar) -> Tensor:
    """The Lorentz point (its space part) for κ < 0, see `poincare.to_lorentz` with c = −κ."""
    _check_negative(kappa)
    return poincare.to_lorentz(x, -kappa)


def from_lorentz(x: Tensor, kappa: Scalar) -> Tensor:
    """The point of the model for κ < 0 of a Lorentz point with c = −κ."""
    _check_negative(kappa)
    return poincare.from_lorentz(x, -kappa)


def to_sphere(x: Tensor, kappa: Scalar) -> Tensor:
    """The point `(λ(x)·x, (λ(x) − 1)/√κ)` of the sphere of radius 1/√κ, κ > 0: (..., d+1).

    Ambient coordinates as in `sphere`: the pole, last, is the origin of this model.
    """
    (x,), kappa, dtype = prepare(kappa, x=x)
    a = gap(x, -kappa)
    # (2 − A)/A, which is λ − 1 without the digits that λ = 2/A would round off.
    height = (2 - a) / a * kappa**-0.5
    return torch.cat([x * (2 / a), height.expand(*x.shape[:-1], 1)], dim=-1).to(dtype)


def from_sphere(x: Tensor, kappa: Scalar) -> Tensor:
    """The point `x/(1 + √κ·height)` of this model for a point (..., d+1) of the sphere, κ > 0."""
    (x,), kappa, dtype = prepare(kappa, x=x)
    if x.shape[-1] < 2:
        raise ValueError(f"x must have d + 1 ≥ 2 ambient coordinates, got shape {tuple(x.shape)}")
    return (x[..., :-1] / (1 + kappa**0.5 * x[..., -1:])).to(dtype)


# --- the cosine ----------------------------------------------------------------------------------


class _Total(torch.autograd.Function):
    """`D = 1 − 2c·x·y + c²|x|²|y|²`, (..., 1): AB times cosh² (c > 0) or cos² of half the distance.

    A sum of positive terms for both signs: AB + c|x−y|², or (1 − c·x·y)² + c²|x|²·|y across x|²,
    which is 0 to the last digit at antipodes only.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, c: Scalar) -> Tensor:
        s, a, b = pair(x, y, c)
        n2, xy = dot(x, x), dot(x, y)
        across = y - xy / torch.where(n2 > 0, n2, 1.0) * x
        sphere = (1 - c * xy) ** 2 + c * c * n2 * dot(across, across)
        return (
            torch.where(c > 0, a * b + c * s, sphere)
            if isinstance(c, Tensor)
            else (a * b + c * s if c > 0 else sphere)
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Scalar], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, y, c = load_with_scalar(ctx)
        gx = gy = gc = None
        k = 2 * c * g
        if ctx.needs_input_grad[0]:
            gx = sum_to(k * (c * dot(y, y) * x - y), x)
        if ctx.needs_input_grad[1]:
            gy = sum_to(k * (c * dot(x, x) * y - x), y)
        if ctx.needs_input_grad[2] and isinstance(c, Tensor):
            gc = sum_to(2 * g * (c * dot(x, x) * dot(y, y) - dot(x, y)), c)
        return gx, gy, gc
