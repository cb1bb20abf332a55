from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beltrami.embeddings import load_run
from beltrami.embeddings.files import write_embedding
from tests.embeddings.small import LABELS, tree


def metric(value: float | None, better: str = "higher") -> dict[str, object]:
    return {"metric": {"key": "map", "title": "MAP", "better": better, "value": value}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name, c, value in (("curved", 0.5, 0.9), ("flatter", 0.1, 0.95), ("bad", 1.0, None)):
        folder = tmp_path / "trials" / name
        folder.mkdir(parents=True)
        write_embedding(folder, tree(c), {"model": name, **metric(value)})
    return tmp_path


def test_the_files_hold_the_same_points(run: Path) -> None:
    folder = run / "trials" / "curved"
    points = tree(0.5).points
    arrays = np.load(folder / "embeddings.npz", allow_pickle=False)
    assert arrays["labels"].tolist() == list(LABELS)
    assert np.array_equal(arrays["points"], points.numpy())
    with (folder / "embeddings.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["label", "x1", "x2"]
    assert [row[0] for row in rows] == list(LABELS)
    assert [[float(x) for x in row[1:]] for row in rows] == points.tolist()
    about = json.loads((folder / "embedding.json").read_text())
    assert about["manifold"] == {"kind": "lorentz", "c": 0.5}
    assert (about["points"], about["dim"]) == (7, 2)


def test_the_best_trial_is_loaded(run: Path) -> None:
    assert load_run(run).facts["model"] == "flatter"
    assert load_run(run, model="curved").manifold.c == 0.5
    assert load_run(run, trial="bad").manifold.c == 1.0
    assert load_run(run / "trials" / "curved").ancestors("a") == ["left", "root"]


def test_the_best_may_be_the_lowest(tmp_path: Path) -> None:
    for name, value in (("x", 3.0), ("y", 2.0)):
        folder = tmp_path / "trials" / name
        folder.mkdir(parents=True)
        write_embedding(folder, tree(), {"model": name, **metric(value, "lower")})
    assert load_run(tmp_path).facts["model"] == "y"


def test_of_equal_ones_few_dimensions_are_taken(tmp_path: Path) -> None:
    for name, dim in (("a", 5), ("b", 2), ("c", 3)):
        folder = tmp_path / "trials" / name
        folder.mkdir(parents=True)
        write_embedding(folder, tree(), {"model": name, **metric(1.0)})
        about = json.loads((folder / "embedding.json").read_text())
        (folder / "embedding.json").write_text(json.dumps({**about, "dim": dim}))
    assert load_run(tmp_path).facts["model"] == "b"


def test_what_is_not_there_is_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nosuch is not there"):
        load_run(run / "nosuch")
    with pytest.raises(ValueError, match="no embedding of model 'x', only of bad, curved, flatter"):
        load_run(run, model="x")
    with pytest.raises(ValueError, match="no embedding of trial 'x'"):
        load_run(run, trial="x")
    with pytest.raises(ValueError, match="no embedding of trial 'bad', only of curved"):
        load_run(run, model="curved", trial="bad")
    with pytest.raises(ValueError, match="holds no embedding"):
        load_run(run / "trials")


def test_a_damaged_file_is_named(run: Path) -> None:
    (run / "trials" / "flatter" / "embeddings.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(ValueError, match=r"embeddings\.npz is missing or damaged.*--resume"):
        load_run(run)
    (run / "trials" / "curved" / "embedding.json").write_text("{")
    with pytest.raises(ValueError, match=r"embedding\.json is missing or damaged"):
        load_run(run, trial="curved")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"\x93NUMPY", b"text"])
def test_arrays_of_all_kinds_of_damage_are_named(run: Path, content: bytes) -> None:
    (run / "trials" / "flatter" / "embeddings.npz").write_bytes(content)
    with pytest.raises(ValueError, match="missing or damaged"):
        load_run(run)


@given(st.binary(min_size=1, max_size=4), st.integers(0, 700))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_flipped_bytes_are_damage_or_harmless(run: Path, noise: bytes, place: int) -> None:
    path = run / "trials" / "curved" / "embeddings.npz"
    whole = path.read_bytes()
    place %= len(whole)
    path.write_bytes(whole[:place] + noise + whole[place + len(noise) :])
    try:
        load_run(run, model="curved")
    except ValueError as error:
        assert "missing or damaged" in str(error)  # noqa: PT017
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "changes", [{"manifold": 3}, {"manifold": {"kind": "x"}}, {"name": None}, {"metric": "x"}]
)
def test_a_description_of_another_shape_is_named_or_left_out(
    run: Path, changes: dict[str, object]
) -> None:
    path = run / "trials" / "curved" / "embedding.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps({**about, **changes}))
    if "manifold" in changes:
        with pytest.raises(ValueError, match="missing or damaged"):
            load_run(run, model="curved")
    else:
        load_run(run, model="curved")


@pytest.mark.slow
def test_no_training_code_is_loaded(run: Path) -> None:
    code = (
        "import sys\n"
        "from beltrami.embeddings import load_run\n"
        "load_run(sys.argv[1]).add('new', ['left'])\n"
        "loaded = {name.split('.')[1] for name in sys.modules if name.startswith('beltrami.')}\n"
        "print(sorted(loaded))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == str(["checks", "data", "embeddings", "geometry", "lazy"])


def test_saved_points_load_as_a_run(tmp_path: Path) -> None:
    path = tree().save(tmp_path / "tree.safetensors")
    assert torch.equal(load_run(path).points, tree().points)
