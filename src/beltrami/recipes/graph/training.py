"""Full-batch training on a graph, with checkpoints and the best epoch by validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from beltrami.data.graph_splits import LinkSplit, NodeSplit
from beltrami.data.graphs import Graph
from beltrami.models.graph import (
    GraphConfig,
    evaluate_links,
    evaluate_nodes,
    link_prediction_loss,
    node_classification_loss,
)
from beltrami.optim import create_optimizer
from beltrami.recipes.recipe import Trial
from beltrami.train import loop
from beltrami.train.seeding import mix_seeds
from beltrami.train.session import Session


@dataclass(frozen=True)
class Task:
    """What is done with a model on a graph.

    Args:
        loss: of all training data, its draws by a seed.
        validate: the score by which epochs and settings are chosen, higher is better.
        test: the measures that are reported.
    """

    loss: Callable[[int], Tensor]
    validate: Callable[[], float]
    test: Callable[[], dict[str, float]]


def node_task(model: nn.Module, graph: Graph, split: NodeSplit) -> Task:
    """Classes of nodes; validation by macro F1, which rare classes count in as well."""
    return Task(
        lambda seed: node_classification_loss(model, graph, split),
        lambda: evaluate_nodes(model, graph, split.validation)["macro_f1"],
        lambda: evaluate_nodes(model, graph, split.test),
    )


def link_task(model: nn.Module, graph: Graph, split: LinkSplit) -> Task:
    """Edges against other pairs; validation by ROC AUC."""

    def loss(seed: int) -> Tensor:
        return link_prediction_loss(model, graph, split, torch.Generator().manual_seed(seed))

    return Task(
        loss,
        lambda: evaluate_links(model, graph, split, "validation")["roc_auc"],
        lambda: evaluate_links(model, graph, split, "test"),
    )


@dataclass(frozen=True)
class GraphSettings:
    """What a training depends on; see `GraphRunConfig`."""

    task: str
    epochs: int
    validate_every: int
    weight_decay: float
    model: GraphConfig
    learning_rate: float


def train_graph(
    model: nn.Module, task: Task, trial: Trial[GraphSettings], session: Session, *, small: bool
) -> None:
    """Full-batch steps, each an epoch; leaves the model as it was where validation was best.

    Every process does the same work, so that each adds its share of one loss.
    """
    settings, share = trial.settings, 1 / session.processes.world_size

    def seeds(epoch: int, start: int) -> Iterator[tuple[Tensor]]:
        yield (torch.tensor(mix_seeds(trial.seed, epoch)),)

    loop.train(
        model,
        create_optimizer(model, lr=settings.learning_rate, weight_decay=settings.weight_decay),
        lambda seed: share * task.loss(int(seed)),
        seeds,
        steps=settings.epochs,
        session=session,
        validate=task.validate,
        validate_every=settings.validate_every,
        seed=trial.seed,
        small=small,
    )
