"""Geometry: pure functions on tensors, and the small manifold objects over them.

    from beltrami.geometry import lorentz as L, Lorentz, Curvature

The functions are in one module a model (`lorentz`, `poincare`, `klein`, `sphere`, `stereographic`,
`solvable`, `product`) or a topic (`cones`, `hyperplane`); `radial` has the scalar functions they
are made of. Imports torch and nothing else.
"""

from beltrami.geometry import (
    cones,
    hyperplane,
    klein,
    lorentz,
    poincare,
    product,
    radial,
    solvable,
    sphere,
    stereographic,
)
from beltrami.geometry.checks import debug
from beltrami.geometry.curvature import Curvature, shared_curvatures, shares_curvatures
from beltrami.geometry.manifold import (
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Solvable,
    Sphere,
    Stereographic,
)

__all__ = [
    "Curvature",
    "Euclidean",
    "Lorentz",
    "Manifold",
    "PoincareBall",
    "Product",
    "Solvable",
    "Sphere",
    "Stereographic",
    "cones",
    "debug",
    "hyperplane",
    "klein",
    "lorentz",
    "poincare",
    "product",
    "radial",
    "shared_curvatures",
    "shares_curvatures",
    "solvable",
    "sphere",
    "stereographic",
]
