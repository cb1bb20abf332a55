"""What the levels recipe can be told."""

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
    taxonomy_name,
)
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
    """The taxonomy: wordnet-mammals or carnivores (always there), wordnet-nouns,
    wordnet-verbs, ncbi, go-bp, go-mf, go-cc, hpo, icd-10-cm, icd-10 (see `beltrami data`), or the
    path of your own file: TSV, CSV or JSON with child and parent, OBO, Newick, or WordNet's
    data.noun."""

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
        check_counts(self, "ngrams", "levels", "epochs", "batch")
        if self.features is not None and self.ngrams != type(self).ngrams:
            raise ValueError(
                f"--ngrams {self.ngrams} is about names, which --features {self.features} "
                "replaces; give one of the two"
            )
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"--widths must be 1 or more each, got {self.widths}")
        check_shares(self, "dropout")
        check_not_negative(self, "weight_decay")
        check_learning_rates(self.learning_rates)
        check_no_repeats(self, "learning_rates")

    def data_name(self) -> str:
        """The data's name, or its file's, and the root."""
        return taxonomy_name(self.data, self.root)
