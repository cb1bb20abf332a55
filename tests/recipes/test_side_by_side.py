"""Trials side by side: the same numbers, once each, and ends that are told."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from beltrami.recipes.recipe import Trial
from beltrami.recipes.runner import run
from beltrami.train.processes import ProcessLostError
from beltrami.train.session import TrainingDivergedError
from tests.recipes.tiny import TinyConfig, TinyRecipe, Witness, numbers

TWO = TinyConfig(jobs=2, seeds=3, device="cpu")


class DyingRecipe(TinyRecipe):
    """Its process is gone when it comes to the second seed."""

    def build(self, trial: Trial):  # type: ignore[no-untyped-def]
        if trial.seed == 1:
            os._exit(9)
        return super().build(trial)


class PausingRecipe(TinyRecipe):
    """Sleeps in the middle of a training."""

    def train(self, model, trial: Trial, session):  # type: ignore[no-untyped-def]
        stepped = session.step

        def slow(done: int, **logged: float) -> None:
            stepped(done, **logged)
            if done == 2:
                time.sleep(2)

        session.step = slow
        super().train(model, trial, session)


def test_what_is_done_of_trials_under_way_is_told(tmp_path: Path) -> None:
    witness = Witness()
    run(PausingRecipe(replace(TWO, out=tmp_path, seeds=1, rates=(0.1,))), witness)
    assert {0.5, 1.0, 1.5} & set(witness.parts)  # a half, with nothing, a half or a whole beside it
    assert max(witness.parts) <= 2


def test_the_numbers_are_those_of_one_after_the_other(tmp_path: Path) -> None:
    one = run(TinyRecipe(replace(TWO, jobs=1, out=tmp_path / "one")))
    witness = Witness()
    two = run(TinyRecipe(replace(TWO, out=tmp_path / "two")), witness)
    assert numbers(two.document) == numbers(one.document)
    assert two.document["environment"]["jobs"] == 2
    assert witness.planned == len(witness.results) == 8
    assert len({result.trial.name for result, _ in witness.results}) == 8
    assert witness.reused == 0
    assert (tmp_path / "two/report.html").is_file()


def test_finished_trials_are_not_trained_again(tmp_path: Path) -> None:
    config = replace(TWO, out=tmp_path, seeds=2)
    first = run(TinyRecipe(config)).document
    witness = Witness()
    more = run(TinyRecipe(replace(config, seeds=3, resume=True)), witness).document
    assert (witness.reused, len(witness.results)) == (6, 8)
    kept = [t for t in more["trials"] if t["seed"] < 2]
    assert kept == first["trials"]


def test_a_choice_may_diverge_but_not_all(tmp_path: Path) -> None:
    found = run(TinyRecipe(replace(TWO, out=tmp_path / "a", diverges_from=0.15)))
    assert {t["choice"]["rate"] for t in found.document["trials"]} == {0.1}
    with pytest.raises(TrainingDivergedError, match="loss"):
        run(TinyRecipe(replace(TWO, out=tmp_path / "b", diverges_from=0.05)))


def test_a_process_that_ends_is_told(tmp_path: Path) -> None:
    config = replace(TWO, out=tmp_path)
    with pytest.raises(ProcessLostError, match="fewer --jobs need less"):
        run(DyingRecipe(config))
    witness = Witness()
    run(TinyRecipe(replace(config, resume=True)), witness)
    assert witness.reused >= 2  # what was finished is still there


class SlowRecipe(TinyRecipe):
    """Trials that take a while."""

    def build(self, trial: Trial):  # type: ignore[no-untyped-def]
        time.sleep(0.5)
        return super().build(trial)


class UnreadyRecipe(TinyRecipe):
    """Cannot begin but in the first process."""

    def prepare(self, listener: object, device: object) -> None:
        import multiprocessing

        if multiprocessing.parent_process() is not None:
            raise StubbornError(reason="no model here")


class StubbornError(Exception):
    """Cannot be sent to another process."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason)


def test_what_goes_wrong_in_another_process_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="StubbornError: no model here"):
        run(UnreadyRecipe(replace(TWO, out=tmp_path)))


def test_an_error_does_not_wait_for_what_is_still_to_be_trained(tmp_path: Path) -> None:
    class Stop(Witness):
        def on_trial_end(self, result: object, reused: bool) -> None:
            raise KeyboardInterrupt

    config = replace(TWO, out=tmp_path, rates=(0.1, 0.11, 0.12, 0.13, 0.14, 0.15))
    with pytest.raises(KeyboardInterrupt):
        run(SlowRecipe(config), Stop())
    assert len(list(tmp_path.glob("trials/*/result.json"))) < 8  # of 12


def test_an_interruption_ends_the_processes(tmp_path: Path) -> None:
    import multiprocessing

    class Stop(Witness):
        def on_trial_end(self, result: object, reused: bool) -> None:
            raise KeyboardInterrupt

    before = set(multiprocessing.active_children())
    with pytest.raises(KeyboardInterrupt):
        run(TinyRecipe(replace(TWO, out=tmp_path)), Stop())
    left = {child.pid for child in set(multiprocessing.active_children()) - before}
    deadline = time.monotonic() + 30
    while any(map(is_there, left)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_there, left))


def is_there(pid: int | None) -> bool:
    """Asked of the system: a thread of the pool may just have waited for the process."""
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_options_that_make_no_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="--jobs must be at least 1, got 0"):
        TinyRecipe(replace(TWO, jobs=0))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="torchrun started several"):
        TinyRecipe(TWO)


def test_jobs_are_no_part_of_the_experiment() -> None:
    assert "jobs" not in TWO.settings()
    assert "--jobs=2" in TWO.command()
