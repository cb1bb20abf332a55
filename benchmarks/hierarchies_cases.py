"""Who embeds the mammals: beltrami's recipe, the published protocol, gensim and geoopt.

All see the same pairs in the same number of dimensions. A trainer goes on from where it was, so
that laps can be timed in turns, and says where its points are.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.data import Hierarchy, load_hierarchy
from beltrami.geometry import Lorentz, Manifold, PoincareBall
from beltrami.losses import ranking_loss
from beltrami.models.hierarchy.relation import Relation
from beltrami.models.hierarchy.table import PointTable
from beltrami.optim import RiemannianSGD
from beltrami.recipes.hierarchy.config import HierarchyConfig
from beltrami.recipes.hierarchy.training import train_table
from beltrami.train.processes import Processes

DIMENSIONS = 5
DATA, QUICK_DATA = "wordnet-mammals", "carnivores"
# Of Nickel and Kiela's code: 0.3 on the mean of ten losses, so 0.03 on each; 20 of 300 epochs at a
# hundredth of it, with negatives drawn by degree.
RATE, BATCH, NEGATIVES = 0.03, 10, 50
BURN_IN, BURN_IN_RATE = 20 / 300, 0.01
LARGE_BATCH = 128
START = 1e-3
# As the README of the recipe has it.
RECIPE = HierarchyConfig(learning_rates=(0.2,), batch=295, pool=512)  # its own, of 1,180 nodes
_EPOCHS_A_LAP = 4  # of the recipe, whose epochs take milliseconds
GENSIM_NEGATIVES = 10


@dataclass(frozen=True)
class Problem:
    """A hierarchy and all pairs of its closure."""

    hierarchy: Hierarchy
    relation: Relation

    @classmethod
    def load(cls, quick: bool = False) -> Problem:
        hierarchy = load_hierarchy(QUICK_DATA if quick else DATA)
        return cls(hierarchy, Relation(hierarchy.closure(), len(hierarchy)))

    @property
    def pairs(self) -> int:
        return len(self.relation.pairs)


class Trainer(ABC):
    """An embedding that is being trained; `finished` once more laps would not go on with it."""

    finished = False

    @abstractmethod
    def lap(self, progress: float) -> int:
        """Train a little, `progress` of the time there is being over; the pairs that were seen."""

    @abstractmethod
    def points(self) -> tuple[Tensor, Manifold]:
        """Where the nodes are, (n, d)."""


@dataclass(frozen=True)
class Competitor:
    """A way to train; `build` takes the problem, the seed and the epochs there will be time for."""

    name: str
    how: str
    build: Callable[[Problem, int, float], Trainer]
    peer: bool = False
    """Of another library: that it cannot run is a result, not a crash."""
    seeds: int = 1
    """How many of the seeds it runs in a race, at most."""


# --- beltrami's recipe ----------------------------------------------------------------------------


class _Unwatched:
    """What a training needs of a session, without logs and checkpoints."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.processes = Processes(self.device)

    def begin(self, steps: int, **parts: Any) -> int:
        return 0

    def step(self, done: int, **values: Any) -> None:
        pass


class Recipe(Trainer):
    """The training of `beltrami run hierarchy`; a lap is a whole one, its rate falling to 0."""

    def __init__(self, problem: Problem, seed: int, epochs: float) -> None:
        self.problem, self.seed = problem, seed
        self.endless = math.isinf(epochs)
        whole = _EPOCHS_A_LAP if self.endless else max(1, math.floor(epochs))
        self.config = replace(RECIPE, epochs=whole)
        self.table = PointTable(
            len(problem.hierarchy), DIMENSIONS, Lorentz(1.0), radius=START, seed=seed
        )

    def lap(self, progress: float) -> int:
        train_table(
            self.table,
            self.problem.relation,
            self.config,
            learning_rate=self.config.learning_rates[0],
            seed=self.seed,
            session=_Unwatched(),  # type: ignore[arg-type]
        )
        self.finished = not self.endless
        return self.config.epochs * self.problem.pairs

    def points(self) -> tuple[Tensor, Manifold]:
        return self.table.weight.detach(), self.table.manifold


# --- the published protocol -----------------------------------------------------------------------


