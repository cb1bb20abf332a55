"""The knowledge-graph recipe: arms, models and measures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from beltrami.analysis.link_ranks import mrr_hits
from beltrami.data.triples import KnownTails, TripleSet, load_triples
from beltrami.embeddings import Embedding
from beltrami.geometry import Euclidean, Lorentz, Manifold
from beltrami.models.knowledge_graph import (
    KnowledgeGraphConfig,
    KnowledgeGraphModel,
    evaluate,
    rank_triples,
)
from beltrami.recipes.knowledge_graph.config import (
    FETCHED,
    MAMMALS,
    TWINS,
    KnowledgeGraphRunConfig,
)
from beltrami.recipes.knowledge_graph.sample import mammal_graph
from beltrami.recipes.knowledge_graph.training import KnowledgeGraphSettings, train_model
from beltrami.recipes.recipe import Arm, Evaluation, Metric, Recipe, Trial, settings_from
from beltrami.train.seeding import seeded
from beltrami.train.session import Session

if TYPE_CHECKING:
    from beltrami.recipes.results import RunResult
    from beltrami.report.page import Page

START = 2e-3  # standard deviation of entities and translations before training


class KnowledgeGraphRecipe(Recipe[KnowledgeGraphRunConfig, KnowledgeGraphSettings]):
    """Predict links in hyperbolic and in flat space."""

    name: ClassVar[str] = "knowledge-graph"
    title: ClassVar[str] = "Links of a knowledge graph"
    chosen_by: ClassVar[str] = "valid_mrr"
    metrics = (
        Metric("mrr", "MRR", "mean of 1/rank of test answers; 1 is perfect", "higher", 4),
        Metric("hits@1", "Hits@1", "share of test answers ranked first", "higher", 4),
        Metric("hits@3", "Hits@3", "among the first three", "higher", 4),
        Metric("hits@10", "Hits@10", "among the first ten", "higher", 4),
        Metric("mean_rank", "Mean rank", "of test answers; 1 is perfect", "lower", 1),
        Metric("valid_mrr", "Validation MRR", "by which epochs were chosen", "higher", 4),
        Metric("loss", "Loss", "of the last step", None, 4),
    )

    def __init__(self, config: KnowledgeGraphRunConfig) -> None:
        super().__init__(config)
        self.graph: TripleSet = _load(config.data)
        self._known: KnownTails | None = None
        self._validations: dict[str, dict[str, list[float]]] = {}

    @cached_property
    def _digest(self) -> str:
        return self.graph.digest()

    def data_facts(self) -> dict[str, Any]:
        """Name, sizes and digest."""
        return {"name": self.graph.name, **self.graph.summary(), "digest": self._digest}

    def arms(self) -> Sequence[Arm[KnowledgeGraphSettings]]:
        """Each model beside its Euclidean twin, at each dimension."""
        config = self.config
        rates = tuple({"learning_rate": rate} for rate in config.learning_rates)
        first = config.learning_rates[0]
        arms = []
        for dim in config.dims:
            settings = settings_from(KnowledgeGraphSettings, config, dim=dim, learning_rate=first)
            group = f"{dim} dimensions"
            for model in config.models:
                twin = TWINS[model]
                arms.append(Arm(model, group, settings, twin, rates))
                arms.append(Arm(twin, group, settings, None, rates))
        return arms

    def build(self, trial: Trial[KnowledgeGraphSettings]) -> nn.Module:
        """A model with small entities."""
        config = KnowledgeGraphConfig(
            entities=len(self.graph.entities),
            relations=len(self.graph.relations),
            variant=trial.model,
            dim=trial.settings.dim,
            curvature=trial.settings.curvature,
            learn_curvature=trial.settings.curvature_rate > 0,
            order=trial.settings.order,
            pre_translation=trial.settings.pre_translation,
            init_scale=START,
        )
        with seeded(trial.seed):
            return KnowledgeGraphModel(config)

    def train(
        self, model: nn.Module, trial: Trial[KnowledgeGraphSettings], session: Session
    ) -> None:
        """Train, and keep the epoch that validation liked best."""
        assert isinstance(model, KnowledgeGraphModel)
        best = train_model(model, self.graph, self._known_on(session), trial, session)
        epochs, steps = trial.settings.epochs, best.steps[-1]  # there is one after the last step
        self._validations[trial.name] = {
            "epoch": [float(epochs * step // steps) for step in best.steps],
            "valid_mrr": best.scores,
        }

    def evaluate(
        self, model: nn.Module, trial: Trial[KnowledgeGraphSettings], session: Session
    ) -> Evaluation:
        """Filtered ranks of both ends of the test triples, all and by relation."""
        assert isinstance(model, KnowledgeGraphModel)
        known = self._known_on(session)
        ranks = rank_triples(model, self.graph.test, known)
        metrics: dict[str, float | None] = dict(mrr_hits(ranks.flatten()).as_dict())
        metrics["valid_mrr"] = evaluate(model, self.graph.valid, known)["mrr"]
        if session.history:
            metrics["loss"] = session.history[-1]["loss"]
        curves = self._validations.pop(trial.name, {}) | self._by_relation(ranks)
        if model.curvature is not None:
            curves["curvature"] = model.curvature.value.detach().flatten().tolist()
        return Evaluation(metrics, curves)

    @torch.no_grad()
    def embedding(self, model: nn.Module, trial: Trial[KnowledgeGraphSettings]) -> Embedding:
        """The entities: vectors, or points in a space of the relations' mean curvature.

        Each relation has a curvature of its own, and entities are at the same distance from the
        origin in all of them.
        """
        assert isinstance(model, KnowledgeGraphModel)
        manifold: Manifold = Euclidean()
        facts = {}
        if model.curvature is not None:
            manifold = Lorentz(float(model.curvature.value.log().mean().exp()))
            facts["curvature"] = "geometric mean of the curvatures of all relations"
        points = manifold.exp0(model.entity.double())
        name = self.graph.name
        return Embedding(self.graph.entities, points, manifold, name=name, facts=facts)

    def page(self, run_result: RunResult) -> Page:
        """The page for people."""
        from beltrami.recipes.knowledge_graph.report import knowledge_graph_page

        return knowledge_graph_page(self, run_result)

    def _known_on(self, session: Session) -> KnownTails:
        """All true answers, on the device of the training."""
        if self._known is None or self._known.tails.device != session.device:
            self._known = self.graph.known_tails.to(session.device)
        return self._known

    def _by_relation(self, ranks: Tensor) -> dict[str, list[float]]:
        """Number of each relation that the test asks for, and its MRR."""
        relation = self.graph.test[:, 1]
        relations = relation.unique()
        mrr = [float(ranks[relation == r].reciprocal().mean()) for r in relations]
        return {"relation": relations.double().tolist(), "relation_mrr": mrr}


def _load(data: str) -> TripleSet:
    if data == MAMMALS:
        return mammal_graph()
    if data in FETCHED and not Path(data).exists():
        from beltrami.data.cache import MissingDataError, path_of

        try:
            folder = path_of("small-kgs")
        except MissingDataError as error:
            raise ValueError(f"--data {data}: {error}") from error
        folders = sorted(path for path in folder.rglob(data) if path.is_dir())
        if not folders:
            raise ValueError(f"{folder} has no folder {data}; give a folder of triples")
        return load_triples(folders[0])
    if not Path(data).exists():
        raise ValueError(
            f"--data {data} is not a folder, and none of {', '.join((MAMMALS, *FETCHED))}"
        )
    return load_triples(data)
