"""Interrupt a run in the middle of a training and go on: the numbers must be the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from beltrami.recipes.config import RunConfig
from beltrami.recipes.registry import create
from beltrami.recipes.results import RunResult
from beltrami.recipes.runner import run
from beltrami.train.progress import ProgressListener


class Interrupter(ProgressListener):
    """Presses Ctrl-C at the given step of the given training."""

    def __init__(self, training: int, step: int) -> None:
        self.training_now, self.training_wanted, self.step = 0, training, step

    def on_train_begin(self, name: str, steps: int, done: int) -> None:
        self.training_now += 1

    def on_step_end(self, done: int) -> None:
        if self.training_now == self.training_wanted and done == self.step:
            raise KeyboardInterrupt


class Witness(ProgressListener):
    """Remembers where trainings went on."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def on_train_begin(self, name: str, steps: int, done: int) -> None:
        self.done.append(done)


def run_interrupted(config: RunConfig, folder: Path, *, training: int, step: int) -> RunResult:
    """The result of a run that was interrupted once; checks that it went on and ends alike."""
    often = dataclasses.replace(config, checkpoint_seconds=0.0)
    whole = run(create(dataclasses.replace(often, out=folder / "whole")))
    broken = dataclasses.replace(often, out=folder / "broken")
    with pytest.raises(KeyboardInterrupt):
        run(create(broken), Interrupter(training, step))
    assert not (folder / "broken" / "metrics.json").exists()
    witness = Witness()
    resumed = run(create(dataclasses.replace(broken, resume=True)), witness)
    assert witness.done[0] == step - 1  # the step under way had not been saved
    assert set(witness.done[1:]) == {0}
    assert numbers(resumed) == numbers(whole)
    for name in ("report.html", "metrics.json", "config.json"):
        assert (folder / "broken" / name).is_file()
    return resumed


def numbers(run_result: RunResult) -> dict[tuple[Any, ...], Any]:
    """What must not depend on interruptions."""
    return {
        (trial["group"], trial["model"], trial["seed"]): (
            trial["metrics"],
            trial["choice"],
            trial["parameters"],
        )
        for trial in run_result.document["trials"]
    }
