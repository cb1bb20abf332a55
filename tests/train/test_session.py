from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from beltrami.recipes.recipe import Trial
from beltrami.train.processes import Processes
from beltrami.train.session import Session, TrainingDivergedError, has_tensorboard
from tests.recipes.tiny import Witness

TRIAL = Trial("m", "g", 0, {"steps": 6})


def session(folder: Path, trial: Trial = TRIAL, seconds: float = 0.0) -> Session:
    return Session(
        trial.name,
        trial.record(),
        checkpoint=folder / "checkpoint.safetensors",
        logs=folder / "logs",
        processes=Processes(torch.device("cpu")),
        listener=Witness(),
        checkpoint_seconds=seconds,
    )


def train(
    to: Session, steps: int, until: int, draws: torch.Generator | None = None
) -> list[tuple[float, float]]:
    """Numbers from a generator of ours and from torch's own, one of each a step."""
    draws = draws or torch.Generator().manual_seed(3)
    found = []
    for step in range(to.begin(steps, draws=draws), until):
        found.append((torch.rand((), generator=draws).item(), torch.rand(()).item()))
        to.step(step + 1, loss=found[-1][0])
    return found


def test_a_session_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = session(tmp_path / "whole")
    expected = train(whole, 6, 6)
    torch.manual_seed(0)
    found = train(session(tmp_path), 6, 3)
    torch.manual_seed(99)
    again = session(tmp_path)
    found += train(again, 6, 6)
    assert found == expected
    assert again.history == whole.history
    assert [entry["step"] for entry in again.history] == [1, 2, 3, 4, 5, 6]
    assert again.seconds > 0


@pytest.mark.parametrize(
    ("trial", "steps"),
    [(replace(TRIAL, settings={"steps": 7}), 6), (replace(TRIAL, seed=1), 6), (TRIAL, 7)],
)
def test_a_checkpoint_of_another_trial_is_ignored(trial: Trial, steps: int, tmp_path: Path) -> None:
    train(session(tmp_path), 6, 3)
    draws = torch.Generator().manual_seed(5)
    before = draws.get_state(), torch.get_rng_state()
    other = session(tmp_path, trial)
    assert other.begin(steps, draws=draws) == 0
    assert other.history == []
    for then, now in zip(before, (draws.get_state(), torch.get_rng_state()), strict=True):
        assert torch.equal(then, now)


def test_checkpoints_keep_their_distance(tmp_path: Path) -> None:
    train(session(tmp_path, seconds=1e6), 6, 5)
    assert not (tmp_path / "checkpoint.safetensors").exists()
    train(session(tmp_path, seconds=0), 6, 5)
    assert (tmp_path / "checkpoint.safetensors").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), torch.tensor(float("nan"))])
def test_divergence_names_trial_step_and_remedy(value: Any, tmp_path: Path) -> None:
    to = session(tmp_path)
    to.begin(6)
    to.step(1, loss=1.0)
    with pytest.raises(TrainingDivergedError, match=r"m-g-seed0: loss is .* at step 2 of 6") as e:
        to.step(2, loss=value)
    assert "smaller learning rate" in str(e.value)


def test_long_trainings_are_logged_a_bounded_number_of_times(tmp_path: Path) -> None:
    to = session(tmp_path, seconds=1e6)
    to.begin(1003)
    for step in range(1003):
        to.step(step + 1, loss=0.0)
    assert 200 <= len(to.history) <= 202
    assert to.history[-1]["step"] == 1003


def logged(folder: Path) -> dict[str, list[int]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files = list(folder.glob("events*"))
    assert len(files) == 1
    found = EventAccumulator(str(files[0]), purge_orphaned_data=False).Reload()
    return {tag: [e.step for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


@pytest.mark.skipif(not has_tensorboard(), reason="needs tensorboard: the extra `logs`")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_every_step_once(tmp_path: Path) -> None:
    killed = session(tmp_path)
    train(killed, 6, 4)
    killed.close()
    (tmp_path / "checkpoint.safetensors").rename(tmp_path / "kept")
    ahead = session(tmp_path)  # gets farther than its checkpoint
    train(ahead, 6, 5)
    ahead.close()
    (tmp_path / "kept").rename(tmp_path / "checkpoint.safetensors")
    resumed = session(tmp_path)
    train(resumed, 6, 6)
    resumed.end({"map": 0.5, "rank": None})
    assert logged(tmp_path / "logs") == {"train/loss": [1, 2, 3, 4, 5, 6], "final/map": [6]}


def test_without_tensorboard_there_are_no_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert not has_tensorboard()
    to = session(tmp_path)
    train(to, 6, 6)
    to.end({"map": 0.5})
    assert not (tmp_path / "logs").exists()
