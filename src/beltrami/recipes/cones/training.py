"""Training of entailment cones, with checkpoints and the best epoch by validation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from beltrami.models.hierarchy.closure_split import ClosureSplit
from beltrami.models.hierarchy.cones import (
    ConeEmbedding,
    check_split,
    cone_loss,
    epoch_pairs,
    judge_cones,
)
from beltrami.optim import RiemannianAdam
from beltrami.recipes.recipe import Trial
from beltrami.train import loop
from beltrami.train.session import Session


@dataclass(frozen=True)
class ConesSettings:
    """What a training depends on; see `ConesConfig`."""

    share: float
    dim: int
    epochs: int
    batch: int
    min_radius: float
    margin: float
    learning_rate: float


def train_cones(
    embedding: ConeEmbedding,
    split: ClosureSplit,
    trial: Trial[ConesSettings],
    session: Session | None = None,
) -> None:
    """Riemannian Adam on shown pairs against fresh false ones; the best epoch is kept."""
    check_split(embedding, split)
    settings, session = trial.settings, session or Session()
    device, shard = session.device, session.processes.shard
    per_epoch = math.ceil(len(split.train) / settings.batch)
    optimizer = RiemannianAdam(embedding, lr=settings.learning_rate)
    optimizer.register_step_post_hook(lambda *_: embedding.keep_outside())

    def batches(epoch: int, start: int) -> Iterator[tuple[Tensor, ...]]:
        pairs = epoch_pairs(split, seed=trial.seed, epoch=epoch)
        parts = (part.split(settings.batch)[start:] for part in pairs)
        return zip(*parts, strict=True)

    def loss(true: Tensor, false: Tensor) -> Tensor:
        ours = (shard(part).to(device) for part in (true, false))
        return cone_loss(embedding, *ours, margin=settings.margin) / len(true)

    loop.train(
        embedding,
        optimizer,
        loss,
        batches,
        steps=settings.epochs * per_epoch,
        steps_per_epoch=per_epoch,
        session=session,
        validate=lambda: judge_cones(embedding, split, "valid").f1,
        small=True,
    )
