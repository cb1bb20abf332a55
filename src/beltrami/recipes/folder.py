"""A run on disk.

    config.json                    what was asked for, written first
    metrics.json, report.html      written last
    trials/NAME/result.json        a finished trial; written after its model.safetensors
    trials/NAME/checkpoint.safetensors   a trial that is not finished yet
    logs/NAME/                     TensorBoard

Every file is written whole or not at all, so a run may be killed at any moment.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from beltrami.data.atomic import to_json, write_atomically
from beltrami.recipes.outcome import TrialResult
from beltrami.recipes.recipe import Trial

SCHEMA = "beltrami.run/1"
OURS = ("config.json", "metrics.json", "report.html", "trials", "logs")


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def config(self) -> Path:
        """What was asked for."""
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        """What was found."""
        return self.path / "metrics.json"

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.path / "report.html"

    def holds_a_run(self) -> bool:
        """Whether a run was started here."""
        return self.config.exists()

    def clear(self) -> None:
        """Delete what a run left here, and nothing else."""
        for name in OURS:
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def check_writable(self) -> None:
        """Make the folder and try to write there, so that it fails now and not in an hour."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except FileExistsError as error:
            raise ValueError(f"--out {self.path} is a file; give a folder") from error
        except NotADirectoryError as error:
            raise ValueError(
                f"--out {self.path}: a part of this path is a file; give a folder"
            ) from error
        except OSError as error:
            reason = error.strerror or error
            raise ValueError(
                f"--out {self.path} cannot be written ({reason}); give a folder of your own"
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from working here; its attempt is a `ValueError`."""
        try:
            import fcntl
        except ImportError:  # not POSIX: no lock, and no harm where nobody starts it twice
            yield
            return
        handle = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ValueError(
                    f"another process is working in {self.path}; wait for it, or give another --out"
                ) from error
            yield
        finally:
            os.close(handle)

    def checkpoint(self, trial: Trial) -> Path:
        """Where an unfinished trial keeps its state."""
        return self._trial(trial) / "checkpoint.safetensors"

    def logs(self, trial: Trial) -> Path:
        """Where a trial's TensorBoard logs go."""
        return self.path / "logs" / trial.name

    def save(self, result: TrialResult) -> None:
        """Write a finished trial; result.json last, as the mark that it is complete."""
        folder = self._trial(result.trial)
        folder.mkdir(parents=True, exist_ok=True)
        state = {key: tensor.detach().cpu().contiguous() for key, tensor in result.state.items()}
        write_atomically(folder / "model.safetensors", save(state))
        record = {
            "trial": result.trial.record(),
            "metrics": dict(result.metrics),
            "parameters": result.parameters,
            "seconds": result.seconds,
            "diverged": result.diverged,
            "curves": {key: list(values) for key, values in result.curves.items()},
            "history": [dict(entry) for entry in result.history],
        }
        write_atomically(folder / "result.json", to_json(record))
        self.checkpoint(result.trial).unlink(missing_ok=True)

    def load(self, trial: Trial) -> TrialResult | None:
        """A finished trial, or None; one made under other settings is a `ValueError`."""
        folder = self._trial(trial)
        try:
            record = json.loads((folder / "result.json").read_text(encoding="utf-8"))
            state = load((folder / "model.safetensors").read_bytes())
            found = record["trial"]
            result = TrialResult(
                trial,
                record["metrics"],
                record["curves"],
                record["history"],
                record["parameters"],
                record["seconds"],
                state,
                record["diverged"],
            )
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):
            return None  # missing or damaged: the trial is simply done again
        if difference := _first_difference(found, trial.record()):
            raise ValueError(
                f"{self.path} holds a trial {trial.name} with other settings ({difference}); "
                "give another --out, or --fresh to start over"
            )
        return result

    def finished(self) -> int:
        """How many complete trials the folder holds."""
        return len(list(self.path.glob("trials/*/result.json")))

    def _trial(self, trial: Trial) -> Path:
        return self.path / "trials" / trial.name


def _first_difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Where two records differ, in words."""
    for key in [*now, *(key for key in then if key not in now)]:
        old, new = then.get(key), now.get(key)
        if old != new and isinstance(old, dict) and isinstance(new, dict):
            return _first_difference(old, new)
        if old != new:
            return f"{key} was {old!r}, now {new!r}"
    return None
