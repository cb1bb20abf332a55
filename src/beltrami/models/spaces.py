"""The space of a model, by the name that its config has for it."""

from __future__ import annotations

from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, PoincareBall


def make_space(geometry: str, curvature: float, learn: bool) -> tuple[Manifold, Curvature | None]:
    """The manifold, and its learnable curvature, which the model is to own; None where fixed."""
    if geometry == "euclidean":
        return Euclidean(), None
    learned = Curvature(curvature) if learn else None
    kind = Lorentz if geometry == "lorentz" else PoincareBall
    return kind(learned or curvature), learned
