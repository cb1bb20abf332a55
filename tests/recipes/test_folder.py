from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from beltrami.recipes.folder import RunFolder
from beltrami.recipes.recipe import Trial
from beltrami.recipes.results import TrialResult

TRIAL = Trial("lorentz", "5 dimensions", 0, {"epochs": 3, "inner": {"a": 1}}, {"rate": 0.1})


def result(trial: Trial = TRIAL) -> TrialResult:
    weight = torch.arange(6.0).view(2, 3).t()
    state = {"weight": weight, "tied": weight, "half": torch.ones(2, dtype=torch.bfloat16)}
    metrics = {"map": 0.1 + 0.2, "rank": None}
    return TrialResult(trial, metrics, {"x": [0.5]}, [{"step": 1, "loss": 2.0}], 6, 1.5, state)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.check_writable()
    folder.config.write_text('{"schema": "beltrami.run/1"}')
    return folder


def files(folder: RunFolder) -> set[str]:
    return {str(p.relative_to(folder.path)) for p in folder.path.rglob("*") if p.is_file()}


def test_a_result_comes_back(folder: RunFolder) -> None:
    folder.checkpoint(TRIAL).parent.mkdir(parents=True)
    folder.checkpoint(TRIAL).touch()
    folder.save(result())
    assert not folder.checkpoint(TRIAL).exists()
    found = folder.load(TRIAL)
    assert found is not None
    assert found.metrics == {"map": 0.1 + 0.2, "rank": None}
    assert (found.curves, found.history) == ({"x": [0.5]}, [{"step": 1, "loss": 2.0}])
    assert (found.parameters, found.seconds, found.diverged) == (6, 1.5, None)
    for name, tensor in result().state.items():
        assert found.state[name].dtype == tensor.dtype
        assert torch.equal(found.state[name], tensor)
    assert folder.finished() == 1


@pytest.mark.parametrize("name", ["result.json", "model.safetensors"])
def test_a_trial_without_its_files_is_not_counted(folder: RunFolder, name: str) -> None:
    """It is trained again."""
    folder.save(result())
    (folder.path / "trials" / TRIAL.name / name).unlink()
    assert folder.finished() == 0


@pytest.mark.parametrize("name", ["result.json", "model.safetensors"])
@pytest.mark.parametrize(
    "content", [None, b"", b"[1]", b"\xff\xfe", b'{"trial": {}', b'{"trial": 3}', b"[" * 100_000]
)
def test_a_damaged_result_is_as_if_it_were_not_there(
    folder: RunFolder, name: str, content: bytes | None
) -> None:
    folder.save(result())
    path = folder.path / "trials" / TRIAL.name / name
    path.unlink() if content is None else path.write_bytes(content)
    assert folder.load(TRIAL) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("metrics", {"map": "high"}), ("trial", []), ("seconds", None), ("history", {})],
)
def test_a_result_of_another_shape_is_done_again(
    folder: RunFolder, key: str, value: object
) -> None:
    folder.save(result())
    path = folder.path / "trials" / TRIAL.name / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    assert folder.load(TRIAL) is None


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"epochs": 4, "inner": {"a": 1}}, "epochs was 3, now 4"),
        ({"epochs": 3, "inner": {"a": 2}}, "a was 1, now 2"),
        ({"epochs": 3, "inner": {"a": 1}, "new": "x"}, "new was None, now 'x'"),
        ({"epochs": 3}, "inner was {'a': 1}, now None"),
    ],
)
def test_other_settings_are_refused_and_named(
    folder: RunFolder, settings: dict[str, object], named: str
) -> None:
    folder.save(result())
    other = Trial(TRIAL.model, TRIAL.group, TRIAL.seed, settings, TRIAL.choice)
    with pytest.raises(ValueError, match="other settings") as error:
        folder.load(other)
    assert named in str(error.value)


def test_names_of_trials_tell_close_choices_apart() -> None:
    names = {
        Trial("m", "g", 0, {}, {"rate": rate}).name for rate in (0.1234567, 0.1234568, 1e-8, 1)
    }
    assert len(names) == 4
    assert Trial("a/../b", "<x>", 0, {}).name == "a_.._b-_x_-seed0"


def test_clearing_deletes_ours_and_nothing_else(folder: RunFolder) -> None:
    folder.save(result())
    folder.checkpoint(TRIAL).touch()
    folder.logs(TRIAL).mkdir(parents=True)
    (folder.logs(TRIAL) / "events.out.tfevents.1.vm.2.3").touch()
    (folder.path / ".metrics.json.abc.tmp").touch()
    for path in (folder.metrics, folder.report):
        path.touch()
    theirs = {"notes.txt", "trials/notes.txt", f"trials/{TRIAL.name}/mine.txt", "logs/other/x.log"}
    for name in theirs:
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).touch()
    folder.clear()
    assert files(folder) == theirs
    for name in theirs:
        (folder.path / name).unlink()
    (folder.path / "logs/other").rmdir()
    folder.clear()
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize("name", ["config.json", "metrics.json", "report.html"])
def test_files_of_something_else_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match=f"{name} is not of a run"):
        RunFolder(tmp_path).holds_a_run()


def test_sweeping_leaves_whole_files(folder: RunFolder) -> None:
    folder.save(result())
    whole = files(folder)
    trial = folder.path / "trials" / TRIAL.name
    for path in (trial / ".result.json.x.tmp", folder.path / ".config.json.y.tmp"):
        path.touch()
    folder.checkpoint(TRIAL).touch()  # of a finished trial
    unfinished = folder.checkpoint(Trial("m", "g", 1, {}))
    unfinished.parent.mkdir()
    unfinished.touch()
    folder.sweep()
    assert files(folder) == whole | {str(unfinished.relative_to(folder.path))}
