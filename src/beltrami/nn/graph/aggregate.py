"""The mean of a node's neighbours, in three forms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from beltrami.checks import check_choice
from beltrami.geometry import Lorentz, Manifold, lorentz
from beltrami.kernels.launch.dtypes import upcast
from beltrami.nn.borders import lift0
from beltrami.nn.graph.centroid import neighbour_centroid
from beltrami.nn.graph.edges import Edges, read_edges, symmetric
from beltrami.nn.graph.scatter import rows, scatter_rows, scatter_sum
from beltrami.nn.layer import Layer

AGGREGATES = ("centroid", "origin", "local")


class GraphAggregate(Layer):
    r"""The mean of the points that edges bring to a node. It has no parameters.

    - **centroid**: `z/(√c·|z|_L)`, z = Σ wⱼ(tⱼ, xⱼ) (HyboNet, Chen et al. 2022), in the ball the
      same point. Commutes with every isometry.
    - **origin**: `exp0(Σ aⱼ·log0(xⱼ))`, in the tangent space at the origin (HGCN, Chami et al.
      2019). Commutes with rotations only, and is the cheapest.
    - **local**: `exp_i(Σ aⱼ·log_i(xⱼ))`, in the tangent space at the node itself (HGCN's local
      aggregation). Commutes with every isometry. On the Lorentz model it is taken in the frame that
      a boost of xᵢ to the origin gives, and neighbours must be nearer than √c·d = 44 in float32.

    aⱼ = wⱼ/Σw with `norm="mean"`. With "symmetric" the weights are first those of a GCN,
    `w/√(dᵢ·dⱼ)` (Kipf and Welling 2017), and the tangent forms take them as they are, without
    dividing by their sum; to a centroid the scale of weights is nothing. As c → 0 all forms become
    `Σ aⱼ·xⱼ`, but for "local" with "symmetric", which is `xᵢ + Σ aⱼ(xⱼ − xᵢ)`.

    With `self_loops` every node counts itself with weight 1, unless it has a loop of its own, so an
    isolated node stays where it is. Without, it goes to the origin, or stays where it is ("local").
    An edge of weight 0 is not an edge. Cost O(E·d); deterministic on a CPU, and on a GPU up to the
    order of sums, unless `torch.use_deterministic_algorithms(True)`.

    Args:
        manifold: Lorentz, PoincareBall or Euclidean.
        form: "centroid", "origin" or "local".
        norm: "mean" or "symmetric".
        self_loops: whether each node is a neighbour of itself.

    Shapes: x (..., N, d), edge_index int64 (2, E), edge_weight (E,) to (..., N, d).
    """

    def __init__(
        self,
        *,
        manifold: Manifold,
        form: str = "centroid",
        norm: str = "mean",
        self_loops: bool = True,
    ) -> None:
        super().__init__(manifold)
        self.form = check_choice("GraphAggregate: form", form, AGGREGATES)
        self.norm = check_choice("GraphAggregate: norm", norm, ("mean", "symmetric"))
        self.self_loops = self_loops

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Points (..., N, d) to the means of their neighbours, (..., N, d)."""
        edges = read_edges(x, edge_index, edge_weight, "GraphAggregate", self_loops=self.self_loops)
        return self.spread(x, edges)

    def spread(self, x: Tensor, edges: Edges) -> Tensor:
        """`forward` for edges that have been checked and have their loops."""
        source, target, weight = edges
        nodes = x.shape[-2]
        if self.norm == "symmetric":
            weight = symmetric(edges, nodes)
        if self.form == "centroid":
            return neighbour_centroid(x, source, target, weight, self.manifold)
        if self.norm == "mean":
            total = scatter_sum(weight, target, nodes)
            weight = weight / torch.where(total > 0, total, 1.0).index_select(0, target)
        share, wide_x = weight.unsqueeze(-1), upcast(x)
        if self.form == "origin":
            v = rows(self.manifold.log0(wide_x), source)
            return lift0(scatter_rows(share * v, target, nodes), self.manifold, x.dtype)
        start, end = rows(wide_x, target), rows(wide_x, source)
        if isinstance(self.manifold, Lorentz):
            # Coordinates of tangent vectors far out have no digits for what lies across the radius.
            c = self.manifold.c_like(wide_x)
            v = lorentz.log0(lorentz.boost(end, -start, c), c)
            mean = lorentz.exp0(scatter_rows(share * v, target, nodes), c)
            return lorentz.boost(mean, wide_x, c).to(x.dtype)
        v = self.manifold.log(start, end)
        moved = self.manifold.exp(wide_x, scatter_rows(share * v, target, nodes))
        return self.manifold.project(moved.to(x.dtype))

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        return (
            f"manifold={self.manifold!r}, form={self.form!r}, norm={self.norm!r}, "
            f"self_loops={self.self_loops}"
        )
