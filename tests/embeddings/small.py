"""A taxonomy of seven nodes as points of hyperbolic space, placed by hand."""

from __future__ import annotations

import torch

from beltrami.embeddings import Embedding
from beltrami.geometry import Lorentz

LABELS = ("root", "left", "right", "a", "b", "c d", "e")
EDGES = torch.tensor([[1, 0], [2, 0], [3, 1], [4, 1], [5, 2], [6, 2]])
TANGENT = [[0, 0], [-1, 0], [1, 0], [-2, 0.5], [-2, -0.5], [2, 0.5], [2, -0.5]]


def tree(c: float = 1.0) -> Embedding:
    manifold = Lorentz(c)
    points = manifold.exp0(torch.tensor(TANGENT, dtype=torch.float64))
    return Embedding(LABELS, points, manifold, edges=EDGES, name="tree")
