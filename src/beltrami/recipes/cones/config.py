"""Options of the cones recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from beltrami.recipes.config import TaxonomyConfig, option

Geometry = Literal["lorentz", "poincare"]
TWIN = "euclidean"
NAMES = {"lorentz": "Lorentz", "poincare": "Poincaré ball", "euclidean": "Euclidean"}
MOST_SHOWN = 0.9  # of the implied pairs; the rest is for validation and test


@dataclass(frozen=True)
class ConesConfig(TaxonomyConfig):
    """Learn which node is above which by entailment cones, in hyperbolic and in flat space.

    A node's cone should hold its descendants (Ganea, Bécigneul and Hofmann, 2018). Direct edges
    are always shown, and a share of the pairs that they imply; the others are asked for. Prints F1
    on held-out pairs for each share. The default takes about a minute on two cores.

    Example: beltrami run cones --data my_taxonomy.csv --shares 0 0.5
    """

    recipe: ClassVar[str] = "cones"

    models: tuple[Geometry, ...] = option(("lorentz",), adds_runs=True)
    """Which hyperbolic geometries; the Euclidean twin always takes part. poincare is the same space
    in other coordinates, and so are its cones: the numbers agree up to rounding."""

    shares: tuple[float, ...] = option(
        (0.0, 0.1, 0.25, 0.5), low=0, high=MOST_SHOWN, adds_runs=True
    )
    """Shares of the implied pairs that are shown in training, from 0 to 0.9; a tenth is left for
    validation and test."""

    dim: int = option(5, low=2)
    """Dimensions."""

    epochs: int = option(20, low=1)
    """Passes over the shown pairs; the best of them on validation pairs is kept."""

    batch: int = option(256, low=1)
    """Shown pairs a step, each with ten false ones."""

    learning_rates: tuple[float, ...] = option(
        (0.0015, 0.005, 0.015), low=0, open_low=True, adds_runs=True
    )
    """Root mean square changes of a coordinate in a step, in curved and flat space alike. Each
    geometry's first seed tries all of them; the highest validation F1 decides for the others."""

    min_radius: float = option(0.1, low=0, open_low=True)
    """How wide cones are: K of the paper."""

    margin: float = option(0.01, low=0, open_low=True)
    """The angle by which a false pair has to miss its cone."""
