from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from beltrami.embeddings import FORMATS, Embedding, export_embedding
from beltrami.embeddings.export import in_coordinates
from beltrami.geometry import Euclidean, poincare
from tests.embeddings.small import LABELS, TANGENT, tree


def test_word2vec_text_has_a_label_and_its_coordinates(tmp_path: Path) -> None:
    (path,) = export_embedding(tree(), tmp_path / "tree.txt", "word2vec")
    first, *lines = path.read_text().splitlines()
    assert first == "7 2"
    assert [line.split()[0] for line in lines] == [label.replace(" ", "_") for label in LABELS]
    points = [[float(x) for x in line.split()[1:]] for line in lines]
    assert np.allclose(points, TANGENT)  # for tools that take vectors as flat
    (path,) = export_embedding(tree(), tmp_path / "own.txt", "word2vec", "own")
    assert "-1.1752011936438014" in path.read_text()


def test_labels_that_become_one_are_refused(tmp_path: Path) -> None:
    embedding = Embedding(("a b", "a_b"), torch.zeros(2, 2), Euclidean())
    with pytest.raises(ValueError, match="'a b' and 'a_b' are both 'a_b'"):
        export_embedding(embedding, tmp_path / "x.txt", "word2vec")


def test_the_projector_has_two_files(tmp_path: Path) -> None:
    vectors, labels = export_embedding(tree(), tmp_path / "out", "projector")
    assert labels.read_text().splitlines() == list(LABELS)
    assert np.allclose(np.loadtxt(vectors, delimiter="\t"), TANGENT)


def test_parquet_has_a_column_a_coordinate(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (path,) = export_embedding(tree(), tmp_path / "tree.parquet", "parquet")
    table = parquet.read_table(path).to_pydict()
    assert table["label"] == list(LABELS)
    assert np.array_equal(np.stack([table["x1"], table["x2"]], 1), tree().points.numpy())


def test_arrays_and_tables_are_written(tmp_path: Path) -> None:
    assert set(FORMATS) == {"csv", "npz", "parquet", "projector", "word2vec"}
    (arrays,) = export_embedding(tree(), tmp_path / "tree.npz", "npz", "tangent")
    assert np.allclose(np.load(arrays)["points"], TANGENT)
    (table,) = export_embedding(tree(), tmp_path / "deeper" / "tree.csv", "csv")
    assert table.read_text().startswith("label,x1,x2\nroot,0.0,0.0\n")
    with pytest.raises(ValueError, match="format must be one of"):
        export_embedding(tree(), tmp_path / "x", "excel")


def test_coordinates_keep_what_they_promise() -> None:
    embedding = tree(c=0.25)
    disk = in_coordinates(embedding, "poincare")
    assert torch.allclose(disk.points / 0.5, poincare.from_lorentz(embedding.points, 0.25))
    assert disk.distance("a", "e") == pytest.approx(embedding.distance("a", "e") * 0.5)
    assert torch.allclose(in_coordinates(disk, "poincare").points, disk.points)
    flat = Embedding(LABELS, torch.zeros(7, 2), Euclidean())
    with pytest.raises(ValueError, match="are for one hyperbolic space"):
        in_coordinates(flat, "poincare")
