r"""The Klein (projective) model: hyperbolic space of curvature −c as the ball |k| < 1/√c.

A point is the Lorentz point divided by its time, `k = x/T(x)` with `T(x) = √(1 + c|x|²)`. Geodesics
are straight lines, which is what the model is good for: means are plain weighted means with Lorentz
factors `γ(k) = 1/√(1 − c|k|²) = T(x)` as weights (Einstein midpoints), and convex sets are convex.

Its coordinates crowd at the border twice as fast as those of the Poincaré ball: a coordinate
rounded to eps locates a point to eps·cosh²(√c·r), so that float32 holds points up to √c·r of 8
and float64 up to 18. That is the error bound of `dist`, `log0`, `geodesic` and the conversions from
here. Convert to `lorentz` for what is missing here.

Conventions as in `poincare`: `exp0` and `log0` use an orthonormal frame, here also the model's own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.geometry import radial
from beltrami.geometry.ball import gap, pair, prepare_in_ball
from beltrami.geometry.checks import Scalar, as_fraction, as_scalar, prepare
from beltrami.geometry.chord import dist_of_chord, dist_sq_of_chord, dot
from beltrami.geometry.radial_map import radial_map
from beltrami.geometry.sets import as_weights, curvature_of_set


def lorentz_factor(x: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """`γ(x) = 1/√(1 − c|x|²) = cosh(√c·dist0(x))`."""
    (x,), c, _ = prepare_in_ball(c, x=x)
    return as_scalar(1 / torch.sqrt(gap(x, c)), keepdim)


# --- distances -----------------------------------------------------------------------------------


def _sinh_sq(x: Tensor, y: Tensor, c: Scalar) -> Tensor:
    """`sinh²(√c·d)/c = (s·A + c·(x·(y − x))²)/(AB)`, a sum of positive terms.

    A = 1 − c|x|², B = 1 − c|y|², s = |y − x|². It is the textbook cosh² − 1 with its ones removed.
    """
    s, a, b = pair(x, y, c)
    along = dot(x, y - x)
    return (s + c * along * along / a) / b


def dist(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Geodesic distance, `asinh(√(c·Q))/√c` with `Q = (|y − x|² + c(x·(y − x))²/A)/B`.

    Exactly 0 at x = y, where its gradient is 0. Error up to 16 eps·cosh²(√c·radius).
    """
    (x, y), c, _ = prepare_in_ball(c, x=x, y=y)
    return as_scalar(dist_of_chord(4 * _sinh_sq(x, y, c), c) / 2, keepdim)


def dist_sq(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Squared geodesic distance; twice differentiable also at x = y. Bound as for `dist`."""
    (x, y), c, _ = prepare_in_ball(c, x=x, y=y)
    return as_scalar(dist_sq_of_chord(4 * _sinh_sq(x, y, c), c) / 4, keepdim)


def dist0(x: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Distance from the origin, `atanh(√c|x|)/√c`; gradient 0 at the origin. As `dist`."""
    (x,), c, _ = prepare_in_ball(c, x=x)
    return as_scalar(dist_of_chord(4 * dot(x, x) / gap(x, c), c) / 2, keepdim)


# --- maps, geodesics and means ------------------------------------------------------------------


def exp0(v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Exponential map at the origin, `tanh(√c|v|)/(√c|v|)·v`; |v| is the distance travelled."""
    (v,), c, dtype = prepare(c, v=v)
    return radial_map(v, c, "tanh").to(dtype)


def log0(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """Logarithmic map at the origin, `atanh(√c|x|)/(√c|x|)·x`; its norm is `dist0(x)`."""
    (x,), c, dtype = prepare_in_ball(c, x=x)
    return radial_map(x, c, "atanh").to(dtype)


def geodesic(x: Tensor, y: Tensor, t: Tensor | float, c: Scalar = 1.0) -> Tensor:
    """The point at fraction t of the length of the segment from x (t = 0) to y (t = 1).

    `x + w·(y − x)` with `w = γ_y·sinh(tθ)/(γ_x·sinh((1−t)θ) + γ_y·sinh(tθ))` and θ the scaled
    distance. A tensor t broadcasts against x[..., :1].
    """
    (x, y), c, dtype = prepare_in_ball(c, x=x, y=y)
    t = as_fraction(t, x)
    theta_sq = c * dist_sq_of_chord(4 * _sinh_sq(x, y, c), c) / 4
    wx = radial.sinh_ratio(1 - t, theta_sq) * torch.sqrt(gap(y, c))
    wy = radial.sinh_ratio(t, theta_sq) * torch.sqrt(gap(x, c))
    return (x + wy / (wx + wy) * (y - x)).to(dtype)


def midpoint(x: Tensor, y: Tensor, c: Scalar = 1.0) -> Tensor:
    """The point halfway between x and y, `x + γ_y/(γ_x + γ_y)·(y − x)`."""
    (x, y), c, dtype = prepare_in_ball(c, x=x, y=y)
    wx, wy = torch.sqrt(gap(y, c)), torch.sqrt(gap(x, c))
    return (x + wy / (wx + wy) * (y - x)).to(dtype)


def einstein_midpoint(x: Tensor, weights: Tensor | None = None, c: Scalar = 1.0) -> Tensor:
    """Einstein midpoint `Σ wᵢγᵢxᵢ/Σ wᵢγᵢ` of points with Lorentz factors γᵢ.

    The same point as `lorentz.centroid` and `poincare.centroid` find in their models.

    Args:
        x: points, (..., n, d).
        weights: (..., n), not negative and not all 0; equal if None. Their scale does not matter.
        c: curvature −c, broadcasting against the result's [..., :1].

    Returns: (..., d).
    """
    (x,), c, dtype = prepare_in_ball(curvature_of_set(c), x=x)
    factor = as_weights(weights, x) / torch.sqrt(gap(x, c))
    return ((factor * x).sum(-2) / factor.sum(-2)).to(dtype)


centroid = einstein_midpoint


# --- conversions ---------------------------------------------------------------------------------


def to_lorentz(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """The Lorentz point (its space part) of a Klein point: `γ(x)·x = x/√(1 − c|x|²)`."""
    (x,), c, dtype = prepare_in_ball(c, x=x)
    return (x / torch.sqrt(gap(x, c))).to(dtype)


def from_lorentz(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """The Klein point of a Lorentz point: `x/√(1 + c|x|²)`. Well conditioned."""
    (x,), c, dtype = prepare(c, x=x)
    return radial_map(x, c, "lorentz_to_klein").to(dtype)


def to_poincare(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """The point of the Poincaré ball of a Klein point: `x/(1 + √(1 − c|x|²))`."""
    (x,), c, dtype = prepare_in_ball(c, x=x)
    return (x / (1 + torch.sqrt(gap(x, c)))).to(dtype)


def from_poincare(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """The Klein point of a point of the Poincaré ball: `2x/(1 + c|x|²)`. Well conditioned."""
    (x,), c, dtype = prepare_in_ball(c, x=x)
    return (2 * x / (2 - gap(x, c))).to(dtype)
