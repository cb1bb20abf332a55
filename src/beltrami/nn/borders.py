"""The borders of a hyperbolic model: `Lift` brings features in, `Lower` takes them out."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from beltrami.checks import check_choice, check_integer, check_positive
from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, Product, radial
from beltrami.geometry.checks import Scalar, check_curvature
from beltrami.geometry.chord import dot
from beltrami.geometry.radial_map import load_with_scalar, save_with_scalar, sum_to
from beltrami.kernels.launch.dtypes import upcast
from beltrami.nn.layer import Layer, check_manifold

# √c times a score up to which its sinh is taken as it stands, far from overflow.
_NEAR_SCORE = 20.0


class Lift(Layer):
    """Features of a Euclidean model, (..., size), read as points of `manifold`.

    | form    | point                 | domain                                                     |
    |---------|-----------------------|------------------------------------------------------------|
    | "exp0"  | `exp0(scale·x)`       | float32: √c·scale·|x| < 44 (Lorentz), < 15 (ball)          |
    | "space" | space part `scale·x`  | any x; not on the ball                                     |

    With "exp0" the norm of scale·x is the distance from the origin. Lorentz coordinates grow like
    its exponential and overflow beyond the domain, so features of unknown size want a norm before
    this layer, or "space", whose distance grows like a logarithm; ball points beyond the domain are
    pulled to the last radius their dtype holds. As c → 0 both forms become scale·x, on the ball in
    normal coordinates: its points are then scale·x/2, as lengths at its origin count twice.

    Args:
        size: the last dimension.
        manifold: where the points are to live; `manifold_out`, since the input is Euclidean. It
            may have several curvatures, or be a `Product`, factor by factor.
        form: "exp0" or "space".
        scale: a fixed positive multiplier of the features.

    Features of 512 coordinates of variance 1 as points at a distance of about 1 from the origin,
    which is small beside the tokens `Embedding` starts with:

    >>> tokens = Lift(512, manifold=H, scale=512**-0.5)(features)
    """

    accepts = (Lorentz, PoincareBall, Euclidean, Product)

    def __init__(
        self, size: int, *, manifold: Manifold, form: str = "exp0", scale: float = 1.0
    ) -> None:
        super().__init__(Euclidean())
        self.size = check_integer("Lift: size", size)
        self._target = check_manifold(manifold, self.accepts, "Lift", several=True)
        _check_product(self._target, size, "Lift")
        self.form = check_choice("Lift: form", form, _forms("exp0", self._target))
        self.scale = check_positive("Lift: scale", scale)

    @property
    def manifold_out(self) -> Manifold:
        """The manifold of the points."""
        return self._target

    def forward(self, x: Tensor) -> Tensor:
        """Features (..., size) to points (..., size)."""
        self.check_size(x, self.size)
        if self.scale != 1.0:
            x = self.scale * x
        return lift0(x, self._target) if self.form == "exp0" else x

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        return f"{self.size}, manifold={self._target!r}, form={self.form!r}, scale={self.scale:g}"


class Lower(Layer):
    """Points of `manifold` as features of a Euclidean model, (..., size): the inverse of `Lift`.

    `log0(x)/scale` with the form "log0", whose norm is the distance from the origin over scale; the
    space part `x/scale` with "space", not on the ball. As c → 0 both become x/scale; on the ball,
    whose points are half of their normal coordinates then, log0 becomes 2x/scale.

    Args:
        size: the last dimension.
        manifold: where the points live, as in `Lift`; `manifold_out` is Euclidean.
        form: "log0" or "space".
        scale: as given to the `Lift` that is to be inverted.
    """

    accepts = (Lorentz, PoincareBall, Euclidean, Product)
    several = True

    def __init__(
        self, size: int, *, manifold: Manifold, form: str = "log0", scale: float = 1.0
    ) -> None:
        super().__init__(manifold)
        self.size = check_integer("Lower: size", size)
        _check_product(manifold, size, "Lower")
        self.form = check_choice("Lower: form", form, _forms("log0", manifold))
        self.scale = check_positive("Lower: scale", scale)

    @property
    def manifold_out(self) -> Manifold:
        """The features are flat: `Euclidean()`."""
        return Euclidean()

    def forward(self, x: Tensor) -> Tensor:
        """Points (..., size) to features (..., size)."""
        self.check_size(x, self.size)
        y = self.manifold.log0(x) if self.form == "log0" else x
        return y if self.scale == 1.0 else y / self.scale

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        return f"{self.size}, manifold={self.manifold!r}, form={self.form!r}, scale={self.scale:g}"


def lift0(v: Tensor, manifold: Manifold, dtype: torch.dtype | None = None) -> Tensor:
    """`exp0(v)` in `dtype` (that of v unless given), on the ball within the radius it holds.

    A ball ends where its dtype does (√c·r = 15 in float32, 4 in bfloat16), and a point that was
    rounded onto the border is at an infinite distance from all others.
    """
    return manifold.project(manifold.exp0(upcast(v)).to(dtype or v.dtype))


def ball_of_scores(v: Tensor, manifold: PoincareBall, dtype: torch.dtype | None = None) -> Tensor:
    """The point of the ball with the Lorentz coordinates `sinh(√c·v)/√c`, (..., d).

    HNN++ builds its points so. The sinh of a score overflows long before the point has left the
    border of the ball: beyond √c·v = 20 it is taken relative to the largest of the row. In `dtype`
    (that of v unless given), within the radius it holds, as `lift0`. Keeps v and the result for
    the backward pass.
    """
    c = check_curvature(manifold.c_like(v), v.dtype, v.device)
    point: Tensor = _BallOfScores.apply(v, c)
    return manifold.project(point.to(dtype or v.dtype))


class _Sinhs(NamedTuple):
    """Hyperbolic functions of √c·v, over e^top; top is 0 for a row without large scores."""

    sinh: Tensor
    cosh: Tensor
    unit: Tensor  # e^−top, (..., 1)
    square: Tensor  # |sinh|², (..., 1)
    time: Tensor  # √(1 + |sinh|²), (..., 1)


def _sinhs(v: Tensor, c: Scalar) -> _Sinhs:
    w = v * c**0.5
    top = w.detach().abs().amax(-1, keepdim=True)  # a common factor, without effect on the result
    near = top < _NEAR_SCORE
    top = torch.where(near, 0.0, top)
    small, large = torch.where(near, w, 0.0), torch.where(near, 0.0, w)
    size = large.abs()
    grown, shrunk = torch.exp(size - top), torch.exp(-size - top)
    sinh = torch.where(near, torch.sinh(small), torch.copysign(grown - shrunk, large) / 2)
    cosh = torch.where(near, torch.cosh(small), (grown + shrunk) / 2)
    unit, square = torch.exp(-top), dot(sinh, sinh)
    return _Sinhs(sinh, cosh, unit, square, torch.sqrt(unit * unit + square))


class _BallOfScores(torch.autograd.Function):
    """`S/(1 + √(1 + c|S|²))` with S = sinh(√c·v)/√c. Saves its inputs only.

    The step from S to the ball shrinks lengths along S by e^r more than lengths across it, so the
    backward pass treats the two apart, as `geometry.radial_map` does.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(v: Tensor, c: Scalar) -> Tensor:
        f = _sinhs(v, c)
        return f.sinh / ((f.unit + f.time) * c**0.5)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Scalar], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        v, c = load_with_scalar(ctx)
        f = _sinhs(v, c)
        total = f.unit + f.time
        smooth = f.square < f.unit * f.unit  # else S has a direction
        unit = f.sinh / torch.where(smooth, 1.0, f.square).sqrt()  # S itself where smooth
        share = dot(unit, g)
        along = share * torch.where(smooth, -1 / total, f.unit) / (total * f.time)
        by_s = (g - torch.where(smooth, 0.0, share) * unit) / total + along * unit
        gv = by_s * f.cosh if ctx.needs_input_grad[0] else None
        gc = None
        if ctx.needs_input_grad[1] and isinstance(c, Tensor):
            root_c = c**0.5
            small = (v * root_c).abs() < 1
            near = torch.where(small, v, 0.0)
            series = near * near * near * radial.sinhc_sq_prime(c * near * near) * f.unit
            closed = (v * f.cosh - f.sinh / root_c) / (2 * c)
            by_c = dot(by_s, torch.where(small, series, closed))
            rim = dot(g, f.sinh) / (total * root_c) * f.square / (2 * c * f.time * total)
            gc = sum_to(by_c - rim, c)
        return gv, gc


def _factors(manifold: Manifold) -> list[Manifold]:
    if isinstance(manifold, Product):
        return [block.manifold for block in manifold.factors]
    return [manifold]


def _check_product(manifold: Manifold, size: int, layer: str) -> None:
    if not isinstance(manifold, Product):
        return
    if manifold.size != size:
        raise ValueError(
            f"{layer}: points of {manifold!r} have {manifold.size} coordinates, got size={size}"
        )
    for factor in _factors(manifold):
        if not isinstance(factor, Lorentz | PoincareBall | Euclidean):
            raise TypeError(
                f"{layer} works on products of Lorentz, PoincareBall and Euclidean; got {factor!r}"
            )


def _forms(kind: str, manifold: Manifold) -> tuple[str, ...]:
    on_ball = any(isinstance(factor, PoincareBall) for factor in _factors(manifold))
    return (kind,) if on_ball else (kind, "space")
