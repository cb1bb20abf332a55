"""Train a knowledge-graph model with Adam, keeping the state where validation was best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from beltrami.data.triples import KnownTails, TripleSet, add_reciprocals
from beltrami.models.knowledge_graph import KnowledgeGraphModel, evaluate
from beltrami.recipes.knowledge_graph.objective import pooled_losses
from beltrami.recipes.recipe import Trial
from beltrami.train import loop
from beltrami.train.best import BestState
from beltrami.train.seeding import mix_seeds
from beltrami.train.session import Session

BIAS_SHARE = 0.5  # of the learning rate
DECAY_FROM = 0.5  # share of the epochs after which the learning rate falls linearly
LAST_SHARE = 0.01  # of the learning rate, where it ends
SMALL = 1 << 18  # numbers in a table of scores that a CPU computes as fast with one thread


@dataclass(frozen=True)
class KnowledgeGraphSettings:
    """What a training depends on; see `KnowledgeGraphRunConfig`."""

    dim: int
    epochs: int
    batch: int
    objective: str
    pool: int
    negatives: float
    curvature: float
    curvature_rate: float
    order: Literal["head", "relation"]
    pre_translation: bool
    validate_every: int
    learning_rate: float


def train_model(
    model: KnowledgeGraphModel,
    graph: TripleSet,
    known: KnownTails,
    trial: Trial[KnowledgeGraphSettings],
    session: Session,
) -> BestState:
    """Train, and leave the model as it was where validation was best; returns all validations.

    A batch's loss is a mean over its triples, each process computing its share. What remains of
    the triples after the last whole batch of an epoch is left out; each epoch leaves out others.
    """
    settings, device = trial.settings, session.device
    if settings.batch < session.processes.world_size:
        raise ValueError(
            f"--batch must be at least the number of processes, {session.processes.world_size}; "
            f"got {settings.batch}"
        )
    triples = add_reciprocals(graph.train, len(graph.relations)).to(device)
    batch = min(settings.batch, len(triples))
    per_epoch = len(triples) // batch
    entities, pool_size = model.config.entities, settings.pool

    def batches(epoch: int, start: int) -> Iterator[tuple[Tensor, ...]]:
        draws = torch.Generator().manual_seed(mix_seeds(trial.seed, epoch))
        count = per_epoch * batch
        order = torch.randperm(len(triples), generator=draws)[:count].to(device)
        heads = torch.randint(entities, (count,), generator=draws).to(device)
        pools = torch.randint(entities, (per_epoch, pool_size), generator=draws).to(device)
        parts = triples[order].split(batch), heads.split(batch), pools.unbind()
        return zip(*(part[start:] for part in parts), strict=True)

    def loss(triples: Tensor, heads: Tensor, pool: Tensor) -> Tensor:
        shard = session.processes.shard
        return _loss_of(model, shard(triples), shard(heads), pool, settings) / len(triples)

    return loop.train(
        model,
        _optimizer(model, settings, device),
        loss,
        batches,
        steps=settings.epochs * per_epoch,
        steps_per_epoch=per_epoch,
        session=session,
        schedule=lambda step: rate_share(step // per_epoch / settings.epochs),
        validate=lambda: evaluate(model, graph.valid, known)["mrr"],
        validate_every=settings.validate_every,
        small=batch * pool_size <= SMALL,
        capture=True,
    )


def rate_share(progress: float) -> float:
    """The learning rate at a share of the training, as a share of its highest value."""
    if progress < DECAY_FROM:
        return 1.0
    return max(LAST_SHARE, (1 - progress) / (1 - DECAY_FROM))


def _optimizer(
    model: KnowledgeGraphModel, settings: KnowledgeGraphSettings, device: torch.device
) -> torch.optim.Adam:
    shares = {"bias": BIAS_SHARE, "curvature.raw": settings.curvature_rate}
    groups = [
        {"params": [p], "lr": settings.learning_rate * shares.get(name, 1.0)}
        for name, p in model.named_parameters()
    ]
    on_gpu = device.type == "cuda"
    return torch.optim.Adam(groups, fused=on_gpu or None, capturable=on_gpu)


def _loss_of(
    model: KnowledgeGraphModel,
    triples: Tensor,
    heads: Tensor,
    pool: Tensor,
    settings: KnowledgeGraphSettings,
) -> Tensor:
    """The sum of the losses of our triples."""
    if settings.objective == "softmax":
        return model.softmax_loss(triples) * len(triples)
    corrupted = heads if settings.objective == "pairs" else None
    return pooled_losses(model, triples, corrupted, pool, negatives=settings.negatives).sum()
