"""Training of a classifier of levels, with checkpoints and the best epoch by validation.

It goes through `Session` and not `transformers.Trainer`: the checkpoints of a run are single
safetensors files that are written whole and hold no pickle, whereas Trainer's are folders with
pickled optimisers and random states; and with networks this small its own work in each step would
take longer than the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.models.level_classifier import LevelConfig, evaluate_levels
from beltrami.optim import create_optimizer
from beltrami.recipes.recipe import Trial
from beltrami.train.best import BestState
from beltrami.train.seeding import epoch_order, mix_seeds, seeded
from beltrami.train.session import Session


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
    batch, processes = trial.settings.batch, session.processes
    per_epoch = math.ceil(len(features) / batch)
    steps = trial.settings.epochs * per_epoch
    optimizer = create_optimizer(
        model, lr=trial.settings.learning_rate, weight_decay=trial.settings.weight_decay
    )
    best = BestState(model)
    for step in range(session.begin(steps, model=model, optimizer=optimizer, best=best), steps):
        epoch, place = divmod(step, per_epoch)
        order = epoch_order(len(features), trial.seed, epoch).to(session.device)
        rows = order[place * batch : (place + 1) * batch]
        ours = processes.shard(rows)
        model.train()
        optimizer.zero_grad()
        with seeded(mix_seeds(trial.seed, step) + processes.rank, session.device):
            loss = share_of_loss(model(features[ours]), targets[ours], targets[rows])
        loss.backward()
        processes.all_reduce_gradients(model.parameters())
        optimizer.step()
        if place == per_epoch - 1:
            f1 = evaluate_levels(model, *validation)["micro_f1"]
            best.update(processes.mean({"f1": f1})["f1"], step + 1)
        session.step(step + 1, loss=processes.all_reduce(loss.detach()))
    best.restore()


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
