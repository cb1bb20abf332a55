"""The loss over levels, one training step, and the evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from beltrami.analysis import level_scores

ROWS_AT_ONCE = 1024  # of features; scores of all classes are held for so many


def level_loss(scores: Sequence[Tensor], targets: Tensor) -> Tensor:
    """The sum over levels of the mean cross-entropy of the samples that have a class there.

    Args:
        scores: (n, classes) for each level.
        targets: int64 (n, levels), −1 where a sample has none.
    """
    if len(scores) != targets.shape[1]:
        raise ValueError(
            f"targets must have a column for each of the {len(scores)} levels, got "
            f"{targets.shape[1]}"
        )
    total = scores[0].sum() * 0.0  # a tensor also where no sample has a class
    for level, row in zip(scores, targets.unbind(1), strict=True):
        known = (row >= 0).sum()
        loss = F.cross_entropy(level, row, ignore_index=-1, reduction="sum")
        total = total + loss / torch.where(known > 0, known, 1)
    return total


def level_step(model: nn.Module, features: Tensor, targets: Tensor, optimizer: Optimizer) -> float:
    """One step of `level_loss` on a batch; returns the loss before it."""
    model.train()
    optimizer.zero_grad()
    loss = level_loss(model(features), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def predict_levels(model: nn.Module, features: Tensor) -> Tensor:
    """The class with the highest score at each level, int64 (n, levels), on the CPU.

    Blocks of rows go to the model's device one by one, so that neither all features nor the scores
    of all rows are there at once.
    """
    model.eval()
    device = next(model.parameters()).device
    blocks = (model(block.to(device)) for block in features.split(ROWS_AT_ONCE))
    classes = (torch.stack([s.argmax(-1) for s in scores], dim=1) for scores in blocks)
    return torch.cat([block.cpu() for block in classes])


def evaluate_levels(model: nn.Module, features: Tensor, targets: Tensor) -> dict[str, float]:
    """Accuracy at each level and hierarchical F1 (`micro_f1`), see `analysis.level_scores`."""
    return level_scores(predict_levels(model, features), targets.cpu()).as_dict()
