"""A training session: where to resume, checkpoints, logs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from beltrami.train.checkpoint import Part, load_checkpoint, save_checkpoint
from beltrami.train.processes import Processes
from beltrami.train.progress import ProgressListener

LOGGED = 200  # entries in a training's history, evenly spread
SHOWN = 1000  # calls of the listener's on_step_end
LOG_FILES = "events.out.tfevents.*"  # TensorBoard's names


class TrainingDivergedError(ValueError):
    """A logged value is not finite; the message names the training and the step."""


class Session:
    """One training: it restores, logs and writes checkpoints; `Session()` does nothing on disk.

    >>> done = session.begin(steps, model=model, optimizer=optimizer, generator=generator)
    >>> for step in range(done, steps):
    ...     session.step(step + 1, loss=loss)

    Everything that changes while training must be among the parts: then a training that was
    killed continues from its last checkpoint and ends where it would have ended. Torch's own
    generators, from which dropout draws, are kept without being named; python's and numpy's are
    not.

    Args:
        name: of the training, for messages.
        settings: all that the result depends on, JSON-able; a checkpoint of other settings is
            ignored.
        checkpoint: file of the checkpoint, if one is to be written.
        logs: folder of TensorBoard logs, if they are to be written.
        processes: those that train together; by default this one, on the CPU.
        listener: is called while the training goes on.
        checkpoint_seconds: between two checkpoints; 0 writes one after every step.
    """

    def __init__(
        self,
        name: str = "training",
        settings: Mapping[str, Any] | None = None,
        *,
        checkpoint: Path | None = None,
        logs: Path | None = None,
        processes: Processes | None = None,
        listener: ProgressListener | None = None,
        checkpoint_seconds: float = 30.0,
    ) -> None:
        self.name = name
        self._settings = settings or {}
        self.processes = processes or Processes(torch.device("cpu"))
        self.history: list[dict[str, float]] = []
        self._checkpoint = checkpoint
        self._logs = logs
        self._listener = listener or ProgressListener()
        self._interval = checkpoint_seconds
        self._parts: dict[str, Part] = {}
        self._steps = 0
        self._seconds = 0.0  # of training, in this process and those before it
        self._mark = self._saved = time.perf_counter()
        self._writer: Any = None

    @property
    def device(self) -> torch.device:
        """The device to train on."""
        return self.processes.device

    @property
    def seconds(self) -> float:
        """Training time so far, also of processes that were interrupted."""
        return self._seconds

    def begin(self, steps: int, **parts: Part) -> int:
        """Restore the parts from the last checkpoint and return how many steps are done."""
        self._steps, self._parts = steps, {**parts, **_global_generators(self.device)}
        facts, done = None, 0
        if self._checkpoint is not None:
            facts = load_checkpoint(self._checkpoint, self._parts, self._is_ours)
        if facts is not None:
            done, self._seconds = facts["step"], facts["seconds"]
            self.history = facts["history"]
        if self.processes.any_process(done != self.processes.broadcast(done)):
            raise OSError(f"the processes do not see the same {self._checkpoint}")
        if self.processes.is_main_process and self._logs is not None:
            self._writer = tensorboard_writer(self._logs)
            for entry in self.history:
                self._write_logs(entry)
        self._listener.on_train_begin(self.name, steps, done)
        self._mark = self._saved = time.perf_counter()
        return done

    def step(self, done: int, **values: Tensor | float) -> None:
        """Report that `done` steps are made; at intervals log `values` and write a checkpoint."""
        last = done == self._steps
        if last or done % max(1, self._steps // LOGGED) == 0:
            self._log(done, {name: float(value) for name, value in values.items()})
        if last or done % max(1, self._steps // SHOWN) == 0:
            self._listener.on_step_end(done)
        now = time.perf_counter()
        self._seconds += now - self._mark
        self._mark = now
        if not last and now - self._saved >= self._interval:
            self.save(done)
            self._mark = self._saved = time.perf_counter()

    def save(self, done: int) -> None:
        """Write a checkpoint now, in the main process."""
        if self._checkpoint is None or not self.processes.is_main_process:
            return
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
        facts = {
            "trial": self._settings,
            "steps": self._steps,
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
        self.close()

    def close(self) -> None:
        """Close the logs, also of a training that was interrupted."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _is_ours(self, facts: dict[str, Any]) -> bool:
        """Whether a checkpoint is of this very training, and not of one with other settings."""
        return bool(facts["trial"] == self._settings) and facts["steps"] == self._steps

    def _log(self, step: int, values: dict[str, float]) -> None:
        bad = next((f"{k} is {v}" for k, v in values.items() if not math.isfinite(v)), None)
        # All processes stop together, or the others would wait for one that is gone.
        if self.processes.any_process(bad is not None):
            raise TrainingDivergedError(
                f"{self.name}: {bad or 'a value is not finite in another process'} at step "
                f"{step} of {self._steps}{self._nonfinite_parameter()}; a smaller learning rate is "
                "the usual remedy"
            )
        entry = {"step": step, **values}
        self.history.append(entry)
        self._write_logs(entry)

    def _nonfinite_parameter(self) -> str:
        """The first parameter that is not finite, in words; nothing where all are."""
        modules = [part for part in self._parts.values() if isinstance(part, nn.Module)]
        for name, parameter in (item for m in modules for item in m.named_parameters()):
            if not bool(torch.isfinite(parameter).all()):
                return f", and the parameter {name} is not finite either"
        return ""

    def _write_logs(self, entry: dict[str, float]) -> None:
        if self._writer is not None:
            for name, value in entry.items():
                if name != "step":
                    self._writer.add_scalar(f"train/{name}", value, entry["step"])


def has_tensorboard() -> bool:
    """Whether TensorBoard logs can be written."""
    return _summary_writer() is not None


def tensorboard_writer(folder: Path) -> Any:
    """A writer of TensorBoard logs, or None where the package is not installed.

    Logs of an interrupted training are deleted; the caller writes them again from its history. So
    no step is there twice, whatever program reads them.
    """
    writer = _summary_writer()
    if writer is None:
        return None
    for old in folder.glob(LOG_FILES):
        old.unlink()
    return writer(str(folder))


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # not there, or too old for this torch
        return None
    return SummaryWriter


def _global_generators(device: torch.device) -> dict[str, Part]:
    """Torch's own generators, under names that no caller gives to a part."""
    generators: dict[str, Part] = {"torch cpu": torch.default_generator}
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators["torch cuda"] = torch.cuda.default_generators[index]
    return generators
