"""Moving points between curvatures and between models of hyperbolic space."""

from __future__ import annotations

from torch import Tensor

from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, lorentz, poincare
from beltrami.nn.layer import Layer, check_manifold


class ChangeCurvature(Layer):
    """Points of `manifold` as points of `manifold_out`, every scaled distance √c·d unchanged.

    Within a model it is the radial scaling `x·√(c/c')`, which maps one hyperboloid (or ball) onto
    the other (HyboNet, HypFormer and HELM use it between layers). Between models it is preceded by
    the isometry `x/(1 + √c·time(x))` from Lorentz to the ball, or `2x/(1 − c|x|²)` back. The origin
    stays the origin, and the way back is the layer with both manifolds exchanged. Lorentz points
    farther out than the ball's dtype can say (√c·r = 15 in float32) are pulled to its last radius.

    It has no parameters; a learnable curvature on either side gets its gradient. For c = c' it
    changes nothing, and as c and c' → 0 at a fixed ratio it stays a scaling: between Euclidean
    manifolds it is the identity, the case c = c'. Euclidean features become points by `Lift`.

    Args:
        manifold: of the input. manifold_out: of the output. Both hyperbolic, or both Euclidean.
    """

    several = True

    def __init__(self, *, manifold: Manifold, manifold_out: Manifold) -> None:
        super().__init__(manifold)
        self._target = check_manifold(
            manifold_out, self.accepts, "ChangeCurvature", name="manifold_out", several=True
        )
        flat = isinstance(manifold, Euclidean), isinstance(manifold_out, Euclidean)
        if flat[0] != flat[1]:
            border = "Lift" if flat[0] else "Lower"
            raise TypeError(
                f"ChangeCurvature cannot go from {manifold!r} to {manifold_out!r}: use {border}"
            )

    @property
    def manifold_out(self) -> Manifold:
        """The manifold of the output."""
        return self._target

    def forward(self, x: Tensor) -> Tensor:
        """Points (..., d) to points (..., d)."""
        source, target = self.manifold, self._target
        if isinstance(source, Euclidean) or source is target:
            return x
        c, new_c = source.c_like(x), target.c_like(x)
        if isinstance(source, PoincareBall) and isinstance(target, Lorentz):
            x = poincare.to_lorentz(x, c)
        elif isinstance(source, Lorentz) and isinstance(target, PoincareBall):
            x = poincare.from_lorentz(x, c)
        change = lorentz if isinstance(target, Lorentz) else poincare
        # On the ball, rounding may carry a point onto the border; elsewhere this does nothing.
        return target.project(change.change_curvature(x, c, new_c))

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        return f"manifold={self.manifold!r}, manifold_out={self._target!r}"
