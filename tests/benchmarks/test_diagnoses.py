"""The guide's table of diagnoses, and the memory of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.diagnose import diagnose
from benchmarks import diagnoses, diagnosis_memory, markers
from benchmarks.diagnoses import NotADiagnosisError, keep, read, table


def test_the_page_shows_what_is_kept() -> None:
    kept = [read(path) for path in sorted(diagnoses.FOLDER.glob("*.json"))]
    assert len(kept) == 4
    assert markers.read(diagnoses.PAGE, diagnoses.PART) == table(kept)


@pytest.mark.slow
def test_a_diagnosis_is_kept_without_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).normal(size=(60, 5)))
    diagnose(DiagnoseConfig("x.npy"))
    path = keep(Path("runs/diagnose-x.npy"), "abc1234", tmp_path / "kept")
    assert str(tmp_path) not in path.read_text(encoding="utf-8")
    assert read(path)["commit"] == "abc1234"
    assert "| rows × columns | 60 × 5 |" in table([read(path)])


def test_other_options_than_the_usual_ones_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(60, 5)))
    some = DiagnoseConfig(str(tmp_path / "x.npy"), only=("vectors",), out=tmp_path / "out")
    diagnose(some)
    with pytest.raises(NotADiagnosisError, match="usual options, and has no tree-likeness"):
        keep(tmp_path / "out", "abc1234")


def test_a_folder_without_a_diagnosis(tmp_path: Path) -> None:
    with pytest.raises(NotADiagnosisError, match="is not a diagnosis"):
        keep(tmp_path, "abc1234")
    (tmp_path / "diagnosis.json").write_text('{"schema": "other"}', encoding="utf-8")
    with pytest.raises(NotADiagnosisError, match="is not a diagnosis"):
        keep(tmp_path, "abc1234")


@pytest.mark.slow
def test_memory_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    diagnosis_memory.write_table(path, 100, 8)
    assert 0.1 < diagnosis_memory.most_memory(path, tmp_path / "out", ("superposition",)) < 4
    with pytest.raises(RuntimeError, match="the diagnosis failed"):
        diagnosis_memory.most_memory(tmp_path / "nowhere.safetensors", tmp_path / "out2")
