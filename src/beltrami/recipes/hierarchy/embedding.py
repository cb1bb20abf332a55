"""A taxonomy embedded in Python, in the manner of scikit-learn."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from beltrami.analysis import reconstruct_points
from beltrami.checks import check_choice, check_integer
from beltrami.data import Hierarchy, load_hierarchy
from beltrami.data.collect import Collector
from beltrami.embeddings import Embedding, Neighbour
from beltrami.geometry import Manifold
from beltrami.models.hierarchy.relation import Relation
from beltrami.models.hierarchy.table import PointTable
from beltrami.recipes.hierarchy.config import TRAINED, Geometry, HierarchyConfig
from beltrami.recipes.hierarchy.recipe import RANKED, START, check_size, manifold_of
from beltrami.recipes.hierarchy.training import train_table
from beltrami.train.processes import Processes
from beltrami.train.progress import ProgressListener
from beltrami.train.session import Session, TrainingDivergedError


@dataclass
class HierarchyEmbedding:
    """Points for the nodes of a taxonomy, trained as `beltrami run hierarchy` trains them.

    >>> model = HierarchyEmbedding(dim=5).fit("my_taxonomy.csv")
    >>> model.nearest("vim", k=3)
    >>> model.save("software.safetensors")

    After `fit`: `embedding_` (an `Embedding`: labels, points, manifold, distances, new nodes),
    `labels_`, `points_`, `manifold_`, `map_` (how precisely a node's ancestors are its nearest
    points; 1 is perfect), `mean_rank_`, `learning_rate_` and `history_`, the logged losses.

    Args:
        dim: coordinates of a point.
        geometry: "lorentz", "poincare", "product" (of two hyperbolic spaces) or "euclidean".
        epochs: passes over all nodes. Larger taxonomies need more: ten thousand nodes some 500.
        learning_rates: all are tried; the one with the highest MAP stays.
        batch, pool, negatives, burn_in, max_step: as of `beltrami run hierarchy --help`.
        seed: of the start and of all draws.
        device: "auto" takes the GPU when there is one.
        verbose: show a progress bar on stderr.
    """

    dim: int = 5
    geometry: Geometry = "lorentz"
    epochs: int = HierarchyConfig.epochs
    learning_rates: tuple[float, ...] = HierarchyConfig.learning_rates
    batch: int | None = HierarchyConfig.batch
    pool: int | None = HierarchyConfig.pool
    negatives: float = HierarchyConfig.negatives
    burn_in: float = HierarchyConfig.burn_in
    max_step: float = HierarchyConfig.max_step
    seed: int = 0
    device: str = "auto"
    verbose: bool = False

    def fit(
        self, taxonomy: str | Path | Hierarchy | Iterable[tuple[str, str]], y: None = None
    ) -> HierarchyEmbedding:
        """Train on a taxonomy; returns self.

        Args:
            taxonomy: a `Hierarchy`, the name or file of one (`beltrami.data.load_hierarchy`), or
                pairs (child, parent) of labels.
            y: not used; scikit-learn's pipelines pass it.
        """
        config = self._config()
        hierarchy = _as_hierarchy(taxonomy)
        relation = Relation(hierarchy.closure(), len(hierarchy))
        diverged: TrainingDivergedError | None = None
        fits: list[tuple[float, Embedding]] = []
        with _Bar(self.verbose) as listener:
            for rate in config.learning_rates:
                try:
                    fits.append(self._fit(hierarchy, relation, config, rate, listener))
                except TrainingDivergedError as error:
                    diverged = error
        if not fits and diverged is not None:
            raise diverged
        self._keep(max(fits, key=lambda fit: fit[0])[1])
        return self

    def _config(self) -> HierarchyConfig:
        if self.geometry not in TRAINED:
            raise ValueError(
                f"geometry must be one of {', '.join(map(repr, TRAINED))}; got {self.geometry!r}"
            )
        check_integer("dim", self.dim, 2)
        check_choice("device", self.device, ("auto", "cpu", "cuda"))
        names = {field.name for field in dataclasses.fields(HierarchyConfig)}
        options = {name: value for name, value in self.get_params().items() if name in names}
        options["learning_rates"] = tuple(options["learning_rates"])
        config = HierarchyConfig(models=(self.geometry,), dims=(self.dim,), **options)
        try:
            config.check()
        except ValueError as error:  # which names options of the command line
            name, rest = str(error).removeprefix("--").split(" ", 1)
            raise ValueError(f"{name.replace('-', '_')} {rest}") from None
        return config

    def _fit(
        self,
        hierarchy: Hierarchy,
        relation: Relation,
        config: HierarchyConfig,
        rate: float,
        listener: ProgressListener,
    ) -> tuple[float, Embedding]:
        """The MAP of one rate, and its points."""
        auto = "cuda" if torch.cuda.is_available() else "cpu"
        device = torch.device(auto if self.device == "auto" else self.device)
        session = Session(f"learning rate {rate:g}", processes=Processes(device), listener=listener)
        manifold = manifold_of(self.geometry, self.dim)
        table = PointTable(len(hierarchy), self.dim, manifold, radius=START, seed=self.seed)
        table = table.to(device)
        train_table(table, relation, config, learning_rate=rate, seed=self.seed, session=session)
        points = table.weight.detach()
        sample = RANKED if len(relation.sources) > RANKED else None
        ranking = reconstruct_points(points, manifold, relation.pairs, sample=sample)
        fitted = {
            "map_": ranking.map,
            "mean_rank_": ranking.mean_rank,
            "learning_rate_": rate,
            "history_": session.history,
        }
        return ranking.map, Embedding(
            hierarchy,
            points,
            manifold,
            facts={"parameters": self.get_params(), "fitted": fitted},
        )

    def _keep(self, embedding: Embedding) -> None:
        """Take over what a training, or a file, has."""
        self.embedding_ = embedding
        for name, value in embedding.facts["fitted"].items():
            setattr(self, name, value)

    @property
    def labels_(self) -> tuple[str, ...]:
        """The labels, in the order of the points."""
        return self._fitted().labels

    @property
    def points_(self) -> Tensor:
        """The points, (n, dim), float64, in the coordinates of `manifold_`."""
        return self._fitted().points

    @property
    def manifold_(self) -> Manifold:
        """The manifold of the points."""
        return self._fitted().manifold

    def transform(self, labels: Sequence[str]) -> Tensor:
        """The points of known labels, (m, dim); `embedding_.add` places new ones."""
        if isinstance(labels, str):
            raise TypeError(f"labels must be a list of labels, got the text {labels!r}")
        embedding = self._fitted()
        return embedding.points[torch.tensor([embedding.index(label) for label in labels]).long()]

    def fit_transform(
        self, taxonomy: str | Path | Hierarchy | Iterable[tuple[str, str]], y: None = None
    ) -> Tensor:
        """Train, and return all points in the order of `labels_`."""
        return self.fit(taxonomy).points_

    def nearest(self, label: str | Tensor, k: int = 10) -> list[Neighbour]:
        """The k nearest labels of a label or a point, the nearest first."""
        return self._fitted().nearest(label, k)

    def save(self, path: str | Path) -> Path:
        """Write labels, points and manifold into a safetensors file."""
        return self._fitted().save(path)

    @classmethod
    def load(cls, path: str | Path) -> HierarchyEmbedding:
        """Read what `save` wrote."""
        embedding = Embedding.load(path)
        if "fitted" not in embedding.facts:
            raise ValueError(f"{path} was not saved by a HierarchyEmbedding; use Embedding.load")
        parameters = dict(embedding.facts["parameters"])
        parameters["learning_rates"] = tuple(parameters["learning_rates"])
        model = cls(**parameters)
        model._keep(embedding)
        return model

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments by name, as scikit-learn asks for them."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def set_params(self, **parameters: Any) -> HierarchyEmbedding:
        """Set arguments by name; returns self."""
        for name, value in parameters.items():
            if name not in self.get_params():
                raise ValueError(
                    f"{name!r} is not an argument; they are {', '.join(self.get_params())}"
                )
            setattr(self, name, value)
        return self

    def _fitted(self) -> Embedding:
        embedding: Embedding | None = getattr(self, "embedding_", None)
        if embedding is None:
            raise RuntimeError("there are no points yet; call fit(taxonomy) or load(path)")
        return embedding


def _as_hierarchy(taxonomy: str | Path | Hierarchy | Iterable[tuple[str, str]]) -> Hierarchy:
    if isinstance(taxonomy, str | Path):
        hierarchy = load_hierarchy(taxonomy)
    elif isinstance(taxonomy, Hierarchy):
        hierarchy = taxonomy
    elif not isinstance(taxonomy, Iterable):
        raise TypeError(
            "taxonomy must be a file, a name, a Hierarchy or pairs (child, parent), got "
            f"{type(taxonomy).__name__}"
        )
    else:
        collector = Collector("taxonomy", "pair")
        for place, pair in enumerate(taxonomy, 1):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ValueError(f"pair {place} of the taxonomy must be (child, parent): {pair!r}")
            child, parent = map(str, pair)
            collector.edge(child, parent, place)
        hierarchy = collector.hierarchy("taxonomy")
    check_size(hierarchy, hierarchy.name)
    return hierarchy


class _Bar(ProgressListener):
    """A progress bar on stderr, where it is wanted."""

    def __init__(self, shown: bool) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._bar = Progress(console=Console(stderr=True), disable=not shown)
        self._task = self._bar.add_task("training")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._bar.stop()

    def on_train_begin(self, name: str, steps: int, done: int) -> None:
        """A new bar."""
        self._bar.reset(self._task, total=steps, completed=done, description=name)

    def on_step_end(self, done: int) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done)
