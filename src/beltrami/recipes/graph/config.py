"""Options of the graph recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from beltrami.options import file_name
from beltrami.recipes.config import RunConfig, option

Layer = Literal["htc", "hybonet", "hgcn", "attention"]
TWIN = "euclidean"
TREE = "tree"
NAMES = {"lorentz": "Lorentz", "ball": "Poincaré ball", "euclidean": "Euclidean"}
LAYER_NAMES = {
    "htc": "HTC layers",
    "hybonet": "HyboNet layers",
    "hgcn": "HGCN layers",
    "attention": "Attention layers",
}


@dataclass(frozen=True)
class GraphRunConfig(RunConfig):
    """Classify the nodes of a graph, or predict its links, in hyperbolic and in flat space.

    A graph network of each kind of layer is trained beside its Euclidean twin, as close in
    parameters as widths allow. The default, a generated tree of 1,365 nodes, takes up to a minute
    and a half on two cores.

    Example: beltrami run graph --data my_graph --task nodes
    """

    recipe: ClassVar[str] = "graph"

    data: str = option(TREE, in_data_digest=True)
    """The graph: a folder with a file each of edges, features and labels, named like *edges.csv,
    *features.npy or *feats.npz, and *labels.csv; or the file of edges alone, two columns of CSV
    or TSV; or "tree", a generated tree down which an infection spreads."""

    features: Path | None = None
    """File of features, where --data is a file of edges: .npy, .npz (sparse), .csv or .tsv. Without
    it, nodes are known by their number of neighbours."""

    labels: Path | None = None
    """File of labels, where --data is a file of edges: .npy, .csv or .tsv."""

    task: Literal["nodes", "links"] = "nodes"
    """nodes: which class a node has. links: which pairs of nodes are edges."""

    layers: tuple[Layer, ...] = option(("htc", "hybonet", "hgcn", "attention"), adds_runs=True)
    """Kinds of layers, each a comparison of its own."""

    geometry: Literal["lorentz", "ball"] = "lorentz"
    """The hyperbolic model; ball works with hgcn layers alone."""

    widths: tuple[int, ...] = option((32, 16), low=1)
    """Coordinates after each layer; the last is the size of the embedding. Hidden layers of the
    twin are a little wider, to come as close in parameters as widths allow; with one width there
    is no hidden layer, and the twin has fewer."""

    epochs: int = option(80, low=1)
    """Full-batch steps; the best of them on validation data is kept."""

    validate_every: int = option(5, low=1)
    """Steps between two validations."""

    learning_rates: tuple[float, ...] = option(
        (0.003, 0.01, 0.03, 0.1), low=0, open_low=True, adds_runs=True
    )
    """Each model's first seed tries all of them; the best on validation data decides for the
    others."""

    dropout: float = option(0.0, low=0, high=1, open_high=True)
    """Share of coordinates that are dropped before every layer."""

    weight_decay: float = option(0.0, low=0)
    """Decay of the weights; points and curvatures do not decay."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        super().check()
        if self.data == TREE and (self.features or self.labels):
            raise ValueError(
                "--features and --labels go with a file of edges as --data; the generated tree "
                "has its own"
            )
        if self.geometry == "ball" and self.layers != ("hgcn",):
            raise ValueError(
                "--geometry ball works with --layers hgcn alone, got --layers "
                + " ".join(self.layers)
            )

    def data_name(self) -> str:
        """The graph's name and the task."""
        place = Path(self.data)
        text = place.name if place.is_dir() else place.stem
        return file_name(f"{text}-{self.task}")
