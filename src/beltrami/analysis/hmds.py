r"""Hyperbolic multidimensional scaling (Sala et al., 2018): points from distances alone.

For points of the hyperboloid, `cosh(√c·d) = t·t' − x·x'`. So the matrix of these has one positive
eigenvalue, of whose vector the time coordinates are made, and d negative ones, which give the space
parts. Of other distances there are more, and the largest k are kept.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from beltrami.analysis.lowering import Lowered, lowered_distances
from beltrami.analysis.matrices import check_distances, principal_coordinates, symmetric
from beltrami.checks import check_integer, check_positive

MOST_RADIUS = 50.0  # √c·d beyond which float64 does not hold the eigenvalues of both ends


def hmds(distances: Tensor, c: float = 1.0, *, components: int = 2) -> Lowered:
    """Lorentz points whose distances are near the given ones, and equal to 1e-6 where they can be.

    Args:
        distances: (n, n), symmetric, 0 on the diagonal.
        c: curvature −c of the space to embed in. Distances are not scaled: double distances are
            those of four times the curvature.
        components: dimensions.
    """
    check_integer("components", components)
    check_distances(distances)
    if components >= len(distances):
        raise ValueError(
            f"{len(distances)} points have {len(distances) - 1} dimensions at most, got "
            f"components={components}"
        )
    check_positive("c", c)
    d = symmetric(distances.detach().double())
    if (largest := math.sqrt(c) * float(d.max())) > MOST_RADIUS:
        raise ValueError(
            f"√c times the largest distance must be at most {MOST_RADIUS:g}, got {largest:g}: "
            "divide the distances, or c"
        )
    return lowered_distances(d, scaled(d, c, components), c)


def scaled(d: Tensor, c: float, components: int) -> Tensor:
    """The points of `hmds` alone, (n, k), of distances in float64 that were checked before."""
    products = torch.cosh(math.sqrt(c) * d)
    # The one positive eigenvalue, of time, becomes the only large negative one, and is left out.
    return principal_coordinates(-products)[:, :components] / math.sqrt(c)
