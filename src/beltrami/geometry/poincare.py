r"""The Poincaré ball: hyperbolic space of curvature −c as the ball |x| < 1/√c, and its gyrovectors.

The metric is `λ(x)²·|dx|²` with the conformal factor `λ(x) = 2/(1 − c|x|²)`. At the origin λ = 2: a
coordinate vector v there has length 2|v|.

Two frames, as everywhere in beltrami: `exp0`, `log0`, `transport_from0` and `transport_to0` give
vectors at the origin in an *orthonormal* frame, so that |v| is a distance and means the same in all
models. All other functions take tangent vectors in the ball's own coordinates, so
`log(0, y) = log0(y)/2`.

Conventions: `c` is a positive float or a tensor that broadcasts against `x[..., :1]`; all other
dimensions broadcast; scalar results drop the last dimension unless `keepdim=True`. Half-precision
inputs are computed in float32; points and vectors come back in the input's dtype, scalars in
float32.

A ball ends where its dtype does: a coordinate rounded to eps locates a point to eps·cosh(√c·r), and
beyond √c·r = 15 (float32), 35 (float64) or 4 (bfloat16) points round onto the border. Nothing here
moves a point silently: `project` does when asked, and inside `beltrami.debug()` a point outside the
ball is an error. Farther out, use `lorentz`. Error bounds are relative: *well conditioned* is 16
eps and *near pairs* is 16 eps·cosh(√c·radius), what rounding the coordinates costs any formula.

In the formulas A = 1 − c|x|², B = 1 − c|y|², s = |y − x|² and h² = c·s/(AB) = sinh²(√c·d/2).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from beltrami.geometry import lorentz, radial
from beltrami.geometry.ball import (
    BORDER_EPS,
    combine,
    gap,
    halfway,
    mobius,
    pair,
    pair_and_ratio,
    pairwise_sq,
    prepare_in_ball,
    turn,
)
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
    log_coefficients,
    root,
)
from beltrami.geometry.radial_map import radial_map
from beltrami.geometry.sets import as_weights, check_sets, curvature_of_set

# --- metric --------------------------------------------------------------------------------------


def conformal_factor(x: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """`λ(x) = 2/(1 − c|x|²)`, by which the metric stretches coordinates at x. Well conditioned."""
    (x,), c, _ = prepare_in_ball(c, x=x)
    return as_scalar(2 / gap(x, c), keepdim)


def inner(x: Tensor, u: Tensor, v: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Metric at x of two tangent vectors, `λ(x)²·(u·v)`."""
    (x, u, v), c, _ = prepare_in_ball(c, x=x, vectors={"u": u, "v": v})
    return as_scalar(4 * dot(u, v) / gap(x, c) ** 2, keepdim)


