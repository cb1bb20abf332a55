"""Options of the levels recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from beltrami.recipes.config import TaxonomyConfig, option

TWIN = "euclidean"
NAMES = {"lorentz": "Lorentz", "ball": "Poincaré ball", "euclidean": "Euclidean"}


@dataclass(frozen=True)
class LevelsConfig(TaxonomyConfig):
    """Find the classes of a taxonomy's leaves at every level, in hyperbolic and in flat space.

    A leaf is known by its name (hashed n-grams of its letters) or by your features; one embedding
    has a classifier for each level above it. Prints accuracy at each level and hierarchical F1.
    The default takes about a minute on two cores.

    Example: beltrami run levels --data my_taxonomy.csv --features features.csv
    """

    recipe: ClassVar[str] = "levels"

    features: Path | None = None
    """Features of the leaves instead of their names: a CSV or TSV table with the label of a node
    in its first column and numbers in the others."""

    ngrams: int = option(1024, low=1)
    """Columns that the n-grams of names are hashed to; without --features."""

    levels: int | None = option(None, low=1)
    """How many levels from the top, the root's own left out; all of two classes or more if not
    given."""

    ranks: tuple[str, ...] = ()
    """The levels by rank, such as order family genus, where the taxonomy has named ranks."""

    geometry: Literal["lorentz", "ball"] = "lorentz"
    """The hyperbolic model."""

    head: Literal["mlr", "distance"] = "mlr"
    """How classes are told apart: by hyperplanes, or by the distance to one point a class."""

    widths: tuple[int, ...] = option((64, 16), low=1)
    """Coordinates after each layer; the last is the size of the embedding. Hidden layers of the
    twin are a little wider, to come as close in parameters as widths allow."""

    epochs: int = option(40, low=1)
    """Passes over the training leaves; the best of them on validation leaves is kept."""

    batch: int = option(128, low=1)
    """Leaves a step."""

    learning_rates: tuple[float, ...] = option(
        (0.003, 0.01, 0.03), low=0, open_low=True, adds_runs=True
    )
    """Each model's first seed tries all of them; the best on validation leaves decides for the
    others."""

    dropout: float = option(0.0, low=0, high=1, open_high=True)
    """Share of coordinates that are dropped before every layer."""

    weight_decay: float = option(0.0, low=0)
    """Decay of the weights; points and curvatures do not decay."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        super().check()
        if self.ranks and self.levels is not None:
            raise ValueError(
                f"--levels {self.levels} counts from the root, --ranks {' '.join(self.ranks)} "
                "names the levels; give one of the two"
            )
        if self.features is not None and self.ngrams != type(self).ngrams:
            raise ValueError(
                f"--ngrams {self.ngrams} is about names, which --features {self.features} "
                "replaces; give one of the two"
            )
