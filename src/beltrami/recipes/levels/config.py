"""What the levels recipe can be told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from beltrami.recipes.config import RunConfig

TWIN = "euclidean"
NAMES = {"lorentz": "Lorentz", "ball": "Poincaré ball", "euclidean": "Euclidean"}


@dataclass(frozen=True)
class LevelsConfig(RunConfig):
    """Find the classes of a taxonomy's leaves at every level, in hyperbolic and in flat space.

    A leaf is known by its name (hashed n-grams of its letters) or by your features; one embedding
    has a classifier for each level above it. Prints accuracy at each level and hierarchical F1.
    The default takes about a minute on two cores.
    """

    recipe: ClassVar[str] = "levels"

    data: str = "wordnet-mammals"
    """The taxonomy: wordnet-mammals or carnivores (always there), any other name of `beltrami
    data`, or the path of your own file: TSV, CSV or JSON with child and parent, OBO, Newick, or
    WordNet's data.noun."""

    root: str | None = None
    """Take only this node and what is below it; its label."""

    features: Path | None = None
    """Features of the leaves instead of their names: a CSV or TSV table with the label of a node
    in its first column and numbers in the others."""

    ngrams: int = 1024
    """Columns that the n-grams of names are hashed to; without --features."""

    levels: int | None = None
    """How many levels from the top, the root's own left out; all of two classes or more if not
    given."""

    geometry: Literal["lorentz", "ball"] = "lorentz"
    """The hyperbolic model."""

    head: Literal["mlr", "distance"] = "mlr"
    """How classes are told apart: by hyperplanes, or by the distance to one point a class."""

    widths: tuple[int, ...] = (64, 16)
    """Coordinates after each layer; the last is the size of the embedding. Hidden layers of the
    twin are a little wider, to come as close in parameters as widths allow."""

    epochs: int = 40
    """Passes over the training leaves; the best of them on validation leaves is kept."""

    batch: int = 128
    """Leaves a step."""

    learning_rates: tuple[float, ...] = (0.003, 0.01, 0.03)
    """Each model's first seed tries all of them; the best on validation leaves decides for the
    others."""

    dropout: float = 0.0
    """Share of coordinates that are dropped before every layer."""

    weight_decay: float = 0.0
    """Of the weights; points and curvatures do not decay."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        super().check()
        if not self.data:
            raise ValueError("--data is empty; give a name or a path")
        for name in ("ngrams", "levels", "epochs", "batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} must be at least 1, got {value}")
        if self.features is not None and self.ngrams != type(self).ngrams:
            raise ValueError(
                f"--ngrams {self.ngrams} is about names, which --features {self.features} "
                "replaces; give one of the two"
            )
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"--widths must be 1 or more each, got {self.widths}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"--dropout must be at least 0 and below 1, got {self.dropout:g}")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"--weight-decay must be 0 or more, got {self.weight_decay:g}")
        if not self.learning_rates or not all(0 < r < float("inf") for r in self.learning_rates):
            raise ValueError(
                f"--learning-rates must be positive numbers, got {self.learning_rates}"
            )
        if len(set(self.learning_rates)) < len(self.learning_rates):
            raise ValueError(
                f"--learning-rates names one twice: {' '.join(map(str, self.learning_rates))}"
            )

    def data_name(self) -> str:
        """The data's name, or its file's, and the root."""
        known = Path(self.data).suffix == "" and "/" not in self.data
        text = self.data if known else Path(self.data).stem
        return re.sub(r"[^A-Za-z0-9._-]+", "_", text + (f"-{self.root}" if self.root else ""))
