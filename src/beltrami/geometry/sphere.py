r"""The sphere of curvature +c in ambient coordinates.

A point is a vector of R^d with |x| = 1/√c, so that the manifold has dimension d − 1; a tangent
vector at x is one of R^d across x. The origin is the north pole (0, ..., 0, 1/√c). Tangent vectors
at the origin are given in their d − 1 coordinates across the pole: `exp0` takes (..., d − 1) to
(..., d), `log0` back, and |v| is the distance, as in every model.

Every two-point function is made of `q = |x − y|²` and `p = |x + y|²`, the squared sine and cosine
of half the angle up to a common factor: `θ = 2·atan2(√q, √p)`, which keeps its digits for near and
for opposite points and never leaves its domain. Points are trusted to be on the sphere to rounding.

Opposite points (x = −y exactly) have no unique geodesic. Nothing is undefined there: `log` is 0,
`transport` the identity, `midpoint` the origin, gradients are 0.

Conventions as in `lorentz`: `c` is positive, a float or a tensor that broadcasts against
`x[..., :1]`; half precision is computed in float32. Functions are well conditioned (16 eps) except
where noted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from beltrami.geometry import radial
from beltrami.geometry.checks import Scalar, as_fraction, as_scalar, debugging, no_autocast, prepare
from beltrami.geometry.chord import dot, over, root
from beltrami.geometry.radial_signed import atanhc_signed
from beltrami.geometry.sets import as_weights, check_sets

__all__ = [
    "centroid",
    "dist",
    "dist0",
    "dist_sq",
    "exp",
    "exp0",
    "geodesic",
    "inner",
    "log",
    "log0",
    "midpoint",
    "norm",
    "origin",
    "pairwise_dist",
    "project",
    "project_tangent",
    "random_tangent",
    "riemannian_grad",
    "rotate",
    "transport",
    "transport_from0",
    "transport_to0",
    "uniform",
    "wrapped_normal",
]

# (√c|v|)² below which the power series in the square are used.
_SIN_LIMIT = 1.0


def _prepare(c: Scalar, **tensors: Tensor) -> tuple[list[Tensor], Scalar, torch.dtype]:
    """`prepare`, and inside `debug` also a look whether the points, x and y, are on the sphere."""
    out, c, dtype = prepare(c, **tensors)
    if debugging():
        tolerance = torch.finfo(dtype).eps ** 0.5
        for name in sorted({"x", "y"} & tensors.keys()):
            x = out[list(tensors).index(name)].detach()
            scale = c.detach() if isinstance(c, Tensor) else c
            off = float(((scale * dot(x, x)).sqrt() - 1).abs().amax()) if x.numel() else 0.0
            if off > tolerance:
                raise ValueError(
                    f"{name} must lie on the sphere of radius 1/√c, but a point is off by "
                    f"{off:.2g} of the radius: use sphere.project"
                )
    return out, c, dtype


# --- scalar functions, analytic in the squared argument -------------------------------------------


def _cos_sinc_sq(q: Tensor) -> tuple[Tensor, Tensor]:
    """cos √q and sin(√q)/√q for q ≥ 0."""
    small = q < _SIN_LIMIT
    near, z = -torch.where(small, q, 0.0), torch.where(small, _SIN_LIMIT, q).sqrt()
    cos = torch.where(small, radial.cosh_sq(near), torch.cos(z))
    return cos, torch.where(small, radial.sinhc_sq(near), torch.sin(z) / z)


def _angle_sq(q: Tensor, p: Tensor) -> Tensor:
    """θ² for tan²(θ/2) = q/p; smooth at q = 0, gradient 0 at p = 0."""
    near = q <= p
    z = over(torch.where(near, q, p), torch.where(near, p, q))
    half = atanhc_signed(-z)
    return torch.where(near, 4 * z * half * half, (math.pi - 2 * root(z) * half) ** 2)


def _log_gain(q: Tensor, p: Tensor) -> Tensor:
    """θ/sin θ for tan²(θ/2) = q/p; smooth at q = 0, set to 0 at p = 0 where it has a pole."""
    near = q <= p
    z = over(torch.where(near, q, p), torch.where(near, p, q))
    half, r = atanhc_signed(-z), root(z)
    far = over((math.pi - 2 * r * half) * (1 + z), 2 * r)
    return torch.where(near, half * (1 + z), far)


def _polar(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The coordinates of x across the pole, and |x − o|² and |x + o|² up to a common factor.

    `n − w` for the height w is s/(n + w) with s the squared length across: it does not cancel.
    """
    across, w = x[..., :-1], x[..., -1:]
    s = dot(across, across)
    large = root(s + w * w) + w.abs()
    small = over(s, large)
    north = w >= 0
    return across, torch.where(north, small, large), torch.where(north, large, small)


