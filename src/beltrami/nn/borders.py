"""The borders of a hyperbolic model: `Lift` brings features in, `Lower` takes them out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from beltrami.geometry import Euclidean, Manifold, PoincareBall, poincare, radial
from beltrami.geometry.chord import dot
from beltrami.nn.layer import Layer, check_choice, check_count, check_manifold

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
    pulled to the last radius their dtype holds. As c → 0 both forms become scale·x.

    Args:
        size: the last dimension.
        manifold: where the points are to live; `manifold_out`, since the input is Euclidean.
        form: "exp0" or "space".
        scale: a fixed positive multiplier of the features.

    >>> tokens = Lift(512, manifold=H, scale=512**-0.5)(features)
    """

    def __init__(
        self, size: int, *, manifold: Manifold, form: str = "exp0", scale: float = 1.0
    ) -> None:
        super().__init__(Euclidean())
        self.size = check_count(size, "size", "Lift")
        self._target = check_manifold(manifold, self.accepts, "Lift")
        self.form = check_choice(form, "form", _forms("exp0", self._target), "Lift")
        self.scale = check_positive(scale, "scale", "Lift")

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
        """The arguments."""
        return f"{self.size}, manifold={self._target!r}, form={self.form!r}, scale={self.scale:g}"


class Lower(Layer):
    """Points of `manifold` as features of a Euclidean model, (..., size): the inverse of `Lift`.

    `log0(x)/scale` with the form "log0", whose norm is the distance from the origin over scale; the
    space part `x/scale` with "space", not on the ball. As c → 0 both become x/scale.

    Args:
        size: the last dimension.
        manifold: where the points live; `manifold_out` is Euclidean.
        form: "log0" or "space".
        scale: as given to the `Lift` that is to be inverted.
    """

    def __init__(
        self, size: int, *, manifold: Manifold, form: str = "log0", scale: float = 1.0
    ) -> None:
        super().__init__(manifold)
        self.size = check_count(size, "size", "Lower")
        self.form = check_choice(form, "form", _forms("log0", manifold), "Lower")
        self.scale = check_positive(scale, "scale", "Lower")

    @property
    def manifold_out(self) -> Manifold:
        """`Euclidean()`."""
        return Euclidean()

    def forward(self, x: Tensor) -> Tensor:
        """Points (..., size) to features (..., size)."""
        self.check_size(x, self.size)
        y = self.manifold.log0(x) if self.form == "log0" else x
        return y if self.scale == 1.0 else y / self.scale

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.size}, manifold={self.manifold!r}, form={self.form!r}, scale={self.scale:g}"


def lift0(v: Tensor, manifold: Manifold, dtype: torch.dtype | None = None) -> Tensor:
    """`exp0(v)` in `dtype` (that of v unless given), on the ball within the radius it holds.

    A ball ends where its dtype does (√c·r = 15 in float32, 4 in bfloat16), and a point that was
    rounded onto the border is at an infinite distance from all others.
    """
    wide = v.to(torch.promote_types(v.dtype, torch.float32))
    return manifold.project(manifold.exp0(wide).to(dtype or v.dtype))


def ball_of_scores(v: Tensor, manifold: PoincareBall) -> Tensor:
    """The point of the ball with the Lorentz coordinates `sinh(√c·v)/√c`, (..., d).

    HNN++ builds its points so. The sinh of a score overflows long before the point has left the
    border of the ball: beyond √c·v = 20 it is taken relative to the largest of the row. On the
    ball within the radius the dtype holds, as `lift0`.
    """
    c = manifold.c
    w = v * c**0.5
    top = w.detach().abs().amax(-1, keepdim=True)  # a common factor, without effect on the result
    near = top < _NEAR_SCORE
    small, large = torch.where(near, v, 0.0), torch.where(near, 0.0, w)
    close = poincare.from_lorentz(small * radial.sinhc_sq(c * small * small), c)
    top = torch.where(near, 0.0, top)
    size = large.abs()
    far = torch.copysign(torch.exp(size - top) - torch.exp(-size - top), large) / 2
    rest = torch.exp(-top)
    far = far / ((rest + torch.sqrt(rest * rest + dot(far, far))) * c**0.5)
    return manifold.project(torch.where(near, close, far))


def _forms(kind: str, manifold: Manifold) -> tuple[str, ...]:
    return (kind,) if isinstance(manifold, PoincareBall) else (kind, "space")


def check_positive(value: float, name: str, layer: str) -> float:
    """A positive number given to a constructor."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{layer}: {name} must be a number, got {type(value).__name__}")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{layer}: {name} must be positive and finite, got {value}")
    return float(value)
