from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from beltrami.data.vectors import Vectors, VectorsError, open_vectors
from tests.data.vectors.tables import MATRIX, WORDS, check_reads

pa = pytest.importorskip("pyarrow", reason='needs pip install "beltrami[parquet]"')
pq = pytest.importorskip("pyarrow.parquet")

LISTS = MATRIX.tolist()
COLUMNS = {"x": MATRIX[:, 0].numpy(), "y": MATRIX[:, 1].numpy(), "z": MATRIX[:, 2].numpy()}


def opened(folder: Path, columns: dict[str, Any], groups: int = 3, **options: Any) -> Vectors:
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=groups)
    return open_vectors(folder / "a.parquet", **options)


@pytest.mark.parametrize("groups", [1, 2, 3, 100])
def test_columns_of_numbers(tmp_path: Path, groups: int) -> None:
    columns = {"x": COLUMNS["x"], "word": WORDS, "y": COLUMNS["y"], "kind": list("apap")}
    vectors = opened(tmp_path, {**columns, "z": COLUMNS["z"]}, groups)
    check_reads(vectors)
    assert vectors.labels == WORDS
    assert vectors.extras == {"kind": list("apap")}
    assert vectors.tensor is None
    assert vectors.name == "a.parquet"


def test_numbers_that_are_no_dimensions(tmp_path: Path) -> None:
    years = [1900, 1950, 1960, 2000]
    vectors = opened(tmp_path, {"year": years, "word": WORDS, **COLUMNS}, besides=["year"])
    check_reads(vectors)
    assert vectors.extras == {"year": [1900.0, 1950.0, 1960.0, 2000.0]}
    assert vectors.digest() != opened(tmp_path, {"year": years, "word": WORDS, **COLUMNS}).digest()


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 3)],
    ids=str,
)
@pytest.mark.parametrize("groups", [1, 3, 100])
def test_a_column_of_lists(tmp_path: Path, kind: Any, groups: int) -> None:
    columns = {"year": [1, 2, 3, 4], "vector": pa.array(LISTS, kind), "word": WORDS}
    vectors = opened(tmp_path, columns, groups)
    check_reads(vectors)
    assert vectors.labels == WORDS
    assert vectors.extras == {"year": [1.0, 2.0, 3.0, 4.0]}


def test_lists_of_half_precision_and_integers(tmp_path: Path) -> None:
    half = [[np.float16(x) for x in row] for row in LISTS]
    check_reads(opened(tmp_path, {"v": pa.array(half, pa.list_(pa.float16()))}), MATRIX.half())
    whole = MATRIX.long()
    check_reads(opened(tmp_path, {"v": pa.array(whole.tolist(), pa.list_(pa.int64()))}), whole)


def test_bools_decimals_and_nulls(tmp_path: Path) -> None:
    columns = {
        "b": [True, None, False],
        "d": pa.array([1, 2, None], pa.int32()).cast(pa.decimal128(12, 2)),
        "f": [0.5, None, 1.5],
        "i": [1, 2, None],
        "word": ["a", None, "c"],
    }
    vectors = opened(tmp_path, columns)
    nan = torch.nan
    check_reads(vectors, torch.tensor([[1, 1, 0.5, 1], [nan, 2, nan, 2], [0, nan, 1.5, nan]]))
    assert vectors.labels == ["a", "", "c"]


def test_nulls_in_lists_are_nan(tmp_path: Path) -> None:
    vectors = opened(tmp_path, {"v": [[1.0, None], [2.0, 3.0]]})
    check_reads(vectors, torch.tensor([[1, torch.nan], [2, 3]]))


def test_the_label_column_may_hold_numbers(tmp_path: Path) -> None:
    columns = {"id": [7, 8, 9, 10], "word": WORDS, **COLUMNS}
    vectors = opened(tmp_path, columns, label="id")
    check_reads(vectors)
    assert vectors.labels == ["7", "8", "9", "10"]
    assert vectors.extras == {"word": WORDS}
    vectors = opened(tmp_path, {"v": LISTS, "id": [7, 8, 9, 10]}, label="id")
    assert vectors.labels == ["7", "8", "9", "10"]
    assert vectors.extras == {}


def test_the_index_of_pandas_is_no_vector(tmp_path: Path) -> None:
    vectors = opened(tmp_path, {**COLUMNS, "__index_level_0__": [0, 1, 2, 3]})
    check_reads(vectors)
    vectors = opened(tmp_path, {**COLUMNS, "__index_level_0__": WORDS})
    assert vectors.labels == WORDS


def test_several_columns_of_lists_need_a_name(tmp_path: Path) -> None:
    columns = {"first": LISTS, "second": [[1.0]] * 4, "word": WORDS}
    with pytest.raises(VectorsError, match=r"2 columns of lists; name one with tensor=.*first, s"):
        opened(tmp_path, columns)
    vectors = opened(tmp_path, columns, tensor="first")
    check_reads(vectors)
    assert vectors.tensor == "first"
    assert vectors.labels == WORDS
    assert vectors.digest() != opened(tmp_path, columns, tensor="second").digest()
    with pytest.raises(VectorsError, match=r"no column 'word' of lists for tensor=.*first, second"):
        opened(tmp_path, columns, tensor="word")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[1.0, 2.0], [1.0, 2.0], [3.0]], r"column 'v', row 2: a list of 1 numbers, where 2"),
        ([[1.0, 2.0], None], r"column 'v', row 1: null, where 2 numbers are expected"),
    ],
)
def test_lists_of_different_lengths(tmp_path: Path, column: list[Any], message: str) -> None:
    vectors = opened(tmp_path, {"v": column}, groups=1)
    with pytest.raises(VectorsError, match=message):
        list(vectors.blocks())


def test_only_the_row_groups_that_are_asked_for_are_read(tmp_path: Path) -> None:
    columns = {"v": [[1.0, 2.0], [3.0], [5.0, 6.0]]}  # a bad row, which nobody asks for
    vectors = opened(tmp_path, columns, groups=1)
    assert vectors.take(torch.tensor([2, 0])).tolist() == [[5, 6], [1, 2]]


def test_overflow_names_column_and_row(tmp_path: Path) -> None:
    with pytest.raises(VectorsError, match=r"column 'y', row 2: 1e\+90 is beyond float32"):
        list(opened(tmp_path, {"x": [1, 2, 3], "y": [0, 0, 1e90]}, groups=1).blocks(1))
    with pytest.raises(VectorsError, match=r"column 'v', row 1: 1e\+90 is beyond float32"):
        list(opened(tmp_path, {"v": [[1.0], [1e90]]}).blocks())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"word": WORDS}, r"a\.parquet has no column of numbers.*'word'"),
        ({"x": pa.array([], pa.float32())}, r"a\.parquet is empty: it has no rows"),
        ({"v": pa.array([[], []], pa.list_(pa.float32()))}, "is empty: it has no columns"),
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(VectorsError, match=message):
        opened(tmp_path, columns)


def test_the_vectors_are_no_labels(tmp_path: Path) -> None:
    with pytest.raises(VectorsError, match="'v' holds the vectors, not labels"):
        opened(tmp_path, {"v": LISTS}, label="v")


def test_damaged_files(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"junk")
    with pytest.raises(VectorsError, match=r"a\.parquet is not a parquet file that can be read"):
        open_vectors(tmp_path / "a.parquet")
