"""The graph recipe: arms, models and measures.

Training is full-batch. Under torchrun every process does the same work, and the processes agree on
the validation scores by which they decide; nothing is gained but that it works.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import nn

from beltrami.data.graph_files import read_graph
from beltrami.data.graph_splits import LinkSplit, NodeSplit, split_links, split_nodes
from beltrami.data.graph_trees import disease_like_tree
from beltrami.data.graphs import Graph
from beltrami.embeddings import Embedding
from beltrami.models.graph import (
    GraphConfig,
    LinkPredictor,
    NodeClassifier,
    count_parameters,
    matched_twin,
)
from beltrami.recipes.graph.config import LAYER_NAMES, NAMES, TREE, TWIN, GraphRunConfig
from beltrami.recipes.graph.training import GraphSettings, Task, link_task, node_task, train_graph
from beltrami.recipes.recipe import Arm, Evaluation, Metric, Recipe, Trial, settings_from
from beltrami.train.seeding import seeded
from beltrami.train.session import Session

if TYPE_CHECKING:
    from beltrami.recipes.results import RunResult
    from beltrami.report.page import Page

Data = TypeVar("Data", Graph, NodeSplit | LinkSplit)
SMALL = 20_000  # nodes and edges together, below which one thread is quickest
VALIDATION = Metric("validation", "Validation", "the settings were chosen by it", "higher")
LOSS = Metric("loss", "Loss", "of the last step", None)
METRICS: dict[str, tuple[Metric, ...]] = {
    "nodes": (
        Metric("accuracy", "Accuracy", "of test nodes; 1 is perfect", "higher"),
        Metric("macro_f1", "Macro F1", "mean over classes; 1 is perfect", "higher"),
        VALIDATION,
        LOSS,
    ),
    "links": (
        Metric("roc_auc", "ROC AUC", "of test edges; 0.5 is chance, 1 perfect", "higher"),
        Metric("average_precision", "Average precision", "of test edges; 1 is perfect", "higher"),
        VALIDATION,
        LOSS,
    ),
}


class GraphRecipe(Recipe[GraphRunConfig, GraphSettings]):
    """Nodes and links of a graph, in hyperbolic and in flat space."""

    name: ClassVar[str] = "graph"
    title: ClassVar[str] = "Graphs"
    names = NAMES
    chosen_by: ClassVar[str] = "validation"

    def __init__(self, config: GraphRunConfig) -> None:
        super().__init__(config)
        self.graph = _load(config)
        if config.task == "nodes":
            if self.graph.labels is None:
                raise ValueError(
                    f"{config.data} has no labels; give --labels FILE, or --task links"
                )
            if len(self.graph.label_names) < 2:
                raise ValueError(
                    f"{config.data} has {len(self.graph.label_names)} class; at least 2 are needed"
                )
        split = self.split(0)  # too small a graph shows now
        for part in ("validation", "test"):
            if not getattr(split, part).numel():
                raise ValueError(
                    f"{config.data} is too small: its split leaves nothing for {part}; "
                    "more labelled nodes or edges are needed"
                )

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics of the task."""
        return METRICS[self.config.task]

    @lru_cache(maxsize=8)  # noqa: B019 - a recipe lives as long as its run
    def split(self, seed: int) -> NodeSplit | LinkSplit:
        """What is trained on, chosen on and tested on."""
        if self.config.task == "links":
            return split_links(self.graph, seed=seed)
        assert self.graph.labels is not None
        return split_nodes(self.graph.labels, seed=seed)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        graph = self.graph
        digest = hashlib.sha256(repr(graph.label_names).encode())
        for tensor in (graph.edges, graph.features, graph.labels):
            if tensor is not None:
                digest.update(repr(tuple(tensor.shape)).encode())
                digest.update(tensor.contiguous().numpy().tobytes())
        return {
            "name": graph.name,
            "nodes": len(graph),
            "edges": graph.edges.shape[1],
            "features": graph.features.shape[1],
            "classes": len(graph.label_names),
            "digest": digest.hexdigest(),
        }

    def data_facts(self) -> dict[str, Any]:
        """Name, sizes and digest."""
        return self._facts

    def arms(self) -> Sequence[Arm[GraphSettings]]:
        """Each kind of layer in hyperbolic space, and its twin."""
        config = self.config
        rates = tuple({"learning_rate": rate} for rate in config.learning_rates)
        arms = []
        for layer in config.layers:
            curved = GraphConfig(
                self.graph.features.shape[1],
                config.widths,
                layer=layer,
                geometry=config.geometry,
                dropout=config.dropout,
            )
            twin = matched_twin(curved, lambda c: count_parameters(lambda: self._model(c)))
            for model, shape in ((config.geometry, curved), (TWIN, twin)):
                settings = settings_from(
                    GraphSettings, config, model=shape, learning_rate=config.learning_rates[0]
                )
                control = None if model == TWIN else TWIN
                arms.append(Arm(model, LAYER_NAMES[layer], settings, control, rates))
        return arms

    def build(self, trial: Trial[GraphSettings]) -> nn.Module:
        """The network of a trial."""
        with seeded(trial.seed):
            return self._model(trial.settings.model)

    def train(self, model: nn.Module, trial: Trial[GraphSettings], session: Session) -> None:
        """Full-batch steps; the best epoch on validation data is kept."""
        task = self._task(model, trial, session)
        small = len(self.graph) + self.graph.edges.shape[1] < SMALL
        train_graph(model, task, trial, session, small=small)

    def evaluate(
        self, model: nn.Module, trial: Trial[GraphSettings], session: Session
    ) -> Evaluation:
        """Measures of the test part, and the score of validation."""
        task = self._task(model, trial, session)
        metrics = {**task.test(), "validation": task.validate()}
        return Evaluation({**session.processes.mean(metrics), "loss": session.history[-1]["loss"]})

    @torch.no_grad()
    def embedding(self, model: nn.Module, trial: Trial[GraphSettings]) -> Embedding:
        """The nodes, as the encoder places them."""
        assert isinstance(model, NodeClassifier | LinkPredictor)
        model.eval()
        device = next(model.parameters()).device
        graph, split = _on(device, self.graph), _on(device, self.split(trial.seed))
        edge_index = split.edge_index if isinstance(split, LinkSplit) else graph.edge_index
        points = model.encoder(graph.features, edge_index)
        return Embedding(graph.names, points, model.encoder.manifold, name=graph.name)

    def page(self, run_result: RunResult) -> Page:
        """The page for people."""
        from beltrami.recipes.graph.report import graph_page

        return graph_page(self, run_result)

    def _model(self, config: GraphConfig) -> nn.Module:
        if self.config.task == "links":
            return LinkPredictor(config)
        return NodeClassifier(config, len(self.graph.label_names))

    def _task(self, model: nn.Module, trial: Trial[GraphSettings], session: Session) -> Task:
        graph, split = _on(session.device, self.graph), _on(session.device, self.split(trial.seed))
        if isinstance(split, LinkSplit):
            return link_task(model, graph, split)
        return node_task(model, graph, split)


def _load(config: GraphRunConfig) -> Graph:
    if config.data == TREE:
        return disease_like_tree()
    return read_graph(config.data, config.features, config.labels)


def _on(device: torch.device, data: Data) -> Data:
    """The same data with its tensors on a device."""
    tensors: dict[str, Any] = {
        field.name: value.to(device)
        for field in dataclasses.fields(data)
        if isinstance(value := getattr(data, field.name), torch.Tensor)
    }
    return dataclasses.replace(data, **tensors)