class Sampled(Trainer):
    """Batches of pairs with sampled negatives, in the ball; a lap is an epoch or a part of it.

    `space` says whose geometry and optimiser do the work.
    """

    def __init__(self, problem: Problem, seed: int, batch: int, space: Space) -> None:
        self.problem, self.batch, self.space = problem, batch, space
        self.draws = torch.Generator().manual_seed(seed)
        self.order = torch.empty(0, dtype=torch.int64)
        n = len(problem.hierarchy)
        self.known = torch.eye(n, dtype=torch.bool)
        self.known[tuple(problem.relation.pairs.T)] = True
        table = PointTable(n, DIMENSIONS, PoincareBall(1.0), radius=START, seed=seed)
        space.start(table.weight.detach())

    def lap(self, progress: float) -> int:
        seen = 0
        for _ in range(max(1, len(self.problem.relation.pairs) // (10 * self.batch))):
            seen += self.step(progress < BURN_IN)
        return seen

    def step(self, burning: bool) -> int:
        """One batch; how many pairs it has."""
        pairs = self.problem.relation.pairs
        if not len(self.order):
            self.order = torch.randperm(len(pairs), generator=self.draws)
        chosen, self.order = self.order[: self.batch], self.order[self.batch :]
        u, v = pairs[chosen].unbind(-1)
        false = self._negatives(len(u), burning)
        x = F.embedding(torch.cat([v.unsqueeze(-1), false], dim=-1), self.space.table)
        distances = self.space.dist(F.embedding(u, self.space.table).unsqueeze(-2), x)
        mask = ~self.known[u.unsqueeze(-1), false]
        # The sum, so that a pair's step does not depend on the batch it is in.
        loss = len(u) * ranking_loss(distances, mask)
        self.space.step(loss, RATE * (BURN_IN_RATE if burning else 1.0))
        return len(u)

    def _negatives(self, rows: int, burning: bool) -> Tensor:
        """Nodes (rows, negatives), those that are no strangers to be masked."""
        if burning:
            weights = self.problem.relation.degree
            drawn = torch.multinomial(
                weights, rows * NEGATIVES, replacement=True, generator=self.draws
            )
            return drawn.view(rows, NEGATIVES)
        n = len(self.problem.hierarchy)
        return torch.randint(n, (rows, NEGATIVES), generator=self.draws)

    def points(self) -> tuple[Tensor, Manifold]:
        return self.space.table.detach(), PoincareBall(1.0)


class Space(ABC):
    """Points of the ball, their distances and their optimiser."""

    table: Tensor

    @abstractmethod
    def start(self, points: Tensor) -> None:
        """Take the first points."""

    @abstractmethod
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances, (...)."""

    @property
    @abstractmethod
    def optimizer(self) -> torch.optim.Optimizer:
        """What moves the points."""

    def step(self, loss: Tensor, rate: float) -> None:
        """One step of the optimiser."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Ours(Space):
    """beltrami's ball and optimiser."""

    def start(self, points: Tensor) -> None:
        self.ball = PoincareBall(1.0)
        self.table = nn.Parameter(points)
        self._optimizer = RiemannianSGD([self.table], lr=RATE, manifold=self.ball)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self._optimizer

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        return self.ball.dist(x, y)


class Geoopt(Space):
    """geoopt's ball and optimiser."""

    def start(self, points: Tensor) -> None:
        with warnings.catch_warnings():
            # geoopt is built on torch.jit.script; that is its maintainers' business.
            warnings.simplefilter("ignore")
            import geoopt

        # As a tensor of the dtype: c=1.0 converted later is wrong by 4e-8 in float64.
        self.ball = geoopt.PoincareBall(c=torch.tensor(1.0, dtype=points.dtype))
        self.table = geoopt.ManifoldParameter(points, manifold=self.ball)
        self._optimizer = geoopt.optim.RiemannianSGD([self.table], lr=RATE)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        found: torch.optim.Optimizer = self._optimizer
        return found

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = self.ball.dist(x, y)
        return found


# --- gensim ---------------------------------------------------------------------------------------


class Gensim(Trainer):
    """gensim's `PoincareModel` with its own settings, but for the burn-in: that is the same share.

    It draws negatives again until none is double and none is related, which on this closure takes
    hundreds of tries for the published 50; its own 10 it is.
    """

    def __init__(self, problem: Problem, seed: int, epochs: float) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from gensim.models.poincare import PoincareModel

        self.problem = problem
        relations = [(str(u), str(v)) for u, v in problem.relation.pairs.tolist()]
        burn_in = 0 if math.isinf(epochs) else max(1, round(BURN_IN * epochs))
        self.burn_in = burn_in
        self.model: Any = PoincareModel(
            relations, size=DIMENSIONS, negative=GENSIM_NEGATIVES, burn_in=burn_in, seed=seed
        )

    def lap(self, progress: float) -> int:
        self.model.train(epochs=1, batch_size=BATCH)
        seen = (1 + self.burn_in) * self.problem.pairs  # the first call does the burn-in, too
        self.burn_in = 0
        return seen

    def points(self) -> tuple[Tensor, Manifold]:
        points = torch.zeros(len(self.problem.hierarchy), DIMENSIONS, dtype=torch.float64)
        nodes = [int(key) for key in self.model.kv.index_to_key]
        points[nodes] = torch.from_numpy(self.model.kv.vectors).double()
        return points, PoincareBall(1.0)


# --- all of them ----------------------------------------------------------------------------------


def _sampled(batch: int, space: type[Space]) -> Callable[[Problem, int, float], Trainer]:
    return lambda problem, seed, epochs: Sampled(problem, seed, batch, space())


def competitors() -> list[Competitor]:
    """The recipe first: the others are compared with it."""
    pool = f"batches of {RECIPE.batch} nodes, pool of {RECIPE.pool}"
    return [
        Competitor("beltrami, recipe", pool, Recipe, seeds=5),
        Competitor("beltrami, published protocol", _how(BATCH), _sampled(BATCH, Ours)),
        Competitor("gensim", _how(BATCH, GENSIM_NEGATIVES), Gensim, peer=True),
        Competitor("geoopt", _how(BATCH), _sampled(BATCH, Geoopt), peer=True),
        Competitor("geoopt", _how(LARGE_BATCH), _sampled(LARGE_BATCH, Geoopt), peer=True),
    ]


def _how(batch: int, negatives: int = NEGATIVES) -> str:
    return f"batches of {batch} pairs, {negatives} negatives"


def names(competitor: Competitor) -> str:
    """What `--only` is looked for in."""
    return f"{competitor.name} {competitor.how}"