def norm(x: Tensor, v: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Metric norm `λ(x)·|v|` of a tangent vector at x; its gradient at v = 0 is 0."""
    (x, v), c, _ = prepare_in_ball(c, x=x, vectors={"v": v})
    return as_scalar(2 * root(dot(v, v)) / gap(x, c), keepdim)


def riemannian_grad(x: Tensor, g: Tensor, c: Scalar = 1.0) -> Tensor:
    """The Riemannian gradient `g/λ(x)²` for a Euclidean gradient g. Well conditioned."""
    (x, g), c, dtype = prepare_in_ball(c, x=x, vectors={"g": g})
    return (g * (gap(x, c) / 2) ** 2).to(dtype)


# --- distances -----------------------------------------------------------------------------------


def _chord(x: Tensor, y: Tensor, c: Scalar) -> Tensor:
    """The Lorentzian chord `4s/(AB) = (4/c)·sinh²(√c·d/2)`."""
    s, a, b = pair(x, y, c)
    return 4 * s / (a * b)


def dist(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Geodesic distance `(2/√c)·asinh(√c·|x − y|/√(AB))`.

    Symmetric and exactly 0 at x = y, where it is not differentiable: the gradient there is 0. Use
    `dist_sq` in losses that pull points together. Saves its inputs and a few numbers a row for the
    backward pass. Near-pairs bound.

    Args:
        x, y: points, (..., d), broadcasting.
        c: curvature −c.
        keepdim: return (..., 1) instead of (...).
    """
    (x, y), c, _ = prepare_in_ball(c, x=x, y=y)
    return as_scalar(dist_of_chord(_chord(x, y, c), c), keepdim)


def dist_sq(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Squared geodesic distance; twice differentiable also at x = y. Bounds as for `dist`."""
    (x, y), c, _ = prepare_in_ball(c, x=x, y=y)
    return as_scalar(dist_sq_of_chord(_chord(x, y, c), c), keepdim)


def dist0(x: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Distance from the origin, `(2/√c)·atanh(√c|x|)`; gradient 0 at the origin. As `dist`."""
    (x,), c, _ = prepare_in_ball(c, x=x)
    return as_scalar(dist_of_chord(4 * dot(x, x) / gap(x, c), c), keepdim)


def pairwise_dist(x: Tensor, y: Tensor, c: Scalar = 1.0) -> Tensor:
    """Distances between all pairs of rows, (..., n, d) and (..., m, d) to (..., n, m).

    From differences, not from a matrix product, so that close pairs keep their digits and equal
    rows have distance 0, and gradient 0. Memory: a few n·m matrices, never n·m·d. Bounds as for
    `dist`.

    Args:
        x: (..., n, d). y: (..., m, d).
        c: curvature −c, one for each set: a float, a tensor of shape (1,), or (..., 1, 1).
    """
    (x, y), c, _ = prepare_in_ball(c, x=x, y=y)
    check_sets(x, y, c)
    a, b = gap(x, c), gap(y, c).transpose(-1, -2)
    return dist_of_chord(4 * pairwise_sq(x, y) / (a * b), c)


# --- exponential and logarithmic maps -----------------------------------------------------------


def exp0(v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Exponential map at the origin, `tanh(√c|v|/2)/(√c|v|)·v`; |v| is the distance travelled.

    v is in an orthonormal frame: `exp0(v) = exp(0, v/2)`. Well conditioned. Beyond √c|v| of 15 in
    float32 or 35 in float64 the result rounds onto the border; see `project`.
    """
    (v,), c, dtype = prepare(c, v=v)
    return radial_map(v, c / 4, "half_tanh").to(dtype)


def log0(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """Logarithmic map at the origin, `2·atanh(√c|x|)/(√c|x|)·x`; its norm is `dist0(x)`.

    In an orthonormal frame: `log0(x) = 2·log(0, x)`. Error up to the near-pairs bound.
    """
    (x,), c, dtype = prepare_in_ball(c, x=x)
    return radial_map(x, c, "twice_atanh").to(dtype)


def exp(x: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Exponential map at x, `x ⊕ tanh(√c|v|/A)/(√c|v|)·v`, v in the ball's coordinates.

    The distance travelled is λ(x)·|v| = 2|v|/A. Error up to the near-pairs bound at the larger of
    both radii.
    """
    (x, v), c, dtype = prepare_in_ball(c, x=x, vectors={"v": v})
    return mobius(x, radial_map(v / gap(x, c), c, "tanh"), c).to(dtype)


def log(x: Tensor, y: Tensor, c: Scalar = 1.0) -> Tensor:
    """Logarithmic map: the tangent vector at x, in the ball's coordinates, whose exponential is y.

    `(f/√(1+h²))·[(A/B)·(y − x) − A·h²·x]` with f = asinh(h)/h; 0 at y = x, where it is smooth.
    Error in the Euclidean norm as for `dist`.
    """
    (x, y), c, dtype = prepare_in_ball(c, x=x, y=y)
    s, a, b, ratio = pair_and_ratio(x, y, c)
    step, inward = log_coefficients(c * s / (a * b))
    return combine(x, y, step * ratio, -inward * a / 2).to(dtype)


# --- transport -----------------------------------------------------------------------------------


def transport(x: Tensor, y: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Parallel transport of the tangent vector v from x to y along their geodesic; an isometry.

    `(λ(x)/λ(y))·gyr[y, −x]v`, in the ball's coordinates, from differences and without gyrations.
    Exact identity at x = y. Near-pairs bound.
    """
    (x, y, v), c, dtype = prepare_in_ball(c, x=x, y=y, vectors={"v": v})
    return turn(x, y, v, c, metric=True).to(dtype)


def transport_from0(y: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Parallel transport of v, in the orthonormal frame at the origin, to y: `v/λ(y)`.

    The result is in the ball's coordinates and has `norm(y, ·) = |v|`: it is
    `transport(0, y, v/2)`, since v/2 are the ball's coordinates of v. Well conditioned.
    """
    (y, v), c, dtype = prepare_in_ball(c, y=y, vectors={"v": v})
    return (v * (gap(y, c) / 2)).to(dtype)


def transport_to0(x: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Parallel transport of v from x to the origin, into the orthonormal frame there: `λ(x)·v`.

    The inverse of `transport_from0`: `2·transport(x, 0, v)`. Well conditioned.
    """
    (x, v), c, dtype = prepare_in_ball(c, x=x, vectors={"v": v})
    return (v * (2 / gap(x, c))).to(dtype)


# --- geodesics and means -------------------------------------------------------------------------


def geodesic(x: Tensor, y: Tensor, t: Tensor | float, c: Scalar = 1.0) -> Tensor:
    """The point at fraction t of the geodesic from x (t = 0) to y (t = 1).

    With w_x = sinh((1−t)θ)/sinh(θ), w_y = sinh(tθ)/sinh(θ) and θ the scaled distance,
    `(2w_x/A·x + 2w_y/B·y)/(1 − w_x − w_y + 2w_x/A + 2w_y/B)`: Lorentz interpolation seen in the
    ball. t outside [0, 1] extends the geodesic. A tensor t broadcasts against x[..., :1].
    """
    (x, y), c, dtype = prepare_in_ball(c, x=x, y=y)
    t = as_fraction(t, x)
    s, a, b = pair(x, y, c)
    theta_sq = c * dist_sq_of_chord(4 * s / (a * b), c)
    wx, wy = radial.sinh_ratio(1 - t, theta_sq), radial.sinh_ratio(t, theta_sq)
    # Multiplied through by AB: nothing grows towards the border.
    px, py = 2 * wx * b, 2 * wy * a
    total = px + py + (1 - wx - wy) * (a * b)
    return (px / total * x + py / total * y).to(dtype)


def midpoint(x: Tensor, y: Tensor, c: Scalar = 1.0) -> Tensor:
    """The point halfway between x and y, `(B·x + A·y)/(√(AB·D) + A + B − AB)`, D = AB + c·s."""
    (x, y), c, dtype = prepare_in_ball(c, x=x, y=y)
    return halfway(x, y, c).to(dtype)


def centroid(x: Tensor, weights: Tensor | None = None, c: Scalar = 1.0) -> Tensor:
    """Weighted gyromidpoint `½ ⊗ Σ wᵢλᵢxᵢ/Σ wᵢ(λᵢ − 1)` of points.

    The same point as the Lorentz centroid and, seen in the Klein model, the Einstein midpoint. With
    a = wλ, Λ = Σ a, W = Σ w, the mean m = Σ aᵢxᵢ/Λ and the spread V = Σ aᵢ|xᵢ − m|², it is
    `Λ·m/(Λ − W + √(W² + c·Λ·V))`, a form in which nothing cancels. Near-pairs bound.

    Args:
        x: points, (..., n, d).
        weights: (..., n), not negative and not all 0; equal if None. Their scale does not matter.
        c: curvature −c, broadcasting against the result's [..., :1].

    Returns: (..., d).
    """
    (x,), c, dtype = prepare_in_ball(curvature_of_set(c), x=x)
    factor = 2 / gap(x, c)
    w = as_weights(weights, x)
    a = w * factor
    total, mass = a.sum(-2, keepdim=True), w.sum(-2, keepdim=True)
    m = (a * x).sum(-2, keepdim=True) / total
    spread = (a * dot(x - m, x - m)).sum(-2, keepdim=True) / total
    share = mass / total  # 1/λ on average
    out = m / (1 - share + torch.sqrt(share * share + c * spread))
    return out.squeeze(-2).to(dtype)


gyromidpoint = centroid


def frechet_mean(x: Tensor, weights: Tensor | None = None, c: Scalar = 1.0) -> Tensor:
    """The point of least weighted squared distance to points (..., n, d), by iteration.

    Computed in Lorentz coordinates; arguments, gradients and costs as in `lorentz.frechet_mean`.
    """
    (x,), c, dtype = prepare(c, x=x)
    mean = lorentz.frechet_mean(to_lorentz(x, curvature_of_set(c)), weights, c)
    return from_lorentz(mean, c).to(dtype)


# --- gyrovectors ---------------------------------------------------------------------------------


def mobius_add(x: Tensor, y: Tensor, c: Scalar = 1.0) -> Tensor:
    """Möbius addition `x ⊕ y`: y moved by the translation that takes the origin to x.

    `(A·(x + y) + c·s·x)/(AB + c·s)` with s = |x + y|²: the textbook form without its cancellation.
    Neither commutative nor associative; −x is the inverse of x, `(−x) ⊕ (x ⊕ y) = y`. Near-pairs
    bound.
    """
    (x, y), c, dtype = prepare_in_ball(c, x=x, y=y)
    return mobius(x, y, c).to(dtype)


def mobius_scalar(r: Tensor | float, x: Tensor, c: Scalar = 1.0) -> Tensor:
    """Möbius scalar multiple `r ⊗ x = tanh(r·atanh(√c|x|))/(√c|x|)·x = exp0(r·log0(x))`.

    A tensor r broadcasts against x[..., :1].
    """
    (x,), c, dtype = prepare_in_ball(c, x=x)
    if isinstance(r, Tensor):
        r = r.to(x.dtype)
    return radial_map(r * radial_map(x, c, "atanh"), c, "tanh").to(dtype)


def mobius_matvec(matrix: Tensor, x: Tensor, c: Scalar = 1.0) -> Tensor:
    """Möbius matrix-vector product `M ⊗ x = exp0(M·log0(x))`; 0, and smooth, where Mx = 0.

    Args:
        matrix: (..., e, d); leading dimensions broadcast against those of x.
        x: (..., d).

    Returns: (..., e). Computed in float32 or wider, also under autocast.
    """
    (x, matrix), c, dtype = prepare_in_ball(c, x=x, vectors={"matrix": matrix})
    if matrix.ndim < 2:
        raise ValueError(f"matrix must have shape (..., e, d), got {tuple(matrix.shape)}")
    v = radial_map(x, c, "atanh")
    with no_autocast(x):
        image = (matrix @ v.unsqueeze(-1)).squeeze(-1) if matrix.ndim > 2 else v @ matrix.mT
    return radial_map(image, c, "tanh").to(dtype)


def gyration(u: Tensor, v: Tensor, w: Tensor, c: Scalar = 1.0) -> Tensor:
    """The rotation `gyr[u, v]w = −(u ⊕ v) ⊕ (u ⊕ (v ⊕ w))`; linear in w, and |gyr[u, v]w| = |w|."""
    (u, v, w), c, dtype = prepare_in_ball(c, u=u, v=v, vectors={"w": w})
    return turn(-v, u, w, c, metric=False).to(dtype)


# --- isometries, the border, random points -------------------------------------------------------


def boost(x: Tensor, p: Tensor, c: Scalar = 1.0) -> Tensor:
    """The translation that takes the origin to p, applied to x: `p ⊕ x`.

    The Lorentz boost of the same name, seen in the ball; `boost(x, −p)` takes p to the origin.
    """
    (x, p), c, dtype = prepare_in_ball(c, x=x, p=p)
    return mobius(p, x, c).to(dtype)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Apply an orthogonal matrix (d, d) about the origin: `R x`. An isometry for every c."""
    return lorentz.rotate(x, rotation)


def change_curvature(x: Tensor, c: Scalar, new_c: Scalar) -> Tensor:
    """Move points to the ball of curvature −new_c: `x·√(c/new_c)`; keeps √c·distance."""
    (x,), c, dtype = prepare_in_ball(c, x=x)
    new_c = check_curvature(new_c, x.dtype, x.device, name="new_c")
    return (x * (c / new_c) ** 0.5).to(dtype)


def project(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """Pull points at or beyond the border to the largest radius the dtype holds.

    Points with √c|x| > 1 − 4 eps (√c·r = 15.2 in float32, 35.0 in float64, 4.2 in bfloat16) move
    along their radius to it; all others are returned as they are. The gradient is that of what
    was done. No other function moves a point.
    """
    (x,), c, dtype = prepare(c, x=x)
    # Norms of points far outside would overflow; relative to the largest entry none does.
    largest = x.detach().abs().amax(-1, keepdim=True) if x.shape[-1] else x[..., :0]
    scale = torch.where(largest > 1, largest, 1.0)
    limit = (1 - BORDER_EPS * torch.finfo(dtype).eps) * c**-0.5
    y = x / scale
    n2 = dot(y, y)
    inside = n2.sqrt() * scale <= limit
    n = torch.where(inside, 1.0, n2).sqrt()
    return torch.where(inside, x, y * (limit / n)).to(dtype)


def wrapped_normal(
    mean: Tensor,
    std: float | Tensor = 1.0,
    c: Scalar = 1.0,
    *,
    sample_shape: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Tensor:
    """Sample the wrapped normal; the same law as `lorentz.wrapped_normal`, which see.

    Args:
        mean: (..., d).
        std: positive; a float, or a tensor broadcasting against mean.
        sample_shape: leading dimensions to add.
        generator: source of randomness, for reproducible draws.

    Returns: sample_shape + (..., d), differentiable in mean, std and c.
    """
    (mean,), c, dtype = prepare_in_ball(c, mean=mean)
    origin = torch.zeros_like(mean)
    noise = lorentz.wrapped_normal(origin, std, c, sample_shape=sample_shape, generator=generator)
    return mobius(mean, from_lorentz(noise, c), c).to(dtype)


def wrapped_normal_log_prob(
    x: Tensor,
    mean: Tensor,
    std: float | Tensor = 1.0,
    c: Scalar = 1.0,
    *,
    keepdim: bool = False,
) -> Tensor:
    """Log-density of `wrapped_normal` at x with respect to the hyperbolic volume.

    The volume is that of the space, not of the coordinates, so that it agrees with
    `lorentz.wrapped_normal_log_prob`, which see.
    """
    (x, mean), c, _ = prepare_in_ball(c, x=x, mean=mean)
    return lorentz.wrapped_normal_log_prob(
        to_lorentz(x, c), to_lorentz(mean, c), std, c, keepdim=keepdim
    )


def uniform_ball(
    *shape: int,
    radius: float = 1.0,
    c: Scalar = 1.0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Sample points uniformly, by hyperbolic volume, in the ball of the given radius about 0.

    Arguments as in `lorentz.uniform_ball`; `radius` is a distance.
    """
    x = lorentz.uniform_ball(
        *shape, radius=radius, c=c, dtype=torch.float64, device=device, generator=generator
    )
    return from_lorentz(x, c).to(dtype)


# --- conversions ---------------------------------------------------------------------------------


def to_lorentz(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """The Lorentz point (its space part) of a point of the ball: `λ(x)·x = 2x/(1 − c|x|²)`."""
    (x,), c, dtype = prepare_in_ball(c, x=x)
    return (x * (2 / gap(x, c))).to(dtype)


def from_lorentz(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """The point of the ball of a Lorentz point: `x/(1 + √c·time(x))`. Well conditioned."""
    (x,), c, dtype = prepare(c, x=x)
    return radial_map(x, c, "lorentz_to_poincare").to(dtype)


def to_lorentz_tangent(x: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """The tangent vector at `to_lorentz(x)` of a tangent vector at x.

    The derivative of `to_lorentz`: `λ(x)·v + c·λ(x)²·(x·v)·x`.
    """
    (x, v), c, dtype = prepare_in_ball(c, x=x, vectors={"v": v})
    factor = 2 / gap(x, c)
    return (factor * v + (c * factor**2 * dot(x, v)) * x).to(dtype)


def from_lorentz_tangent(x: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """The tangent vector at `from_lorentz(x)` of a tangent vector v at the Lorentz point x.

    The derivative of `from_lorentz`: v carried to the origin, times `1/(1 + √c·time(x))`.
    """
    (x, v), c, dtype = prepare(c, x=x, v=v)
    at_origin = lorentz.transport_to0(x, v, c)
    return (at_origin / (1 + torch.sqrt(1 + c * dot(x, x)))).to(dtype)
