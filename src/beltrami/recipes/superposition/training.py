"""Training a stack, and what is kept of its losses."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from beltrami.models.superposition import StackTraining
from beltrami.train.session import LOGGED, Session

LAST = 100  # steps whose mean is the loss


class Tally(nn.Module):
    """Sums of the losses of the last steps; a module, so that checkpoints hold them."""

    def __init__(self, members: int) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(members, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.sums: Tensor
        self.count: Tensor

    def add(self, losses: Tensor) -> None:
        """Those of one more step."""
        self.sums += losses.double()
        self.count += 1

    @property
    def mean(self) -> Tensor:
        """Of the steps that were added."""
        return self.sums / self.count


def train_stack(training: StackTraining, tally: Tally, steps: int, session: Session) -> None:
    """All steps that are left; the tally has the losses of the last ones."""
    every = max(1, steps // LOGGED)
    done = session.begin(steps, training=training, tally=tally)
    for step in range(done, steps):
        kept = step >= steps - LAST
        logged = (step + 1) % every == 0 or step + 1 == steps
        losses = training.step(step, losses=kept or logged)
        if losses is not None and kept:
            tally.add(losses)
        if losses is None:
            session.step(step + 1)
        else:
            session.step(step + 1, loss=losses.mean())
