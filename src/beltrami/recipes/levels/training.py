"""Training of a classifier of levels, with checkpoints and the best epoch by validation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.models.level_classifier import LevelConfig, evaluate_levels
from beltrami.optim import create_optimizer
from beltrami.recipes.recipe import Trial
from beltrami.train import loop
from beltrami.train.seeding import epoch_order
from beltrami.train.session import Session

SMALL = 1 << 24  # numbers of features, below which one thread is quickest


@dataclass(frozen=True)
class LevelsSettings:
    """What a training depends on; see `LevelsConfig`."""

    epochs: int
    batch: int
    weight_decay: float
    model: LevelConfig
    learning_rate: float


def train_levels(
    model: nn.Module,
    train: tuple[Tensor, Tensor],
    validation: tuple[Tensor, Tensor],
    trial: Trial[LevelsSettings],
    session: Session,
) -> None:
    """Train, and leave the model as it was where hierarchical F1 on validation leaves was best.

    Under torchrun the processes share each batch and add up their gradients.

    Args:
        model: a `LevelClassifier`. train, validation: features and targets.
        trial: what to train, and how. session: of the trial.
    """
    features, targets = (part.to(session.device) for part in train)
    settings = trial.settings

    def batches(epoch: int, start: int) -> Iterator[tuple[Tensor]]:
        order = epoch_order(len(features), trial.seed, epoch).to(session.device)
        return ((rows,) for rows in order.split(settings.batch)[start:])

    def loss(rows: Tensor) -> Tensor:
        ours = session.processes.shard(rows)
        return share_of_loss(model(features[ours]), targets[ours], targets[rows])

    per_epoch = math.ceil(len(features) / settings.batch)
    loop.train(
        model,
        create_optimizer(model, lr=settings.learning_rate, weight_decay=settings.weight_decay),
        loss,
        batches,
        steps=settings.epochs * per_epoch,
        steps_per_epoch=per_epoch,
        session=session,
        validate=lambda: evaluate_levels(model, *validation)["micro_f1"],
        seed=trial.seed,
        small=features.numel() < SMALL,
    )


def share_of_loss(scores: Sequence[Tensor], targets: Tensor, whole: Tensor) -> Tensor:
    """What some rows of a batch add to its `level_loss`: all shares sum up to it.

    Args:
        scores: (n, classes) for each level, of our rows.
        targets: int64 (n, levels), of our rows; −1 where there is no class.
        whole: the targets of all rows of the batch.
    """
    known = (whole >= 0).sum(0)
    total = scores[0].sum() * 0.0  # a tensor also where no row has a class
    for level, (row, count) in enumerate(zip(targets.unbind(1), known, strict=True)):
        loss = F.cross_entropy(scores[level], row, ignore_index=-1, reduction="sum")
        total = total + loss / torch.where(count > 0, count, 1)
    return total
