"""Norms, directions and neighbours of tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.source import VectorSource, open_source
from beltrami.diagnosis.table import EXAMPLES, table


def source(tmp_path: Path, x: np.ndarray, labels: bool = False) -> VectorSource:
    path = tmp_path / "x.npy"
    if labels:
        path = tmp_path / "x.csv"
        rows = [f"w{i}," + ",".join(map(str, row)) for i, row in enumerate(x)]
        path.write_text("\n".join(rows), encoding="utf-8")
    else:
        np.save(path, x)
    found = open_source(DiagnoseConfig(str(path), kind="vectors"))
    assert isinstance(found, VectorSource)
    return found


def silent(share: float) -> None:
    assert 0 <= share <= 1


def test_a_flat_sheet_in_many_dimensions_has_two(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(800, 2)) @ rng.normal(size=(2, 30))
    found = table(source(tmp_path, x), torch.arange(800), silent)
    assert found["intrinsic_dimension"]["two_nearest"] == pytest.approx(2, abs=0.3)
    assert found["isotropy"]["effective_dimensions"] <= 2.01
    assert found["compared"] == 800


def test_bands_have_the_words_of_their_norms(tmp_path: Path) -> None:
    x = np.stack([np.arange(1.0, 101.0), np.zeros(100)], 1)
    norms = table(source(tmp_path, x, labels=True), torch.arange(100), silent)["norms"]
    bands = {band["name"]: band for band in norms["bands"]}
    assert bands["shortest"]["examples"] == [f"w{i}" for i in range(EXAMPLES)]
    assert bands["longest"]["examples"][-1] == "w99"
    assert "w49" in bands["middle"]["examples"]
    assert (norms["least"], norms["most"]) == (1, 100)
    assert norms["quantiles"] == sorted(norms["quantiles"])
    assert len(norms["quantiles"]) == 100


def test_few_rows_have_no_neighbours_to_speak_of(tmp_path: Path) -> None:
    found = table(source(tmp_path, np.eye(4)[:, :3] + 1), torch.arange(4), silent)
    assert found["intrinsic_dimension"]["k"] == 3
    tiny = table(source(tmp_path, np.eye(4)[:, :3] + 1), torch.arange(3), silent)
    assert "intrinsic_dimension" not in tiny
    assert "isotropy" in tiny
