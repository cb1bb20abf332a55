r"""The small objects that layers and optimisers hold: a model of geometry with its curvature.

    H = Lorentz(c=1.0)                 # fixed curvature
    H = Lorentz(Curvature(1.0))        # learnable: the module that owns the Curvature registers it
    H.dist(x, y), H.exp0(v), H.centroid(x, weights)

A manifold is a plain Python object: not a module (holding one registers nothing), not a tensor. It
does no geometry of its own; each method is the function of the same name in `lorentz`, `poincare`,
`sphere`, `stereographic`, `solvable` or `product`, called with the curvature. All share the
interface `Manifold`.

With a fixed curvature (a Python number) manifolds are equal by value and hashable; with a learnable
one (a `Curvature` or a tensor) they are equal if they hold the same curvature object.

Several curvatures, one a head or a factor, have shape (k, 1) and belong to the last but one
dimension of points, (..., k, d). In `pairwise_dist`, `centroid` and `frechet_mean`, where that
dimension counts the points of a set, they belong to the one before it: (..., k, n, d).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import ClassVar, Protocol, cast

import torch
from torch import Tensor, nn

from beltrami.geometry import lorentz, poincare, product, solvable, sphere, stereographic
from beltrami.geometry.ball import pairwise_sq
from beltrami.geometry.checks import Scalar, as_scalar, check_curvature, debug, prepare
from beltrami.geometry.chord import dot, root
from beltrami.geometry.curvature import Curvature, natural_curvature
from beltrami.geometry.sets import as_weights, check_sets

__all__ = [
    "Euclidean",
    "Lorentz",
    "Manifold",
    "PoincareBall",
    "Product",
    "Solvable",
    "Sphere",
    "Stereographic",
]


class Manifold(ABC):
    """What every manifold can do. Points and tangent vectors are tensors (..., d).

    Formulas, domains and error bounds are with the functions of the model's own module.
    """

    @property
    @abstractmethod
    def c(self) -> Scalar:
        """The curvature −c now: a float, or a tensor that broadcasts against x[..., :1]."""

    @property
    def shape(self) -> torch.Size:
        """The shape of the curvature, () for a number, (1,) or (k, 1); it is not evaluated."""
        return torch.Size()

    def c_like(self, x: Tensor) -> Scalar:
        """`c` on the device of x, where layers read it."""
        c = self.c
        return c.to(x.device) if isinstance(c, Tensor) else c

    def radius_like(self, x: Tensor) -> Scalar:
        """The radius of curvature `1/√c` on the device of x; infinite in flat space."""
        c = self.c_like(x)
        return math.inf if not isinstance(c, Tensor) and c == 0 else c**-0.5

    @abstractmethod
    def dist(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        """Geodesic distance, (...); its gradient at x = y is 0."""

    @abstractmethod
    def dist_sq(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        """Squared geodesic distance, smooth at x = y."""

    @abstractmethod
    def dist0(self, x: Tensor, *, keepdim: bool = False) -> Tensor:
        """Distance from the origin."""

    @abstractmethod
    def pairwise_dist(self, x: Tensor, y: Tensor) -> Tensor:
        """All distances between the rows of x, (..., n, d), and of y, (..., m, d): (..., n, m)."""

    @abstractmethod
    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """Exponential map at x: where the geodesic that starts with velocity v is at time 1."""

    @abstractmethod
    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """Logarithmic map: the tangent vector at x whose exponential is y."""

    @abstractmethod
    def exp0(self, v: Tensor) -> Tensor:
        """Exponential map at the origin, in an orthonormal frame: |v| is the distance travelled."""

    @abstractmethod
    def log0(self, x: Tensor) -> Tensor:
        """Logarithmic map at the origin, in the frame of `exp0`."""

    @abstractmethod
    def transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """Parallel transport of the tangent vector v from x to y along their geodesic."""

    @abstractmethod
    def transport_from0(self, y: Tensor, v: Tensor) -> Tensor:
        """Parallel transport from the origin to y."""

    @abstractmethod
    def transport_to0(self, x: Tensor, v: Tensor) -> Tensor:
        """Parallel transport from x to the origin."""

    @abstractmethod
    def inner(self, x: Tensor, u: Tensor, v: Tensor, *, keepdim: bool = False) -> Tensor:
        """Riemannian metric at x of two tangent vectors, (...)."""

    @abstractmethod
    def norm(self, x: Tensor, v: Tensor, *, keepdim: bool = False) -> Tensor:
        """Length of a tangent vector at x, (...)."""

    @abstractmethod
    def geodesic(self, x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
        """The point at fraction t of the geodesic from x to y."""

    @abstractmethod
    def midpoint(self, x: Tensor, y: Tensor) -> Tensor:
        """The point halfway between x and y."""

    @abstractmethod
    def centroid(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Weighted mean of points (..., n, d) in closed form; weights (..., n)."""

    @abstractmethod
    def riemannian_grad(self, x: Tensor, g: Tensor) -> Tensor:
        """The tangent vector w at x with ⟨w, v⟩_x = g·v for every tangent vector v."""

    @abstractmethod
    def retract(self, x: Tensor, v: Tensor) -> Tensor:
        """A cheap step from x along v that agrees with `exp` to first order."""

    def project(self, x: Tensor) -> Tensor:
        """The point nearest to x; x itself where every tensor is a point."""
        return x

    def project_tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """The tangent vector at x nearest to v; v itself where every tensor is one."""
        return v.expand(torch.broadcast_shapes(x.shape, v.shape))

    def tangent0_size(self, size: int) -> int:
        """Coordinates of a tangent vector at the origin (`exp0`, `log0`), points having `size`."""
        return size

    def origin(
        self,
        *shape: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """The origin, repeated to the given shape (..., d)."""
        return torch.zeros(*shape, dtype=dtype, device=device)

    @torch.no_grad()
    def random(
        self,
        *shape: int,
        std: float = 1.0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Points of a wrapped normal about the origin, shape (..., d), without gradient."""
        size = *shape[:-1], self.tangent0_size(shape[-1])
        v = torch.randn(*size, dtype=dtype, device=device, generator=generator)
        return self.project(self.exp0(std * v))

    def check_point(self, x: Tensor) -> None:
        """Raise `ValueError` unless all rows of x are points. Waits for the device."""
        with debug():
            self.dist0(x)


# --- models with a curvature ----------------------------------------------------------------------


class _Functions(Protocol):
    """The functions a model's module must have; the type checker holds the modules to it."""

    def dist(self, x: Tensor, y: Tensor, c: Scalar, /, *, keepdim: bool = ...) -> Tensor: ...
    def dist_sq(self, x: Tensor, y: Tensor, c: Scalar, /, *, keepdim: bool = ...) -> Tensor: ...
    def dist0(self, x: Tensor, c: Scalar, /, *, keepdim: bool = ...) -> Tensor: ...
    def pairwise_dist(self, x: Tensor, y: Tensor, c: Scalar, /) -> Tensor: ...
    def exp(self, x: Tensor, v: Tensor, c: Scalar, /) -> Tensor: ...
    def log(self, x: Tensor, y: Tensor, c: Scalar, /) -> Tensor: ...
    def exp0(self, v: Tensor, c: Scalar, /) -> Tensor: ...
    def log0(self, x: Tensor, c: Scalar, /) -> Tensor: ...
    def transport(self, x: Tensor, y: Tensor, v: Tensor, c: Scalar, /) -> Tensor: ...
    def transport_from0(self, y: Tensor, v: Tensor, c: Scalar, /) -> Tensor: ...
    def transport_to0(self, x: Tensor, v: Tensor, c: Scalar, /) -> Tensor: ...
    def inner(
        self, x: Tensor, u: Tensor, v: Tensor, c: Scalar, /, *, keepdim: bool = ...
    ) -> Tensor: ...
    def norm(self, x: Tensor, v: Tensor, c: Scalar, /, *, keepdim: bool = ...) -> Tensor: ...
    def geodesic(self, x: Tensor, y: Tensor, t: Tensor | float, c: Scalar, /) -> Tensor: ...
    def midpoint(self, x: Tensor, y: Tensor, c: Scalar, /) -> Tensor: ...
    def centroid(self, x: Tensor, weights: Tensor | None, c: Scalar, /) -> Tensor: ...
    def riemannian_grad(self, x: Tensor, g: Tensor, c: Scalar, /) -> Tensor: ...


class _Curved(Manifold):
    """Forwards to the functions of a module, with the curvature they are to be called with."""

    _functions: ClassVar[_Functions]
    _signed: ClassVar[bool] = False
    _bordered: ClassVar[bool] = False
    _argument: ClassVar[str] = "c"

    def __init__(self, c: Scalar | Curvature = 1.0) -> None:
        self._given: Scalar | Curvature = c
        if isinstance(c, Curvature):
            return
        dtype, device = (c.dtype, c.device) if isinstance(c, Tensor) else (torch.float32, None)
        checked = check_curvature(
            c, dtype, device or torch.device("cpu"), name=self._argument, signed=self._signed
        )
        if not isinstance(c, Tensor):
            self._given = checked

    @property
    def _k(self) -> Scalar:
        """The number the functions take."""
        return self._given.value if isinstance(self._given, Curvature) else self._given

    def _on(self, x: Tensor) -> Scalar:
        """That number for points x: a `Curvature` is read on their device."""
        given = self._given
        return given.evaluate(x.device)[0] if isinstance(given, Curvature) else given

    @property
    def c(self) -> Scalar:
        return self._k

    def c_like(self, x: Tensor) -> Scalar:
        given = self._given
        if isinstance(given, Curvature):
            return given.evaluate(x.device)[0]
        return super().c_like(x)

    def radius_like(self, x: Tensor) -> Scalar:
        given = self._given
        if isinstance(given, Curvature):
            return given.radius_on(x.device)
        return super().radius_like(x)

    @property
    def shape(self) -> torch.Size:
        given = self._given
        if isinstance(given, Curvature):
            return torch.Size((1,) if given.size == 1 else (given.size, 1))
        return given.shape if isinstance(given, Tensor) else torch.Size()

    @property
    def curvature(self) -> Curvature | None:
        """The `Curvature` the manifold was made with, if it was made with one."""
        return self._given if isinstance(self._given, Curvature) else None

    @property
    def learnable(self) -> bool:
        """Whether the curvature may change: a tensor, or a `Curvature` that is learnable."""
        given = self._given
        return given.learnable if isinstance(given, Curvature) else isinstance(given, Tensor)

    @property
    def _identity(self) -> Hashable:
        """What two equal manifolds share: the numbers if fixed, the object if learnable."""
        given = self._given
        if self.learnable or isinstance(given, Tensor):
            return id(given)
        return tuple(given.value.flatten().tolist()) if isinstance(given, Curvature) else given

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, _Curved):
            return NotImplemented
        return self._identity == other._identity

    def __hash__(self) -> int:
        return hash((type(self), self._identity))

    def __repr__(self) -> str:
        given = self._given
        if isinstance(given, Tensor):
            return f"{type(self).__name__}({self._argument}=tensor of shape {tuple(given.shape)})"
        return f"{type(self).__name__}({self._argument}={given})"

    def dist(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        return self._functions.dist(x, y, self._on(x), keepdim=keepdim)

    def dist_sq(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        return self._functions.dist_sq(x, y, self._on(x), keepdim=keepdim)

    def dist0(self, x: Tensor, *, keepdim: bool = False) -> Tensor:
        return self._functions.dist0(x, self._on(x), keepdim=keepdim)

    def pairwise_dist(self, x: Tensor, y: Tensor) -> Tensor:
        k = self._on(x)
        if isinstance(k, Tensor) and k.ndim > 1:
            k = k.unsqueeze(-2)  # one curvature a set
        return self._functions.pairwise_dist(x, y, k)

    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        return self._functions.exp(x, v, self._on(x))

    def log(self, x: Tensor, y: Tensor) -> Tensor:
        return self._functions.log(x, y, self._on(x))

    def exp0(self, v: Tensor) -> Tensor:
        return self._functions.exp0(v, self._on(v))

    def log0(self, x: Tensor) -> Tensor:
        return self._functions.log0(x, self._on(x))

    def transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        return self._functions.transport(x, y, v, self._on(x))

    def transport_from0(self, y: Tensor, v: Tensor) -> Tensor:
        return self._functions.transport_from0(y, v, self._on(y))

    def transport_to0(self, x: Tensor, v: Tensor) -> Tensor:
        return self._functions.transport_to0(x, v, self._on(x))

    def inner(self, x: Tensor, u: Tensor, v: Tensor, *, keepdim: bool = False) -> Tensor:
        return self._functions.inner(x, u, v, self._on(x), keepdim=keepdim)

    def norm(self, x: Tensor, v: Tensor, *, keepdim: bool = False) -> Tensor:
        return self._functions.norm(x, v, self._on(x), keepdim=keepdim)

    def geodesic(self, x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
        return self._functions.geodesic(x, y, t, self._on(x))

    def midpoint(self, x: Tensor, y: Tensor) -> Tensor:
        return self._functions.midpoint(x, y, self._on(x))

    def centroid(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        return self._functions.centroid(x, weights, self._on(x))

    def riemannian_grad(self, x: Tensor, g: Tensor) -> Tensor:
        return self._functions.riemannian_grad(x, g, self._on(x))

    def retract(self, x: Tensor, v: Tensor) -> Tensor:
        (x, v), _, dtype = prepare(1.0, x=x, v=v)
        if self._bordered:  # rounding to half precision may carry a point onto the border
            return self.project((x + v).to(dtype))
        return self.project(x + v).to(dtype)


class Lorentz(_Curved):
    """Hyperbolic space of curvature −c in space-only Lorentz coordinates, see `lorentz`.

    Every tensor is a point and every vector a tangent vector, so `project` and `project_tangent`
    change nothing.

    Args:
        c: positive float, tensor (broadcasting against x[..., :1]) or `Curvature`.
    """

    _functions: ClassVar[_Functions] = lorentz

    @classmethod
    def natural(cls, width: int, kappa: float = 1.0) -> Lorentz:
        """Fixed curvature c = κ/width; see `Curvature.natural`, which is the learnable one."""
        return cls(natural_curvature(width, kappa))

    def frechet_mean(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """The point of least weighted squared distance to points (..., n, d), by iteration."""
        return lorentz.frechet_mean(x, weights, self._on(x))


class PoincareBall(_Curved):
    """Hyperbolic space of curvature −c in the ball |x| < 1/√c, see `poincare`.

    Args:
        c: positive float, tensor (broadcasting against x[..., :1]) or `Curvature`.
    """

    _functions: ClassVar[_Functions] = poincare
    _bordered: ClassVar[bool] = True

    def project(self, x: Tensor) -> Tensor:
        return poincare.project(x, self._on(x))

    def frechet_mean(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """The point of least weighted squared distance to points (..., n, d), by iteration."""
        return poincare.frechet_mean(x, weights, self._on(x))


class Solvable(_Curved):
    """Hyperbolic space of curvature −c as a solvable group, in coordinates (a, f), see `solvable`.

    The coordinates have no unit: only lengths depend on c. Every tensor is a point.

    Args:
        c: positive float, tensor (broadcasting against x[..., :1]) or `Curvature`.
    """

    _functions: ClassVar[_Functions] = cast(_Functions, solvable)  # exp to centroid take no c

    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        return solvable.exp(x, v)

    def log(self, x: Tensor, y: Tensor) -> Tensor:
        return solvable.log(x, y)

    def transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        return solvable.transport(x, y, v)

    def geodesic(self, x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
        return solvable.geodesic(x, y, t)

    def midpoint(self, x: Tensor, y: Tensor) -> Tensor:
        return solvable.midpoint(x, y)

    def centroid(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        return solvable.centroid(x, weights)


class Sphere(_Curved):
    """The sphere of radius 1/√c (curvature +c) in ambient coordinates, see `sphere`.

    Points have one coordinate more than the sphere has dimensions; the origin is the north pole.

    Args:
        c: positive float, tensor (broadcasting against x[..., :1]) or `Curvature`.
    """

    _functions: ClassVar[_Functions] = sphere

    @property
    def c(self) -> Scalar:
        """The curvature +c now (the one manifold whose c is not −curvature)."""
        return self._k

    def project(self, x: Tensor) -> Tensor:
        return sphere.project(x, self._on(x))

    def project_tangent(self, x: Tensor, v: Tensor) -> Tensor:
        return sphere.project_tangent(x, v, self._on(x))

    def tangent0_size(self, size: int) -> int:
        return size - 1

    def origin(
        self,
        *shape: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Tensor:
        k = self._k
        if device is None and isinstance(k, Tensor):
            device = k.device
        return sphere.origin(*shape, c=k, dtype=dtype, device=device)


class Stereographic(_Curved):
    """The space of constant curvature κ of any sign, smooth through κ = 0, see `stereographic`.

    Args:
        kappa: the curvature, a float or a tensor (broadcasting against x[..., :1]); for geometry
            that is itself learned, a parameter of shape (1,) that its owner registers. Not a
            `Curvature`, whose sign is fixed.
    """

    _functions: ClassVar[_Functions] = stereographic
    _bordered: ClassVar[bool] = True
    _signed: ClassVar[bool] = True
    _argument: ClassVar[str] = "kappa"

    def __init__(self, kappa: Scalar) -> None:
        if isinstance(kappa, Curvature):
            raise TypeError(
                "kappa must be a float or a tensor: a Curvature cannot change its sign, use "
                "PoincareBall(curvature) or Sphere(curvature)"
            )
        super().__init__(kappa)

    @property
    def kappa(self) -> Scalar:
        """The sectional curvature κ now, of either sign."""
        return self._k

    @property
    def c(self) -> Scalar:
        return -self._k

    def project(self, x: Tensor) -> Tensor:
        return stereographic.project(x, self._on(x))


# --- flat space -----------------------------------------------------------------------------------


class Euclidean(Manifold):
    """Flat space: every method is the textbook formula. The twin of every hyperbolic model."""

    @property
    def c(self) -> Scalar:
        return 0.0

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) or NotImplemented

    def __hash__(self) -> int:
        return hash(Euclidean)

    def __repr__(self) -> str:
        return "Euclidean()"

    def dist(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        return root(self.dist_sq(x, y, keepdim=keepdim))

    def dist_sq(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        (x, y), _, _ = prepare(1.0, x=x, y=y)
        return _square(x - y, keepdim)

    def dist0(self, x: Tensor, *, keepdim: bool = False) -> Tensor:
        (x,), _, _ = prepare(1.0, x=x)
        return root(_square(x, keepdim))

    def pairwise_dist(self, x: Tensor, y: Tensor) -> Tensor:
        (x, y), _, _ = prepare(1.0, x=x, y=y)
        check_sets(x, y, 1.0)
        return root(pairwise_sq(x, y))

    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        (x, v), _, dtype = prepare(1.0, x=x, v=v)
        return (x + v).to(dtype)

    def log(self, x: Tensor, y: Tensor) -> Tensor:
        (x, y), _, dtype = prepare(1.0, x=x, y=y)
        return (y - x).to(dtype)

    def exp0(self, v: Tensor) -> Tensor:
        prepare(1.0, v=v)
        return v

    def log0(self, x: Tensor) -> Tensor:
        prepare(1.0, x=x)
        return x

    def transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        *_, dtype = prepare(1.0, x=x, y=y, v=v)
        return v.to(dtype).expand(torch.broadcast_shapes(x.shape, y.shape, v.shape))

    def transport_from0(self, y: Tensor, v: Tensor) -> Tensor:
        *_, dtype = prepare(1.0, y=y, v=v)
        return v.to(dtype).expand(torch.broadcast_shapes(y.shape, v.shape))

    def transport_to0(self, x: Tensor, v: Tensor) -> Tensor:
        *_, dtype = prepare(1.0, x=x, v=v)
        return v.to(dtype).expand(torch.broadcast_shapes(x.shape, v.shape))

    def inner(self, x: Tensor, u: Tensor, v: Tensor, *, keepdim: bool = False) -> Tensor:
        (x, u, v), _, _ = prepare(1.0, x=x, u=u, v=v)
        product = dot(u, v).expand(
            torch.broadcast_shapes(x[..., :1].shape, u[..., :1].shape, v[..., :1].shape)
        )
        return as_scalar(product, keepdim)

    def norm(self, x: Tensor, v: Tensor, *, keepdim: bool = False) -> Tensor:
        return root(self.inner(x, v, v, keepdim=keepdim))

    def geodesic(self, x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
        (x, y), _, dtype = prepare(1.0, x=x, y=y)
        return ((1 - t) * x + t * y).to(dtype)

    def midpoint(self, x: Tensor, y: Tensor) -> Tensor:
        return self.geodesic(x, y, 0.5)

    def centroid(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        (x,), _, dtype = prepare(1.0, x=x)
        w = as_weights(weights, x)
        return ((w * x).sum(-2) / w.sum(-2)).to(dtype)

    def frechet_mean(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """The centroid, which in flat space minimises the squared distances."""
        return self.centroid(x, weights)

    def riemannian_grad(self, x: Tensor, g: Tensor) -> Tensor:
        return self.transport_from0(x, g)

    def retract(self, x: Tensor, v: Tensor) -> Tensor:
        return self.exp(x, v)


def _square(x: Tensor, keepdim: bool) -> Tensor:
    return (x * x).sum(-1, keepdim=keepdim)


# --- products -------------------------------------------------------------------------------------


class Product(Manifold):
    """A product of manifolds, its points side by side in the last dimension, see `product`.

    >>> Product([(Lorentz(1.0), 8), (Euclidean(), 16)])                # points (..., 24)
    >>> Product([(Lorentz(Curvature(size=64)), 8, 64)], p=1)           # 64 factors of 8 dimensions

    Args:
        factors: `(manifold, size)` or `(manifold, size, count)` each; size is the number of
            coordinates of a point of one factor.
        p: how factor distances are combined, from 1 to inf; 2 is the Riemannian product.
    """

    def __init__(self, factors: product.Factors, p: float = 2.0) -> None:
        self.factors = product.blocks(factors)
        product.combine(torch.zeros(1), p)  # checks p
        self.p = float(p)

    @property
    def c(self) -> Scalar:
        """Raises: the factors have a curvature each."""
        raise AttributeError(
            "a product has no single curvature: use [block.manifold.c for block in P.factors]"
        )

    @property
    def size(self) -> int:
        """Coordinates of a point: the last dimension."""
        return sum(block.size * block.count for block in self.factors)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Product):
            return NotImplemented
        return (self.factors, self.p) == (other.factors, other.p)

    def __hash__(self) -> int:
        return hash((Product, self.factors, self.p))

    def __repr__(self) -> str:
        inside = ", ".join(
            f"({b.manifold!r}, {b.size}{f', {b.count}' if b.count > 1 else ''})"
            for b in self.factors
        )
        return f"Product([{inside}], p={self.p:g})"

    def split(self, x: Tensor) -> list[Tensor]:
        """Points of each block of factors: (..., size), or (..., count, size)."""
        return product.split(x, self.factors)

    def dist(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        return product.dist(x, y, self.factors, p=self.p, keepdim=keepdim)

    def dist_sq(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        return product.dist_sq(x, y, self.factors, p=self.p, keepdim=keepdim)

    def dist0(self, x: Tensor, *, keepdim: bool = False) -> Tensor:
        return product.dist0(x, self.factors, p=self.p, keepdim=keepdim)

    def pairwise_dist(self, x: Tensor, y: Tensor) -> Tensor:
        return product.pairwise_dist(x, y, self.factors, p=self.p)

    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        return product.exp(x, v, self.factors)

    def log(self, x: Tensor, y: Tensor) -> Tensor:
        return product.log(x, y, self.factors)

    def exp0(self, v: Tensor) -> Tensor:
        return product.exp0(v, self.factors)

    def log0(self, x: Tensor) -> Tensor:
        return product.log0(x, self.factors)

    def transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        return product.transport(x, y, v, self.factors)

    def transport_from0(self, y: Tensor, v: Tensor) -> Tensor:
        return product.transport_from0(y, v, self.factors)

    def transport_to0(self, x: Tensor, v: Tensor) -> Tensor:
        return product.transport_to0(x, v, self.factors)

    def inner(self, x: Tensor, u: Tensor, v: Tensor, *, keepdim: bool = False) -> Tensor:
        return product.inner(x, u, v, self.factors, keepdim=keepdim)

    def norm(self, x: Tensor, v: Tensor, *, keepdim: bool = False) -> Tensor:
        return product.norm(x, v, self.factors, p=self.p, keepdim=keepdim)

    def geodesic(self, x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
        return product.geodesic(x, y, t, self.factors)

    def midpoint(self, x: Tensor, y: Tensor) -> Tensor:
        return product.midpoint(x, y, self.factors)

    def centroid(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        return product.centroid(x, weights, self.factors)

    def riemannian_grad(self, x: Tensor, g: Tensor) -> Tensor:
        return product.riemannian_grad(x, g, self.factors)

    def retract(self, x: Tensor, v: Tensor) -> Tensor:
        return product.retract(x, v, self.factors)

    def project(self, x: Tensor) -> Tensor:
        return product.project(x, self.factors)

    def project_tangent(self, x: Tensor, v: Tensor) -> Tensor:
        return product.project_tangent(x, v, self.factors)

    def tangent0_size(self, size: int) -> int:
        if size != self.size:
            raise ValueError(f"points of this product have {self.size} coordinates, got {size}")
        return sum(b.manifold.tangent0_size(b.size) * b.count for b in self.factors)

    def origin(
        self,
        *shape: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """The factors' origins side by side; the shape must end in `size`."""
        return self.exp0(
            torch.zeros(*shape[:-1], self.tangent0_size(shape[-1]), dtype=dtype, device=device)
        )


# --- what can be learned --------------------------------------------------------------------------


def learnable_curvatures(manifold: Manifold) -> list[Curvature | Tensor]:
    """What a manifold could learn: each `Curvature`, or each tensor it was made with."""
    if isinstance(manifold, Product):
        return [c for block in manifold.factors for c in learnable_curvatures(block.manifold)]
    curvature = getattr(manifold, "curvature", None)
    if isinstance(curvature, Curvature):
        return [curvature] if curvature.learnable else []
    given = getattr(manifold, "_given", None)
    return [given] if isinstance(given, Tensor) and given.requires_grad else []


def manifolds_of(module: nn.Module) -> list[Manifold]:
    """The manifolds a module, ours or not, says it works on or its own parameters lie on."""
    places = (getattr(module, "manifold", None), getattr(module, "manifold_out", None))
    candidates = (*places, *getattr(module, "manifold_of", {}).values())
    return [manifold for manifold in candidates if isinstance(manifold, Manifold)]


def check_model(model: nn.Module) -> None:
    """Raise `ValueError` if a layer's learnable curvature does not belong to the model.

    A manifold is a plain object, so a `Curvature` that no module registers, or a curvature tensor
    that is no parameter or buffer, is neither trained, nor saved, nor moved to another device.
    Register it once: `self.curvature = Curvature(1.0)`. Copies of a layer made by `deepcopy` have
    curvatures of their own: build layers in a loop instead.
    """
    owned = {id(module) for module in model.modules()}
    owned |= {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    for name, module in model.named_modules():
        for manifold in manifolds_of(module):
            for curvature in learnable_curvatures(manifold):
                if id(curvature) not in owned:
                    what = type(curvature).__name__
                    raise ValueError(
                        f"{name or type(module).__name__} works on {manifold!r}, whose {what} "
                        "no module of the model has registered, so it is not trained, saved or "
                        "moved: set it as an attribute of the model, once (of a layer in a "
                        "Sequential: model[0].curvature = c)"
                    )
