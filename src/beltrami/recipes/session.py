"""What a recipe's training holds on to: where it goes on, its checkpoints, its logs."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from beltrami.recipes.checkpoint import Part, load_checkpoint, save_checkpoint
from beltrami.recipes.observer import Observer
from beltrami.recipes.processes import Processes

if TYPE_CHECKING:
    from beltrami.recipes.recipe import Trial

LOGGED = 200  # times that a training's values are logged, evenly spread
SHOWN = 1000  # times that the observer hears of a step


class TrainingDivergedError(ValueError):
    """A logged value is not a number any more; the message names the trial and the step."""


class Session:
    """One training.

    >>> done = session.begin(steps, model=model, optimizer=optimizer, generator=generator)
    >>> for step in range(done, steps):
    ...     session.step(step + 1, loss=loss)

    Everything that changes while training must be among the parts: then a training that was
    killed continues from its last checkpoint and ends where it would have ended.
    """

    def __init__(
        self,
        trial: Trial,
        *,
        checkpoint: Path,
        logs: Path,
        processes: Processes,
        observer: Observer,
        checkpoint_seconds: float = 30.0,
    ) -> None:
        self.trial = trial
        self.processes = processes
        self.history: list[dict[str, float]] = []
        self._checkpoint = checkpoint
        self._logs = logs
        self._observer = observer
        self._interval = checkpoint_seconds
        self._parts: dict[str, Part] = {}
        self._steps = 0
        self._seconds = 0.0  # of training, in this process and those before it
        self._mark = self._saved = time.perf_counter()
        self._writer: Any = None

    @property
    def device(self) -> torch.device:
        """Where to train."""
        return self.processes.device

    @property
    def seconds(self) -> float:
        """Training time so far, also of processes that were interrupted."""
        return self._seconds

    def begin(self, steps: int, **parts: Part) -> int:
        """Restore the parts from the last checkpoint and return how many steps are done."""
        self._steps, self._parts = steps, parts
        facts = load_checkpoint(self._checkpoint, parts)
        done = 0
        if facts is not None and facts["trial"] == self.trial.record():
            done, self._seconds = facts["step"], facts["seconds"]
            self.history = facts["history"]
        if self.processes.is_first:
            self._writer = tensorboard_writer(self._logs, purge_step=done)
        self._observer.training(self.trial, steps, done)
        self._mark = self._saved = time.perf_counter()
        return done

    def step(self, done: int, **values: Tensor | float) -> None:
        """Say that `done` steps are made; now and then log `values` and write a checkpoint."""
        last = done == self._steps
        if last or done % max(1, self._steps // LOGGED) == 0:
            self._log(done, {name: float(value) for name, value in values.items()})
        if last or done % max(1, self._steps // SHOWN) == 0:
            self._observer.stepped(done)
        now = time.perf_counter()
        self._seconds += now - self._mark
        self._mark = now
        if self.processes.is_first and not last and now - self._saved >= self._interval:
            self.save(done)
            self._mark = self._saved = time.perf_counter()

    def save(self, done: int) -> None:
        """Write a checkpoint now."""
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
        facts = {
            "trial": self.trial.record(),
            "step": done,
            "seconds": self._seconds,
            "history": self.history,
        }
        save_checkpoint(self._checkpoint, self._parts, facts)

    def end(self, metrics: dict[str, float | None]) -> None:
        """Log the final metrics and close the logs."""
        if self._writer is not None:
            for name, value in metrics.items():
                if value is not None:
                    self._writer.add_scalar(f"final/{name}", value, self._steps)
            self._writer.close()

    def _log(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            if not math.isfinite(value):
                raise TrainingDivergedError(
                    f"{self.trial.name}: {name} is {value} at step {step} of {self._steps}; "
                    "a smaller learning rate is the usual remedy"
                )
        self.history.append({"step": step, **values})
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"train/{name}", value, step)


def has_tensorboard() -> bool:
    """Whether TensorBoard logs can be written."""
    from importlib.util import find_spec

    return find_spec("tensorboard") is not None


def tensorboard_writer(folder: Path, purge_step: int) -> Any:
    """A writer of TensorBoard logs, or None where the package is not installed."""
    if not has_tensorboard():
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=purge_step or None)
