"""Graph networks: an encoder from features to points, and heads for nodes and links."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torch import Tensor, nn

import beltrami.nn as bnn
from beltrami.models.graph.config import GraphConfig
from beltrami.models.graph.decoder import FermiDirac
from beltrami.models.spaces import make_space


class GraphEncoder(nn.Module):
    """Features of nodes to points of `manifold`, by layers on the graph.

    Features are taken as points first (as space parts, in the ball by exp0). Then for each layer:
    dropout, the layer, and an activation but after the last. The encoder owns the curvature.
    """

    def __init__(self, config: GraphConfig) -> None:
        super().__init__()
        self.config = config
        self.manifold, self.curvature = make_space(
            config.geometry, config.curvature, config.learn_curvature
        )
        form = "exp0" if config.geometry == "ball" else "space"
        self.lift = bnn.Lift(config.features, manifold=self.manifold, form=form)
        self.dropout = bnn.Dropout(config.dropout, manifold=self.manifold)
        sizes = (config.features, *config.widths)
        last = len(config.widths) - 1
        self.layers = nn.ModuleList(
            self._layer(before, after, activation=None if i == last else config.activation)
            for i, (before, after) in enumerate(pairwise(sizes))
        )
        self.activation = bnn.Activation(config.activation, manifold=self.manifold)

    def _layer(self, before: int, after: int, activation: str | None) -> nn.Module:
        config = self.config
        if config.layer != "attention":
            return bnn.GraphConv(
                before,
                after,
                manifold=self.manifold,
                form=config.layer,
                aggregate=config.aggregate,
                activation=activation,
                time=config.time,
            )
        return bnn.GraphAttention(
            before,
            after,
            config.heads,
            manifold=self.manifold,
            head_size=max(1, after // config.heads),
            aggregate=config.aggregate or "centroid",
            time=config.time,
        )

    def forward(
        self, features: Tensor, edge_index: Any, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Features (N, f) and edges (2, E) to points (N, d)."""
        x: Tensor = self.lift(features)
        for i, layer in enumerate(self.layers):
            x = layer(self.dropout(x), edge_index, edge_weight)
            if self.config.layer == "attention" and i < len(self.layers) - 1:
                x = self.activation(x)
        return x


class NodeClassifier(nn.Module):
    """Scores of classes for each node, (N, classes).

    Args:
        config: of the encoder.
        classes: how many there are.
        head: "mlr" for `MLR`, "distance" for `DistanceClassifier`.
    """

    def __init__(self, config: GraphConfig, classes: int, *, head: str = "mlr") -> None:
        super().__init__()
        heads = {"mlr": bnn.MLR, "distance": bnn.DistanceClassifier}
        if head not in heads:
            raise ValueError(f"head must be one of {', '.join(heads)}; got {head!r}")
        self.encoder = GraphEncoder(config)
        self.head = heads[head](config.widths[-1], classes, manifold=self.encoder.manifold)
        bnn.check_model(self)

    def forward(
        self, features: Tensor, edge_index: Any, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Features (N, f) and edges (2, E) to scores (N, classes)."""
        scores: Tensor = self.head(self.encoder(features, edge_index, edge_weight))
        return scores


class LinkPredictor(nn.Module):
    """Scores of pairs of nodes, above 0 where an edge is likelier than not.

    Args:
        config: of the encoder.
    """

    def __init__(self, config: GraphConfig) -> None:
        super().__init__()
        self.encoder = GraphEncoder(config)
        self.decoder = FermiDirac(manifold=self.encoder.manifold)
        bnn.check_model(self)

    def forward(
        self,
        features: Tensor,
        edge_index: Any,
        pairs: Tensor,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Features (N, f), edges (2, E) to pass messages on, and pairs (2, k) to scores (k,)."""
        scores: Tensor = self.decoder(self.encoder(features, edge_index, edge_weight), pairs)
        return scores
