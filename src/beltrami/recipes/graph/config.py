"""What the graph recipe can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from beltrami.recipes.checks import (
    check_counts,
    check_learning_rates,
    check_no_repeats,
    check_not_negative,
    check_shares,
    file_name,
)
from beltrami.recipes.config import RunConfig

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
    """

    recipe: ClassVar[str] = "graph"

    data: str = TREE
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

    layers: tuple[Layer, ...] = ("htc", "hybonet", "hgcn", "attention")
    """Kinds of layers, each a comparison of its own."""

    geometry: Literal["lorentz", "ball"] = "lorentz"
    """The hyperbolic model; ball works with hgcn layers alone."""

    widths: tuple[int, ...] = (32, 16)
    """Coordinates after each layer; the last is the size of the embedding. Hidden layers of the
    twin are a little wider, to come as close in parameters as widths allow; with one width there
    is no hidden layer, and the twin has fewer."""

    epochs: int = 80
    """Full-batch steps; the best of them on validation data is kept."""

    validate_every: int = 5
    """Steps between two validations."""

    learning_rates: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1)
    """Each model's first seed tries all of them; the best on validation data decides for the
    others."""

    dropout: float = 0.0
    """Share of coordinates that are dropped before every layer."""

    weight_decay: float = 0.0
    """Of the weights; points and curvatures do not decay."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        super().check()
        if not self.data:
            raise ValueError("--data is empty; give a folder, a file of edges, or tree")
        if self.data == TREE and (self.features or self.labels):
            raise ValueError(
                "--features and --labels go with a file of edges as --data; the generated tree "
                "has its own"
            )
        check_counts(self, "epochs", "validate_every")
        if not self.layers:
            raise ValueError("--layers is empty; name at least one kind")
        if self.geometry == "ball" and self.layers != ("hgcn",):
            raise ValueError(
                "--geometry ball works with --layers hgcn alone, got --layers "
                + " ".join(self.layers)
            )
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"--widths must be 1 or more each, got {self.widths}")
        check_shares(self, "dropout")
        check_not_negative(self, "weight_decay")
        check_learning_rates(self.learning_rates)
        check_no_repeats(self, "layers", "learning_rates")

    def data_name(self) -> str:
        """The graph's name and the task."""
        place = Path(self.data)
        text = place.name if place.is_dir() else place.stem
        return file_name(f"{text}-{self.task}")
