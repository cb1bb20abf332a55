"""Attention along the edges of a graph."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from beltrami.checks import check_choice, check_integer
from beltrami.geometry import Euclidean, Lorentz, Manifold, lorentz
from beltrami.kernels.launch.dtypes import upcast
from beltrami.nn.graph.centroid import neighbour_centroid, neighbour_mean
from beltrami.nn.graph.edges import Edges, read_edges
from beltrami.nn.graph.scatter import edge_softmax, rows
from beltrami.nn.layer import Layer
from beltrami.nn.linear import Linear


class GraphAttention(Layer):
    r"""`Attention` in which a node looks at the nodes that have an edge to it.

        scores = −|qᵢ − kⱼ|²_L/σ,      head = Σ a·v/(√c·|Σ a·v|_L),      a ∝ w·exp(scores)

    with sums over the edges j → i and their weights w (1 unless given; 0: no edge). Queries, keys
    and values come from an HTC `Linear`, heads are points by their own space parts, and a last
    `Linear` takes all heads side by side to the output. `log_scale` (heads,) is log σ, which starts
    at 2√head_size. Cost O(E·heads·head_size), and nothing of size N².

    As c → 0, and with `manifold=Euclidean()`, this is attention by Euclidean distance with the mean
    as output; `score="dot", aggregate="mean"` is the dot-product attention of Transformers on the
    graph. A complete graph with loops gives what `Attention` gives, but for the error of that
    layer's scores, eps·|q||k|·2/σ: here they come edge by edge from differences, and close queries
    and keys keep their digits far out. An isolated node attends to itself with `self_loops`, else
    to the origin.

    Args:
        in_features, out_features: coordinates of the input and output points.
        heads: number of heads.
        manifold: Lorentz or Euclidean.
        head_size: coordinates of a head; out_features/heads if None.
        score: "distance", or "dot" for q·k/√head_size.
        aggregate: "centroid", or "mean" of space parts.
        self_loops: whether each node looks at itself, too.
        bias, time: as in `Linear`.

    Shapes: x (..., N, in), edge_index int64 (2, E), edge_weight (E,) to (..., N, out).
    """

    accepts: ClassVar[tuple[type[Manifold], ...]] = (Lorentz, Euclidean)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        heads: int = 1,
        *,
        manifold: Manifold,
        head_size: int | None = None,
        score: str = "distance",
        aggregate: str = "centroid",
        self_loops: bool = True,
        bias: bool = True,
        time: bool = True,
    ) -> None:
        super().__init__(manifold)
        name = "GraphAttention"
        self.in_features = check_integer(f"{name}: in_features", in_features)
        self.out_features = check_integer(f"{name}: out_features", out_features)
        self.heads = check_integer(f"{name}: heads", heads)
        if head_size is None and out_features % heads:
            raise ValueError(
                f"{name}: heads={heads} must divide out_features={out_features}, unless head_size "
                "is given"
            )
        self.head_size = check_integer(
            f"{name}: head_size", out_features // heads if head_size is None else head_size
        )
        self.score = check_choice(f"{name}: score", score, ("distance", "dot"))
        self.aggregate = check_choice(f"{name}: aggregate", aggregate, ("centroid", "mean"))
        self.self_loops = self_loops
        width = self.heads * self.head_size
        self.query_key_value = Linear(
            in_features, 3 * width, manifold=manifold, bias=bias, time=time
        )
        self.out = Linear(width, out_features, manifold=manifold, bias=bias, time=time)
        self.log_scale = nn.Parameter(torch.empty(heads)) if score == "distance" else None
        if self.log_scale is not None:
            self.log_scales.add("log_scale")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """σ = 2√head_size; the linear layers have their own start."""
        if self.log_scale is not None:
            nn.init.constant_(self.log_scale, math.log(2 * math.sqrt(self.head_size)))

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """(..., N, in_features) to (..., N, out_features)."""
        self.check_size(x, self.in_features)
        edges = read_edges(x, edge_index, edge_weight, "GraphAttention", self_loops=self.self_loops)
        q, k, v = (
            t.unflatten(-1, (self.heads, self.head_size)).transpose(-2, -3)
            for t in self.query_key_value(x).chunk(3, dim=-1)
        )  # (..., heads, N, head_size)
        shares = edge_softmax(self._scores(q, k, edges), edges.weight, edges.target, x.shape[-2])
        if self.aggregate == "mean":
            mean = neighbour_mean(upcast(v), edges.source, edges.target, shares).to(v.dtype)
        else:
            mean = neighbour_centroid(v, edges.source, edges.target, shares, self.manifold)
        projected: Tensor = self.out(mean.transpose(-2, -3).flatten(-2))
        return projected

    def _scores(self, q: Tensor, k: Tensor, edges: Edges) -> Tensor:
        """(..., heads, E), in float32 at least."""
        q, k = rows(upcast(q), edges.target), rows(upcast(k), edges.source)
        if self.log_scale is None:
            return (q * k).sum(-1) / math.sqrt(self.head_size)
        if isinstance(self.manifold, Euclidean):
            far = self.manifold.dist_sq(q, k)
        else:
            far = lorentz.chord_sq(q, k, self.manifold.c_like(q))
        return -far * torch.exp(-self.log_scale).unsqueeze(-1)

    def extra_repr(self) -> str:
        """Sizes, switches and manifold."""
        return (
            f"{self.in_features}, {self.out_features}, heads={self.heads}, "
            f"head_size={self.head_size}, score={self.score}, aggregate={self.aggregate}, "
            f"self_loops={self.self_loops}, manifold={self.manifold!r}"
        )
