"""The operations of the Lorentz model on points and pairs of points; see the package docstring."""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.geometry import radial
from beltrami.geometry.checks import (
    Scalar,
    as_fraction,
    as_scalar,
    check_curvature,
    no_autocast,
    prepare,
)
from beltrami.geometry.chord import (
    dist_of_chord,
    dist_sq_of_chord,
    dot,
    half_sinh_sq,
    log_coefficients,
    root,
    squared_chord,
    times_of,
)
from beltrami.geometry.radial_map import radial_map

# --- time and the ambient product ----------------------------------------------------------------


def time(x: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Time coordinate `√(1/c + |x|²)` of a point, shape (...) or (..., 1). Well conditioned."""
    (x,), c, _ = prepare(c, x=x)
    return as_scalar(torch.sqrt(1 / c + dot(x, x)), keepdim)


def excess_time(x: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Time above the origin's, `time(x) − 1/√c = |x|²/(time(x) + 1/√c)`. Well conditioned.

    Unlike time itself it does not cancel for small x and vanishes as c → 0.
    """
    (x,), c, _ = prepare(c, x=x)
    return as_scalar(times_of(dot(x, x), c)[1], keepdim)


def minkowski(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Ambient product of two points, `⟨x, y⟩ = x·y − time(x)·time(y) = −cosh(√c·d)/c`.

    Taken from the chord, `−1/c − |x−y|²_L/2`, since the difference of products has no digit left
    for near pairs far out. Well conditioned.
    """
    (x, y), c, _ = prepare(c, x=x, y=y)
    return as_scalar(-1 / c - squared_chord(x, y, c) / 2, keepdim)


# --- distances -----------------------------------------------------------------------------------


def chord_sq(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Squared Lorentzian distance `|x − y|²_L = (4/c)·sinh²(√c·d/2)`; `|x − y|²` as c → 0.

    Twice differentiable everywhere. Saves only its inputs for the backward pass. Well conditioned
    for far pairs, near-pairs bound else.
    """
    (x, y), c, _ = prepare(c, x=x, y=y)
    return as_scalar(squared_chord(x, y, c), keepdim)


def dist(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Geodesic distance `(2/√c)·asinh(√c·|x − y|_L/2)`.

    Symmetric and exactly 0 at x = y, where it is not differentiable: the gradient there is 0. Use
    `dist_sq` in losses that pull points together. Well conditioned for far pairs, near-pairs bound
    else, values and gradients.

    Args:
        x, y: points, (..., d), broadcasting.
        c: curvature −c.
        keepdim: return (..., 1) instead of (...).
    """
    (x, y), c, _ = prepare(c, x=x, y=y)
    return as_scalar(dist_of_chord(squared_chord(x, y, c), c), keepdim)


def dist_sq(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Squared geodesic distance; smooth also at x = y. Bounds as for `dist`."""
    (x, y), c, _ = prepare(c, x=x, y=y)
    return as_scalar(dist_sq_of_chord(squared_chord(x, y, c), c), keepdim)


def dist0(x: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Distance from the origin, `asinh(√c|x|)/√c`; gradient 0 at the origin. Well conditioned."""
    (x,), c, _ = prepare(c, x=x)
    return as_scalar(dist_of_chord(4 * dot(x, x), c) / 2, keepdim)


# --- exponential and logarithmic maps -----------------------------------------------------------


def exp0(v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Exponential map at the origin, `sinh(√c|v|)/(√c|v|)·v`; |v| is the distance travelled.

    Error up to 16 eps·max(1, √c|v|): the condition number of sinh.
    """
    (v,), c, dtype = prepare(c, v=v)
    return radial_map(v, c, "sinh").to(dtype)


def log0(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """Logarithmic map at the origin, `asinh(√c|x|)/(√c|x|)·x`. Well conditioned."""
    (x,), c, dtype = prepare(c, x=x)
    return radial_map(x, c, "asinh").to(dtype)


def exp(x: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Exponential map at x, `cosh(√c|v|_x)·x + sinh(√c|v|_x)/(√c|v|_x)·v`.

    |v|_x is the metric norm, see `norm`. Error up to 16 eps·max(1, √c·radius), except where x
    and the step back towards the origin cancel.
    """
    (x, v), c, dtype = prepare(c, x=x, v=v)
    q = c * _inner(x, v, v, c)
    return (radial.cosh_sq(q) * x + radial.sinhc_sq(q) * v).to(dtype)


def log(x: Tensor, y: Tensor, c: Scalar = 1.0) -> Tensor:
    """Logarithmic map: the tangent vector at x whose exponential is y, 0 at y = x.

    `(d/sinh d)(y − cosh d·x)` with d the scaled distance, written as `a·(y − x) − b·x` with
    positive a and b. Error relative to the vector's coordinates: well conditioned for far pairs,
    near-pairs bound else.
    """
    (x, y), c, dtype = prepare(c, x=x, y=y)
    a, b = log_coefficients(half_sinh_sq(x, y, c))
    return (a * (y - x) - b * x).to(dtype)


# --- metric --------------------------------------------------------------------------------------


def _frame(x: Tensor, c: Scalar) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(near, n, u, T): whether c|x|² < 1; |x| and x/|x|, or 1 and x where near; √(1 + c|x|²).

    Near the origin the metric `a·b − c(x·a)(x·b)/T²` is used as it stands, which is smooth there;
    further out vectors are split along and across u, since the two terms cancel along x.
    """
    n2 = dot(x, x)
    near = c * n2 < 1
    n = torch.where(near, 1.0, n2).sqrt()
    # On a line the direction is a sign, and has no gradient to leave rounding errors in.
    u = torch.where(near, x, x.sign()) if x.shape[-1] == 1 else x / n
    return near, n, u, torch.sqrt(1 + c * n2)


def _inner(x: Tensor, a: Tensor, b: Tensor, c: Scalar) -> Tensor:
    near, _, u, t = _frame(x, c)
    along_a, along_b = dot(u, a), dot(u, b)
    across_a = a - torch.where(near, 0.0, along_a) * u
    across_b = across_a if b is a else b - torch.where(near, 0.0, along_b) * u
    # Divided by T one by one: their product leaves the range of float32 at radius 40.
    along = (along_a / t) * (along_b / t)
    return dot(across_a, across_b) + torch.where(near, -c * along, along)


def inner(x: Tensor, u: Tensor, v: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Metric at x of two tangent vectors, `u·v − c(x·u)(x·v)/(1 + c|x|²)`.

    Summed along and across x apart, so that vectors along the radius keep their digits up to the
    near-pairs bound.
    """
    (x, u, v), c, _ = prepare(c, x=x, u=u, v=v)
    return as_scalar(_inner(x, u, v, c), keepdim)


def norm(x: Tensor, v: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Metric norm `√⟨v, v⟩_x` of a tangent vector at x; its gradient at v = 0 is 0."""
    (x, v), c, _ = prepare(c, x=x, v=v)
    return as_scalar(root(_inner(x, v, v, c)), keepdim)


def riemannian_grad(x: Tensor, g: Tensor, c: Scalar = 1.0) -> Tensor:
    """The Riemannian gradient `g + c(x·g)x` for a Euclidean gradient g in space coordinates.

    The inverse metric applied to g: the tangent vector w with ⟨w, v⟩_x = g·v for all v.
    """
    (x, g), c, dtype = prepare(c, x=x, g=g)
    return (g + c * dot(x, g) * x).to(dtype)


# --- transport -----------------------------------------------------------------------------------


def transport(x: Tensor, y: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Parallel transport of the tangent vector v from x to y along their geodesic; an isometry.

    `v + c·⟨P, v⟩_x/(2(1+h²))·(x + y)` with P = (y − x) − 2h²x tangent at x and
    h² = sinh²(√c·d/2). Exact identity at x = y.
    """
    (x, y, v), c, dtype = prepare(c, x=x, y=y, v=v)
    q = half_sinh_sq(x, y, c)
    d = y - x
    near, n, u, t = _frame(x, c)
    along_d, along_v = dot(u, d), dot(u, v)
    across_v = v - torch.where(near, 0.0, along_v) * u
    across = dot(d - torch.where(near, 0.0, along_d) * u, across_v)
    along = (along_d / t) * (along_v / t)
    # The order keeps every product in the range of float32 at radius 40.
    product = (across + torch.where(near, -c * along, along)) / (1 + q)
    product = product - 2 * (q / (1 + q)) * (n / t) * (along_v / t)
    return (v + (c / 2 * product) * (x + y)).to(dtype)


def transport_from0(y: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Parallel transport of v from the origin to y: `v + c(y·v)/(1 + T(y))·y`."""
    (y, v), c, dtype = prepare(c, y=y, v=v)
    return (v + c * dot(y, v) / (1 + torch.sqrt(1 + c * dot(y, y))) * y).to(dtype)


def transport_to0(x: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Parallel transport of v from x to the origin: the part of v along x shrinks by 1/T(x)."""
    (x, v), c, dtype = prepare(c, x=x, v=v)
    near, _, u, t = _frame(x, c)
    along = dot(u, v)
    across = v - torch.where(near, 0.0, along) * u
    return (across + torch.where(near, -c / (t * (1 + t)), 1 / t) * along * u).to(dtype)


# --- geodesics -----------------------------------------------------------------------------------


def geodesic(x: Tensor, y: Tensor, t: Tensor | float, c: Scalar = 1.0) -> Tensor:
    """The point at fraction t of the geodesic from x (t = 0) to y (t = 1).

    `(sinh((1−t)d)·x + sinh(t·d)·y)/sinh(d)` with d the scaled distance; t outside [0, 1] extends
    the geodesic. A tensor t broadcasts against x[..., :1].
    """
    (x, y), c, dtype = prepare(c, x=x, y=y)
    t = as_fraction(t, x)
    d2 = c * dist_sq_of_chord(squared_chord(x, y, c), c)
    return (radial.sinh_ratio(1 - t, d2) * x + radial.sinh_ratio(t, d2) * y).to(dtype)


def midpoint(x: Tensor, y: Tensor, c: Scalar = 1.0) -> Tensor:
    """The point halfway between x and y, `(x + y)/(2·cosh(√c·d/2))`."""
    (x, y), c, dtype = prepare(c, x=x, y=y)
    return ((x + y) / (2 * torch.sqrt(1 + half_sinh_sq(x, y, c)))).to(dtype)


# --- isometries ----------------------------------------------------------------------------------


def boost(x: Tensor, p: Tensor, c: Scalar = 1.0) -> Tensor:
    """The boost (translation along the geodesic) that takes the origin to p, applied to x.

    `x + (T(x) + c(p·x)/(1 + T(p)))·p`. `boost(x, −p)` takes p to the origin, so that
    `log0(boost(y, −x))` is log(x, y) carried to the origin. Every orientation-preserving isometry
    is a rotation followed by a boost. Written through x + p, which keeps the digits when x is close
    to −p.
    """
    (x, p), c, dtype = prepare(c, x=x, p=p)
    tx, tp = torch.sqrt(1 + c * dot(x, x)), torch.sqrt(1 + c * dot(p, p))
    total = x + p
    rise = c * dot(total, x - p) / (tx + tp)  # T(x) − T(p)
    return (total + (2 * half_sinh_sq(x, -p, c) + rise) / (1 + tp) * p).to(dtype)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Apply an orthogonal matrix (d, d) about the origin: `R x`. An isometry for every c."""
    (x, rotation), _, dtype = prepare(1.0, x=x, rotation=rotation)
    if rotation.shape[-2:] != (x.shape[-1], x.shape[-1]):
        raise ValueError(
            f"rotation must be a ({x.shape[-1]}, {x.shape[-1]}) matrix for points of dimension "
            f"{x.shape[-1]}, got shape {tuple(rotation.shape)}"
        )
    with no_autocast(x):
        return (rotation @ x.unsqueeze(-1)).squeeze(-1).to(dtype)


def change_curvature(x: Tensor, c: Scalar, new_c: Scalar) -> Tensor:
    """Move points to the hyperboloid of curvature −new_c: `x·√(c/new_c)`; keeps √c·distance."""
    (x,), c, dtype = prepare(c, x=x)
    new_c = check_curvature(new_c, x.dtype, x.device, name="new_c")
    return (x * (c / new_c) ** 0.5).to(dtype)
