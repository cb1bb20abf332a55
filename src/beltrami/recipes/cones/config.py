"""What the cones recipe can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from beltrami.recipes.checks import (
    check_counts,
    check_learning_rates,
    check_no_repeats,
    check_positive,
    taxonomy_name,
)
from beltrami.recipes.config import RunConfig

Geometry = Literal["lorentz", "poincare"]
TWIN = "euclidean"
NAMES = {"lorentz": "Lorentz", "poincare": "Poincaré ball", "euclidean": "Euclidean"}
MOST_SHOWN = 0.9  # of the implied pairs; the rest is for validation and test


@dataclass(frozen=True)
class ConesConfig(RunConfig):
    """Learn which node is above which by entailment cones, in hyperbolic and in flat space.

    A node's cone should hold its descendants (Ganea, Bécigneul and Hofmann, 2018). Direct edges
    are always shown, and a share of the pairs that they imply; the others are asked for. Prints F1
    on held-out pairs for each share. The default takes about a minute on two cores.
    """

    recipe: ClassVar[str] = "cones"

    data: str = "wordnet-mammals"
    """The hierarchy: wordnet-mammals or carnivores (always there), wordnet-nouns,
    wordnet-verbs, ncbi, go-bp, go-mf, go-cc, hpo, icd-10-cm, icd-10 (see `beltrami data`), or the
    path of your own file: TSV, CSV or JSON with child and parent, OBO, Newick, or WordNet's
    data.noun."""

    root: str | None = None
    """Take only this node and what is below it; its label."""

    models: tuple[Geometry, ...] = ("lorentz",)
    """Which hyperbolic geometries; the Euclidean twin always takes part. poincare is the same space
    in other coordinates, and so are its cones: the numbers agree up to rounding."""

    shares: tuple[float, ...] = (0.0, 0.1, 0.25, 0.5)
    """Shares of the implied pairs that are shown in training, from 0 to 0.9."""

    dim: int = 5
    """Dimensions."""

    epochs: int = 20
    """Passes over the shown pairs; the best of them on validation pairs is kept."""

    batch: int = 256
    """Shown pairs a step, each with ten false ones."""

    learning_rates: tuple[float, ...] = (0.003, 0.01, 0.03)
    """Each geometry's first seed tries all of them; the highest validation F1 decides for the
    others."""

    min_radius: float = 0.1
    """How wide cones are: K of the paper."""

    margin: float = 0.01
    """The angle by which a false pair has to miss its cone."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        super().check()
        if not self.data:
            raise ValueError("--data is empty; give a name or a path")
        check_counts(self, "epochs", "batch")
        if self.dim < 2:
            raise ValueError(f"--dim must be at least 2, got {self.dim}")
        check_positive(self, "min_radius", "margin")
        if not self.shares or not all(0 <= share <= MOST_SHOWN for share in self.shares):
            raise ValueError(
                f"--shares must lie in 0..{MOST_SHOWN:g}, what is left beside validation and "
                f"test; got {' '.join(map(str, self.shares)) or 'none'}"
            )
        check_learning_rates(self.learning_rates)
        check_no_repeats(self, "models", "shares", "learning_rates")

    def data_name(self) -> str:
        """The data's name, or its file's, and the root."""
        return taxonomy_name(self.data, self.root)
