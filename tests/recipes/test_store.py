from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import torch

from beltrami.data.atomic import to_json, write_atomically
from beltrami.recipes.store import RunStore


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    points = torch.randn(3, 2, dtype=torch.float64)
    RunStore(tmp_path, {"steps": 5}).save("a", {"loss": 0.5}, {"points": points.T})
    results, tensors = RunStore(tmp_path, {"steps": 5}).load("a") or ({}, {})
    assert results == {"loss": 0.5}
    assert torch.equal(tensors["points"], points.T)


def test_other_settings_are_neither_used_nor_overwritten(tmp_path: Path) -> None:
    first, second = RunStore(tmp_path, {"steps": 5}), RunStore(tmp_path, {"steps": 6})
    first.save("a", {"loss": 0.5}, {"points": torch.zeros(1)})
    assert second.load("a") is None
    assert (second.finished(), second.others()) == (0, 1)
    second.save("a", {"loss": 0.25}, {"points": torch.zeros(1)})
    found = first.load("a")
    assert found is not None
    assert found[0] == {"loss": 0.5}
    assert (first.finished(), first.others()) == (1, 1)


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
@pytest.mark.parametrize("damage", ["cut", "delete", "empty"])
def test_damaged_runs_count_as_unfinished(tmp_path: Path, suffix: str, damage: str) -> None:
    store = RunStore(tmp_path, {"steps": 5})
    store.save("a", {"loss": 0.5}, {"points": torch.ones(4)})
    file = store.folder / f"a.{suffix}"
    if damage == "delete":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:20] if damage == "cut" else b"")
    assert store.load("a") is None


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    write_atomically(target, "old")

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, "new")
    assert [f.name for f in tmp_path.iterdir()] == ["file"]
    assert target.read_text() == "old"


def test_a_name_that_is_no_utf8_is_written_and_read_again(tmp_path: Path) -> None:
    name = {"name": "bad\udcff.npy", "ω": "\U0001d714"}
    write_atomically(tmp_path / "x.json", to_json(name))
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert "ω" in text
    assert r"bad\udcff.npy" in text
    assert json.loads(text) == name


def test_written_files_follow_the_umask(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    write_atomically(tmp_path / "ours", b"x")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)
