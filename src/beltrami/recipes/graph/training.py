"""Full-batch training on a graph, with checkpoints and the best epoch by validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from beltrami.data.graph_splits import LinkSplit, NodeSplit
from beltrami.data.graphs import Graph
from beltrami.models.graph import (
    GraphConfig,
    evaluate_links,
    evaluate_nodes,
    link_prediction_step,
    node_classification_step,
)
from beltrami.optim import create_optimizer
from beltrami.recipes.recipe import Trial
from beltrami.train.best import BestState
from beltrami.train.seeding import mix_seeds, seeded
from beltrami.train.session import Session


@dataclass(frozen=True)
class Task:
    """What is done with a model on a graph.

    Args:
        step: one step of an optimiser, its draws by a seed; returns the loss.
        validate: the score by which epochs and settings are chosen, higher is better.
        test: the measures that are reported.
    """

    step: Callable[[Optimizer, int], float]
    validate: Callable[[], float]
    test: Callable[[], dict[str, float]]


def node_task(model: nn.Module, graph: Graph, split: NodeSplit) -> Task:
    """Classes of nodes; validation by macro F1, which rare classes count in as well."""
    return Task(
        lambda optimizer, seed: node_classification_step(model, graph, split, optimizer),
        lambda: evaluate_nodes(model, graph, split.validation)["macro_f1"],
        lambda: evaluate_nodes(model, graph, split.test),
    )


def link_task(model: nn.Module, graph: Graph, split: LinkSplit) -> Task:
    """Edges against other pairs; validation by ROC AUC."""

    def step(optimizer: Optimizer, seed: int) -> float:
        draws = torch.Generator().manual_seed(seed)
        return link_prediction_step(model, graph, split, optimizer, draws)

    return Task(
        step,
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
    model: nn.Module, task: Task, trial: Trial[GraphSettings], session: Session
) -> None:
    """Train, and leave the model as it was where validation was best."""
    steps = trial.settings.epochs
    optimizer = create_optimizer(
        model, lr=trial.settings.learning_rate, weight_decay=trial.settings.weight_decay
    )
    best = BestState(model)
    for step in range(session.begin(steps, model=model, optimizer=optimizer, best=best), steps):
        seed = mix_seeds(trial.seed, step)
        with seeded(seed, session.device):
            loss = task.step(optimizer, seed)
        if (step + 1) % trial.settings.validate_every == 0 or step + 1 == steps:
            score = session.processes.mean({"score": task.validate()})["score"]
            best.update(score, step + 1)
        session.step(step + 1, loss=loss)
    best.restore()
