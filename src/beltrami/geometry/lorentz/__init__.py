r"""The Lorentz (hyperboloid) model in space-only coordinates.

Hyperbolic space of curvature −c is the upper sheet `t² − |x|² = 1/c`. A point is stored by its
space part `x`, a tensor of shape (..., d); its time coordinate `t = √(1/c + |x|²)` is derived where
it is needed. So every tensor is a valid point, nothing can leave the manifold, and shapes are those
of the Euclidean model. The origin is x = 0. A tangent vector is likewise given by its space part.

Conventions shared by all functions: `c` is a positive float or a tensor that broadcasts against
`x[..., :1]`; all other dimensions broadcast; scalar results drop the last dimension unless
`keepdim=True`. Half-precision inputs are computed in float32; points and tangent vectors come back
in the input's dtype, scalars in float32. `T(x) = √(1 + c|x|²)` below is time in units of 1/√c.

Domain: √c·radius below 44 in float32 and 355 in float64, where |x|² still fits the dtype.

Error bounds are relative, in units of the dtype's eps, for √c·radius up to 40, as measured in
`docs/numerics.md`: *well conditioned* is 16 eps, *near pairs* is 16 eps·cosh(√c·radius), which is
what rounding the coordinates of two close points far out costs any formula.
"""

from beltrami.geometry.lorentz.core import (
    boost,
    change_curvature,
    chord_sq,
    dist,
    dist0,
    dist_sq,
    excess_time,
    exp,
    exp0,
    geodesic,
    inner,
    log,
    log0,
    midpoint,
    minkowski,
    norm,
    riemannian_grad,
    rotate,
    time,
    transport,
    transport_from0,
    transport_to0,
)
from beltrami.geometry.lorentz.means import centroid, frechet_mean
from beltrami.geometry.lorentz.pairwise import pairwise_dist
from beltrami.geometry.lorentz.sampling import (
    uniform_ball,
    wrapped_normal,
    wrapped_normal_log_prob,
)

__all__ = [
    "boost",
    "centroid",
    "change_curvature",
    "chord_sq",
    "dist",
    "dist0",
    "dist_sq",
    "excess_time",
    "exp",
    "exp0",
    "frechet_mean",
    "geodesic",
    "inner",
    "log",
    "log0",
    "midpoint",
    "minkowski",
    "norm",
    "pairwise_dist",
    "riemannian_grad",
    "rotate",
    "time",
    "transport",
    "transport_from0",
    "transport_to0",
    "uniform_ball",
    "wrapped_normal",
    "wrapped_normal_log_prob",
]
