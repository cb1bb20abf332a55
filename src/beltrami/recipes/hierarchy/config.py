"""What the hierarchy recipe can be told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from beltrami.recipes.checks import (
    check_counts,
    check_learning_rates,
    check_no_repeats,
    check_positive,
    check_shares,
    taxonomy_name,
)
from beltrami.recipes.config import RunConfig

Geometry = Literal["lorentz", "poincare", "product", "euclidean", "sarkar"]
TWIN: Geometry = "euclidean"
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
class HierarchyConfig(RunConfig):
    """Embed a taxonomy in hyperbolic spaces and in flat space, and compare.

    Each node is drawn to its ancestors and away from all others (the ranking loss of Nickel and
    Kiela, 2017). Prints how well each geometry finds a node's ancestors among its nearest points,
    and writes a page with pictures. The default takes some minutes on two cores.
    """

    recipe: ClassVar[str] = "hierarchy"

    data: str = "wordnet-mammals"
    """What to embed: wordnet-mammals or carnivores (always there), wordnet-nouns, wordnet-verbs,
    ncbi, go-bp, go-mf, go-cc, hpo, icd-10-cm, icd-10 (see `beltrami data`), or the path of your
    own file: TSV, CSV or JSON with child and parent, OBO, Newick, or WordNet's data.noun."""

    root: str | None = None
    """Embed only this node and what is below it; its label."""

    models: tuple[Geometry, ...] = ("lorentz", "poincare", "product", "euclidean")
    """Which geometries; the Euclidean twin always takes part. product: two hyperbolic factors of
    half the dimensions (one dimension alone is flat, so give it 4 or more). sarkar: the tree placed
    by Sarkar's construction, without training."""

    dims: tuple[int, ...] = (5,)
    """Dimensions; with several, the page shows how the geometries grow."""

    epochs: int = 300
    """Passes over all nodes. Larger taxonomies need more: ten thousand nodes some 500, WordNet's
    nouns some thousands."""

    batch: int | None = None
    """Nodes a step; each comes with all its ancestors. By default a quarter of all nodes, or fewer
    where that many and the pool would be more than 134 million pairs, a gigabyte."""

    pool: int | None = None
    """Nodes that a step's batch is kept away from, drawn anew each step. By default a quarter of
    all nodes, or 512 if those are more; with a few hundredths of them little is learned."""

    negatives: float = 50.0
    """How much the pool weighs against one ancestor: as this many sampled nodes would."""

    learning_rates: tuple[float, ...] = (0.2, 1.0)
    """Each geometry's first seed tries all of them; the highest MAP decides for the other seeds."""

    burn_in: float = 0.2
    """Share of the training at a hundredth of the learning rate, against a pool that prefers nodes
    in many pairs: the top of the taxonomy sorts itself out before the rest spreads. Some twenty to
    sixty epochs are enough at any size, and many more do harm: of thousands, give it 0.01."""

    max_step: float = 0.1
    """The farthest that a point moves in one step."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        super().check()
        if not self.data:
            raise ValueError("--data is empty; give a name or a path")
        check_counts(self, "epochs", "batch", "pool")
        check_positive(self, "negatives", "max_step")
        check_shares(self, "burn_in")
        if not self.models:
            raise ValueError("--models is empty; name at least one geometry")
        check_learning_rates(self.learning_rates)
        check_no_repeats(self, "models", "dims", "learning_rates")
        if not self.dims or min(self.dims) < 2:
            raise ValueError(f"--dims must be 2 or more each, got {self.dims}")

    def batch_of(self, nodes: int) -> int:
        """How many of so many nodes a step has."""
        if self.batch is not None:
            return self.batch
        return max(1, min(math.ceil(nodes / 4), MOST_PAIRS // self.pool_of(nodes)))

    def pool_of(self, nodes: int) -> int:
        """How many of so many nodes a pool has."""
        wanted = max(LEAST_POOL, math.ceil(nodes / 4)) if self.pool is None else self.pool
        return min(wanted, nodes)

    def data_name(self) -> str:
        """The data's name, or its file's, and the root."""
        return taxonomy_name(self.data, self.root)
