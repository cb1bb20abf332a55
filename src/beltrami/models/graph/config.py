"""The settings of a graph network, and its Euclidean twin of about the same size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from beltrami.models.parameters import match_widths

LayerKind = Literal["hybonet", "htc", "hgcn", "attention"]
Geometry = Literal["lorentz", "ball", "euclidean"]

_LAYERS = ("hybonet", "htc", "hgcn", "attention")
_GEOMETRIES = ("lorentz", "ball", "euclidean")


@dataclass(frozen=True)
class GraphConfig:
    """What the encoder of a graph network is made of.

    Args:
        features: number of features a node has.
        widths: coordinates after each layer; the last is the size of the embedding.
        layer: "hybonet", "htc" or "hgcn", the forms of `GraphConv`, or "attention".
        geometry: "lorentz", "ball" (with "hgcn") or "euclidean".
        curvature: c at the start; one for all layers.
        learn_curvature: whether it is learned.
        aggregate: "centroid", "origin" or "local"; None for what the layer usually has.
        heads: of attention, each of width/heads coordinates, rounded down.
        activation: after every layer but the last.
        dropout: of the coordinates before every layer.
        time: whether linear layers have time columns ("hybonet", "htc", "attention").
    """

    features: int
    widths: tuple[int, ...] = (64, 16)
    layer: LayerKind = "htc"
    geometry: Geometry = "lorentz"
    curvature: float = 1.0
    learn_curvature: bool = True
    aggregate: str | None = None
    heads: int = 4
    activation: str = "relu"
    dropout: float = 0.0
    time: bool = True

    def __post_init__(self) -> None:
        if self.features < 1:
            raise ValueError(f"features must be at least 1, got {self.features}")
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"widths must be positive and at least one, got {self.widths}")
        for name, value, choices in (
            ("layer", self.layer, _LAYERS),
            ("geometry", self.geometry, _GEOMETRIES),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
        if self.geometry == "ball" and self.layer != "hgcn":
            raise ValueError(f"geometry='ball' works with layer='hgcn', got layer={self.layer!r}")
        if self.layer == "attention" and self.aggregate not in (None, "centroid", "mean"):
            raise ValueError(
                f"aggregate must be centroid or mean with attention, got {self.aggregate!r}"
            )


def matched_twin(config: GraphConfig, count: Callable[[GraphConfig], int]) -> GraphConfig:
    """The same network in Euclidean space, its hidden layers wider so that parameters match.

    A hyperbolic layer has time columns that the twin has no use for. The embedding keeps its size;
    of the hidden widths near the given ones those are taken that bring the count closest.

    Args:
        config: of the hyperbolic model.
        count: parameters of the model of a config, its head included.
    """
    flat = replace(config, geometry="euclidean")
    *hidden, last = config.widths
    widths = match_widths(
        tuple(hidden),
        count(config),
        lambda chosen: count(replace(flat, widths=(*chosen, last))),
    )
    return replace(flat, widths=(*widths, last))
