"""A table of points of any manifold, one a node of a hierarchy."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.geometry import Manifold


class PointTable(nn.Module):
    """`weight[nodes]`: points (n, dim) in float64, near the origin at the start.

    `beltrami.nn.Embedding` is the layer for models; this one also takes products, and has the
    precision that embeddings of deep hierarchies need.

    Args:
        count: nodes.
        dim: coordinates of a point.
        manifold: where the points live.
        radius: root mean square distance from the origin at the start.
        seed: of the start, drawn on the CPU: the same tangent vectors in every geometry.
    """

    def __init__(
        self, count: int, dim: int, manifold: Manifold, *, radius: float = 1e-3, seed: int = 0
    ) -> None:
        super().__init__()
        draws = torch.Generator().manual_seed(seed)
        tangent = torch.randn(count, dim, generator=draws, dtype=torch.float64)
        self.manifold = manifold
        self.weight = nn.Parameter(manifold.exp0(tangent * (radius / math.sqrt(dim))))
        self.manifold_of = {"weight": manifold}

    def forward(self, nodes: Tensor) -> Tensor:
        """The points of nodes."""
        return F.embedding(nodes, self.weight)  # its backward is far quicker than indexing's
