"""Options of the knowledge-graph recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from beltrami.options import file_name
from beltrami.recipes.config import RunConfig, option

Variant = Literal["RotH", "RefH", "AttH"]
TWINS: dict[Variant, str] = {"RotH": "RotE", "RefH": "RefE", "AttH": "AttE"}
MAMMALS = "mammals"
FETCHED = ("nations", "kinships", "umls")


@dataclass(frozen=True)
class KnowledgeGraphRunConfig(RunConfig):
    """Predict missing links of a knowledge graph in hyperbolic and in flat space.

    RotH, RefH and AttH of Chami et al. (2020), each beside its Euclidean twin. Prints how high the
    true answers rank among all entities, and writes a page with pictures. The default, a graph of
    1,180 mammals, takes a few minutes on two cores.

    Example: beltrami run knowledge-graph --data WN18RR
    """

    recipe: ClassVar[str] = "knowledge-graph"

    data: str = option(MAMMALS, in_data_digest=True)
    """The graph: a folder with train.txt, valid.txt and test.txt, lines of head, relation and tail
    separated by tabs, as of WN18RR or FB15k-237; or nations, kinships or umls, once `beltrami data
    get small-kgs` has fetched them; or "mammals", made from WordNet's mammals (always there)."""

    models: tuple[Variant, ...] = option(("RotH",), adds_runs=True)
    """RotH rotates heads, RefH reflects them, AttH weighs both; each brings its twin along."""

    dims: tuple[int, ...] = option((32,), low=2, adds_runs=True)
    """Numbers an entity; even. With several, each is a comparison of its own."""

    epochs: int = option(60, low=1)
    """Passes over all training triples, in both directions."""

    batch: int = option(500, low=1)
    """Triples a step."""

    objective: Literal["pairs", "tails", "softmax"] = "pairs"
    """pairs: true triples against random heads with random tails. tails: against random tails of
    the true heads; learns faster and forgets earlier what it was not told. softmax: the true tail
    against all entities; fits the training triples best and generalises worst."""

    pool: int = option(250, low=1)
    """Entities a step whose mean stands for random tails (pairs and tails)."""

    negatives: float = option(50.0, low=0, open_low=True)
    """How much the pool weighs against one true triple: as this many sampled ones would
    (pairs and tails)."""

    learning_rates: tuple[float, ...] = option((0.006, 0.05), low=0, open_low=True, adds_runs=True)
    """Rates of Adam; low ones for very many triples. Each model's first seed tries all of them;
    the highest MRR on validation triples decides for the others."""

    curvature: float = option(1.3, low=0.01, high=100, open_low=True, open_high=True)
    """Initial curvature of every relation."""

    curvature_rate: float = option(1.0, low=0)
    """How fast relations learn their curvatures, as a share of the learning rate; 0 keeps them."""

    order: Literal["relation", "head"] = "relation"
    """Which comes first in the Möbius sum of a relation and a turned head. head is as published;
    relation is an isometry of the heads."""

    pre_translation: bool = False
    """Move heads before the turn, too."""

    validate_every: int = option(10, low=1)
    """Epochs between two validations; the state at the best of them is kept."""

    def check(self) -> None:
        """Raise a `ValueError` that names the option, the value and what would be accepted."""
        super().check()
        for name in ("pool", "negatives"):
            value = getattr(self, name)
            if self.objective == "softmax" and value != getattr(type(self), name):
                raise ValueError(
                    f"--{name} {value:g} has no use with --objective softmax, which takes all "
                    "entities; leave one of the two out"
                )
        if any(dim % 2 for dim in self.dims):
            raise ValueError(
                f"--dims must be even numbers (turns act on pairs of coordinates), got {self.dims}"
            )

    def data_name(self) -> str:
        """The data's name, or its folder's."""
        return file_name(Path(self.data).name or "graph")
