"""Options of the hierarchy recipe."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from beltrami.recipes.config import TaxonomyConfig, option

Geometry = Literal["lorentz", "poincare", "product", "euclidean", "sarkar"]
TWIN: Geometry = "euclidean"
TRAINED: tuple[Geometry, ...] = ("lorentz", "poincare", "product", "euclidean")
LEAST_POOL = 512  # by default
MOST_PAIRS = 1 << 27  # of a batch and a pool, by default
NAMES = {
    "lorentz": "Lorentz",
    "poincare": "Poincaré ball",
    "product": "Product",
    "euclidean": "Euclidean",
    "sarkar": "Sarkar's tree",
}


@dataclass(frozen=True)
class HierarchyConfig(TaxonomyConfig):
    """Embed a taxonomy in hyperbolic spaces and in flat space, and compare.

    Each node is drawn to its ancestors and away from all others (the ranking loss of Nickel and
    Kiela, 2017). Prints how well each geometry finds a node's ancestors among its nearest points,
    and writes the points, a page with pictures and an explorer. The default takes some minutes on
    two cores.

    Example: beltrami run hierarchy --data my_taxonomy.csv --dims 5
    """

    recipe: ClassVar[str] = "hierarchy"

    models: tuple[Geometry, ...] = option(("lorentz", "euclidean"), adds_runs=True)
    """Which geometries; the Euclidean twin always takes part. poincare: the space of lorentz in
    other coordinates, with the same results. product: two hyperbolic factors of half the dimensions
    (one dimension alone is flat, so give it 4 or more). sarkar: the tree as Sarkar's construction
    places it, without training."""

    dims: tuple[int, ...] = option((3, 5, 10, 20), low=2, adds_runs=True)
    """Dimensions; with several, the page shows how many each geometry needs."""

    epochs: int = option(300, low=1)
    """Passes over all nodes. Larger taxonomies need more: ten thousand nodes some 500, WordNet's
    nouns some thousands."""

    batch: int | None = option(None, low=1)
    """Nodes a step; each comes with all its ancestors. By default a quarter of all nodes, or fewer
    where that many and the pool would be more than 134 million pairs, a gigabyte."""

    pool: int | None = option(None, low=1)
    """Nodes that a step's batch is kept away from, drawn anew each step. By default a quarter of
    all nodes, or 512 if those are more; with a few hundredths of them little is learned."""

    negatives: float = option(50.0, low=0, open_low=True)
    """How much the pool weighs against one ancestor: as this many sampled nodes would."""

    learning_rates: tuple[float, ...] = option(
        (0.2, 1.0, 5.0), low=0, open_low=True, adds_runs=True
    )
    """Each geometry's first seed tries all of them; the highest MAP decides for the other seeds."""

    burn_in: float = option(0.2, low=0, high=1, open_high=True)
    """Share of the training at a hundredth of the learning rate, against a pool that prefers nodes
    in many pairs: the top of the taxonomy sorts itself out before the rest spreads. Some twenty to
    sixty epochs are enough at any size, and many more do harm: of thousands, give it 0.01."""

    max_step: float = option(0.1, low=0, open_low=True)
    """The farthest that a point moves in one step."""

    def batch_of(self, nodes: int) -> int:
        """How many of so many nodes a step has."""
        if self.batch is not None:
            return self.batch
        return max(1, min(math.ceil(nodes / 4), MOST_PAIRS // self.pool_of(nodes)))

    def pool_of(self, nodes: int) -> int:
        """How many of so many nodes a pool has."""
        wanted = max(LEAST_POOL, math.ceil(nodes / 4)) if self.pool is None else self.pool
        return min(wanted, nodes)