# --- points ---------------------------------------------------------------------------------------


def origin(
    *shape: int,
    c: Scalar = 1.0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """The north pole (0, ..., 0, 1/√c), repeated to the given shape (..., d)."""
    o = torch.zeros(*shape, dtype=dtype, device=device)
    (o,), c, out = prepare(c, o=o)
    return _pole(o, c).to(out)


def _pole(like: Tensor, c: Scalar) -> Tensor:
    """The north pole, shaped like the given points."""
    last = torch.arange(1 - like.shape[-1], 1, device=like.device) == 0
    return torch.where(last, torch.ones_like(like), 0.0) * c**-0.5


def project(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """The point of the sphere nearest to x, `x/(√c|x|)`; the origin, with gradient 0, for x = 0."""
    (x,), c, dtype = prepare(c, x=x)
    return _project(x, c).to(dtype)


def _project(x: Tensor, c: Scalar) -> Tensor:
    n2 = dot(x, x)
    zero = n2 == 0
    unit = x / torch.where(zero, 1.0, n2).sqrt()
    return torch.where(zero, _pole(x, c), unit * c**-0.5)


# --- distances ------------------------------------------------------------------------------------


def dist(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Geodesic distance `(2/√c)·atan2(|x − y|, |x + y|)`, between 0 and π/√c.

    Symmetric and exactly 0 at x = y, where, as at opposite points, it is not differentiable and
    the gradient is 0. Gradients are those of the formula in R^d, which for points on the sphere
    are tangent to it.

    Args:
        x, y: points, (..., d), broadcasting.
        c: curvature +c.
        keepdim: return (..., 1) instead of (...).
    """
    (x, y), c, _ = _prepare(c, x=x, y=y)
    return as_scalar(_dist(x, y, c), keepdim)


def _dist(x: Tensor, y: Tensor, c: Scalar) -> Tensor:
    a, b = x - y, x + y
    return 2 * c**-0.5 * torch.atan2(root(dot(a, a)), root(dot(b, b)))


def dist_sq(x: Tensor, y: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Squared geodesic distance; smooth also at x = y, but not at opposite points."""
    (x, y), c, _ = _prepare(c, x=x, y=y)
    a, b = x - y, x + y
    return as_scalar(_angle_sq(dot(a, a), dot(b, b)) / c, keepdim)


def dist0(x: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Distance from the north pole, `atan2(|x across the pole|, height)/√c`; gradient 0 there."""
    (x,), c, _ = _prepare(c, x=x)
    across = x[..., :-1]
    return as_scalar(c**-0.5 * torch.atan2(root(dot(across, across)), x[..., -1:]), keepdim)


def pairwise_dist(x: Tensor, y: Tensor, c: Scalar = 1.0) -> Tensor:
    """All distances between the rows of x, (..., n, d), and of y, (..., m, d): shape (..., n, m).

    Broadcasts, so that near pairs keep their digits; memory is n·m·d.

    Args:
        x: (..., n, d). y: (..., m, d).
        c: curvature +c, one for each set: a float, a tensor of shape (1,), or (..., 1, 1).
    """
    (x, y), c, _ = _prepare(c, x=x, y=y)
    check_sets(x, y, c)
    if isinstance(c, Tensor) and c.ndim > 1:
        c = c.unsqueeze(-2)
    return _dist(x.unsqueeze(-2), y.unsqueeze(-3), c).squeeze(-1)


# --- exponential and logarithmic maps -------------------------------------------------------------


def exp(x: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Exponential map at x, `cos(√c|v|)·x + sin(√c|v|)/(√c|v|)·v`.

    Error up to 16 eps·max(1, √c|v|), the condition number of the sine.
    """
    (x, v), c, dtype = _prepare(c, x=x, v=v)
    cos, sinc = _cos_sinc_sq(c * dot(v, v))
    return (cos * x + sinc * v).to(dtype)


def log(x: Tensor, y: Tensor, c: Scalar = 1.0) -> Tensor:
    """Logarithmic map: the shortest tangent vector at x whose exponential is y, 0 at y = x.

    `(θ/sin θ)·(y − cos θ·x)`, the difference taken from y − x, or from y + x for obtuse angles.
    At the opposite point no direction is preferred, and the result is 0. Towards it the direction
    has an error of eps/(π − θ), as the points themselves do.
    """
    (x, y), c, dtype = _prepare(c, x=x, y=y)
    a, b = y - x, y + x
    q, p = dot(a, a), dot(b, b)
    near, total = q <= p, q + p
    tangent = torch.where(near, a + over(2 * q, total) * x, b - over(2 * p, total) * x)
    return (_log_gain(q, p) * tangent).to(dtype)


def exp0(v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Exponential map at the north pole, from (..., d − 1) to (..., d).

    `(sin(√c|v|)/(√c|v|)·v, cos(√c|v|)/√c)`; |v| is the distance travelled. Error up to
    16 eps·max(1, √c|v|).
    """
    (v,), c, dtype = prepare(c, v=v)
    cos, sinc = _cos_sinc_sq(c * dot(v, v))
    across, height = sinc * v, cos * c**-0.5
    return torch.cat([across, height], -1).to(dtype)


def log0(x: Tensor, c: Scalar = 1.0) -> Tensor:
    """Logarithmic map at the north pole, from (..., d) to (..., d − 1): `(θ/sin θ)·x across it`.

    0 at the south pole, see `log`.
    """
    (x,), c, dtype = _prepare(c, x=x)
    across, q, p = _polar(x)
    return (_log_gain(q, p) * across).to(dtype)


# --- metric ---------------------------------------------------------------------------------------


def inner(x: Tensor, u: Tensor, v: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Metric at x of two tangent vectors: `u·v`, that of the space around the sphere."""
    (x, u, v), c, _ = _prepare(c, x=x, u=u, v=v)
    return as_scalar(dot(u, v) + torch.zeros_like(x[..., :1]), keepdim)


def norm(x: Tensor, v: Tensor, c: Scalar = 1.0, *, keepdim: bool = False) -> Tensor:
    """Length |v| of a tangent vector at x; its gradient at v = 0 is 0."""
    (x, v), c, _ = _prepare(c, x=x, v=v)
    return as_scalar(root(dot(v, v)) + torch.zeros_like(x[..., :1]), keepdim)


def project_tangent(x: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """The part of v across x, `v − (x·v)x/|x|²`: the nearest tangent vector."""
    (x, v), c, dtype = _prepare(c, x=x, v=v)
    return (v - over(dot(x, v), dot(x, x)) * x).to(dtype)


def riemannian_grad(x: Tensor, g: Tensor, c: Scalar = 1.0) -> Tensor:
    """The Riemannian gradient for a gradient g in R^d: its part across x.

    The tangent vector w with w·v = g·v for all tangent v. Same as `project_tangent`.
    """
    return project_tangent(x, g, c)


# --- transport and isometries ---------------------------------------------------------------------


def transport(x: Tensor, y: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Parallel transport of the tangent vector v from x to y along their geodesic.

    `v − 2(s·v)s/|s|²` with s = x + y: a reflection, which takes x to −y and so the tangent space of
    x to that of y, without changing a length. The identity for opposite points, where s = 0.
    """
    (x, y, v), c, dtype = _prepare(c, x=x, y=y, v=v)
    return _reflect(v, x + y).to(dtype)


def _reflect(v: Tensor, s: Tensor) -> Tensor:
    return v - over(2 * dot(s, v), dot(s, s)) * s


def transport_from0(y: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Parallel transport of v, (..., d − 1), from the north pole to y: a vector (..., d)."""
    if v.shape[-1:] != (y.shape[-1] - 1,):
        raise ValueError(
            "v must have one coordinate fewer than y (a tangent vector at the north pole), "
            f"got shapes {tuple(v.shape)} and {tuple(y.shape)}"
        )
    (y, v), c, dtype = _prepare(c, y=y, v=torch.nn.functional.pad(v, (0, 1)))
    return _reflect(v, y + _pole(y, c)).to(dtype)


def transport_to0(x: Tensor, v: Tensor, c: Scalar = 1.0) -> Tensor:
    """Parallel transport of v from x to the north pole: (..., d) to (..., d − 1)."""
    (x, v), c, dtype = _prepare(c, x=x, v=v)
    return _reflect(v, x + _pole(x, c))[..., :-1].to(dtype)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Apply an orthogonal matrix (d, d): `R x`. Every isometry of the sphere is one."""
    (x, rotation), _, dtype = prepare(1.0, x=x, rotation=rotation)
    if rotation.shape[-2:] != (x.shape[-1], x.shape[-1]):
        raise ValueError(
            f"rotation must be a ({x.shape[-1]}, {x.shape[-1]}) matrix for points of {x.shape[-1]} "
            f"coordinates, got shape {tuple(rotation.shape)}"
        )
    with no_autocast(x):
        return (rotation @ x.unsqueeze(-1)).squeeze(-1).to(dtype)


# --- geodesics and means --------------------------------------------------------------------------


def geodesic(x: Tensor, y: Tensor, t: Tensor | float, c: Scalar = 1.0) -> Tensor:
    """The point at fraction t of the shortest way from x (t = 0) to y (t = 1).

    `exp(x, t·log(x, y))`; t outside [0, 1] goes on round the great circle. A tensor t broadcasts
    against x[..., :1]. Stays at x if y is the opposite point.
    """
    (x, y), c, dtype = _prepare(c, x=x, y=y)
    t = as_fraction(t, x)
    return exp(x, t * log(x, y, c), c).to(dtype)


def midpoint(x: Tensor, y: Tensor, c: Scalar = 1.0) -> Tensor:
    """The point halfway between x and y, `(x + y)/(√c|x + y|)`; the origin for opposite points."""
    (x, y), c, dtype = _prepare(c, x=x, y=y)
    return _project(x + y, c).to(dtype)


def centroid(x: Tensor, weights: Tensor | None = None, c: Scalar = 1.0) -> Tensor:
    """Weighted mean of points brought back to the sphere, `Σ wᵢxᵢ/(√c|Σ wᵢxᵢ|)`.

    Minimises the weighted sum of squared chords |x − y|². The origin where the sum is 0.

    Args:
        x: points, (..., n, d).
        weights: (..., n), not negative, need not sum to 1; equal if None.
        c: curvature +c, broadcasting against the result's [..., :1].

    Returns: (..., d).
    """
    (x,), c, dtype = prepare(c, x=x)
    return _project((as_weights(weights, x) * x).sum(-2), c).to(dtype)


# --- random points --------------------------------------------------------------------------------


def uniform(
    *shape: int,
    c: Scalar = 1.0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Points uniform on the sphere, of the given shape (..., d): projected normal vectors."""
    if not shape or shape[-1] < 1:
        raise ValueError(f"shape must end in a dimension of at least 1, got {shape}")
    return project(torch.randn(*shape, dtype=dtype, device=device, generator=generator), c)


def random_tangent(
    x: Tensor,
    std: float | Tensor = 1.0,
    c: Scalar = 1.0,
    *,
    sample_shape: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Tensor:
    """Normal tangent vectors at x with standard deviation `std` along each direction.

    Returns: sample_shape + (..., d).
    """
    (x,), c, dtype = _prepare(c, x=x)
    shape = (*sample_shape, *x.shape)
    noise = torch.randn(shape, dtype=x.dtype, device=x.device, generator=generator)
    return project_tangent(x, noise * std, c).to(dtype)


def wrapped_normal(
    mean: Tensor,
    std: float | Tensor = 1.0,
    c: Scalar = 1.0,
    *,
    sample_shape: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> Tensor:
    """Samples of the wrapped normal about `mean`: `exp(mean, random_tangent(mean, std))`.

    Returns: sample_shape + (..., d), differentiable in mean, std and c.
    """
    (mean,), c, dtype = prepare(c, mean=mean)
    v = random_tangent(mean, std, c, sample_shape=sample_shape, generator=generator)
    return exp(mean, v, c).to(dtype)
