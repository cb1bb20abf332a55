"""Tables of points for the optimisers' kernels, and what the geometry says about them."""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.geometry import Lorentz, Manifold, PoincareBall
from beltrami.geometry.checks import Scalar
from beltrami.geometry.chord import dot
from beltrami.kernels.rows.geodesic_rows import Products

MANIFOLDS: dict[str, type[Lorentz] | type[PoincareBall]] = {
    "lorentz": Lorentz,
    "poincare": PoincareBall,
}
# Of a table, or one a factor of points (..., 3, d).
CURVATURES: dict[str, Scalar] = {
    "0.3": 0.3,
    "1": 1.0,
    "2.5": 2.5,
    "tensor": torch.tensor([0.7], dtype=torch.float64),
    "several": torch.tensor([[0.3], [1.0], [2.5]], dtype=torch.float64),
}


def table(manifold: Manifold, *shape: int, radius: float = 1.5) -> Tensor:
    """Points in float64 about as far out as `radius`, whatever the dimension."""
    return manifold.random(*shape, std=radius / shape[-1] ** 0.5, dtype=torch.float64)


def covector(manifold: Manifold, x: Tensor, v: Tensor) -> Tensor:
    """The covector of the tangent vector v: its product with each unit vector."""
    u = torch.zeros_like(v, requires_grad=True)
    return torch.autograd.grad(manifold.inner(x, u, v).sum(), u)[0]


def random_covectors(manifold: Manifold, x: Tensor) -> Tensor:
    """Covectors whose metric norms do not depend on where x is."""
    random = covector(manifold, x, torch.randn_like(x))
    size = manifold.norm(x, manifold.riemannian_grad(x, random), keepdim=True)
    return random / size * torch.rand_like(size)


def products(x: Tensor, p: Tensor) -> Products:
    return Products(dot(x, x), dot(x, p), dot(p, p))


def relative(got: Tensor, expected: Tensor) -> float:
    """The largest error of a row over the row's length."""
    if got.numel() == 0:
        return 0.0
    error = (got.double() - expected.double()).norm(dim=-1)
    return float((error / expected.double().norm(dim=-1).where(error > 0, 1.0)).max())
