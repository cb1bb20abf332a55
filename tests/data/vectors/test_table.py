from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from beltrami.data.vectors import open_vectors
from beltrami.data.vectors.arrays import ArrayVectors
from beltrami.data.vectors.table import BLOCK_ROWS
from tests.data.vectors.tables import MATRIX


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", MATRIX.numpy())
    return tmp_path / "a.npy"


def test_a_table_without_labels_has_none(path: Path) -> None:
    vectors = open_vectors(path)
    assert (vectors.name, vectors.rows, vectors.width) == ("a.npy", 4, 3)
    assert vectors.labels is None
    assert vectors.words is None
    assert vectors.extras == {}
    assert vectors.tensor is None


def test_digest_is_that_of_the_files_bytes(path: Path) -> None:
    assert open_vectors(path).digest() == hashlib.sha256(path.read_bytes()).hexdigest()


def test_digest_changes_with_content_and_not_with_the_name(path: Path, tmp_path: Path) -> None:
    before = open_vectors(path).digest()
    copy = tmp_path / "b.npy"
    copy.write_bytes(path.read_bytes())
    assert open_vectors(copy).digest() == before
    np.save(path, 2 * MATRIX.numpy())
    assert open_vectors(path).digest() != before


@pytest.mark.parametrize("row", [4, -1])
def test_rows_that_are_not_there(path: Path, row: int) -> None:
    with pytest.raises(IndexError, match=rf"a\.npy has rows 0 to 3, not {row}"):
        open_vectors(path).take(torch.tensor([0, row]))


@pytest.mark.parametrize(
    "rows", [torch.tensor([0.0]), torch.tensor([[0]]), torch.tensor([True, False, True, True])]
)
def test_rows_must_be_a_list_of_integers(path: Path, rows: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="rows must be a 1-D tensor of integers"):
        open_vectors(path).take(rows)


def test_blocks_have_a_row_at_least(path: Path) -> None:
    with pytest.raises(ValueError, match="rows must be at least 1, got 0"):
        next(open_vectors(path).blocks(0))


def test_blocks_are_copies(path: Path) -> None:
    vectors = open_vectors(path)
    _, block = next(vectors.blocks())
    block.zero_()
    assert torch.equal(next(vectors.blocks())[1], MATRIX)


def test_neighbours_are_read_together_but_never_more_than_a_block() -> None:
    class Spy(ArrayVectors):
        reads: list[tuple[int, int]] = []  # noqa: RUF012

        def _read(self, first: int, last: int) -> torch.Tensor:
            self.reads.append((first, last))
            return super()._read(first, last)

        _pick = ArrayVectors.__mro__[1]._pick  # type: ignore[assignment,attr-defined]

    matrix = np.arange(3 * BLOCK_ROWS, dtype=np.float32)[:, None]
    rows = torch.tensor([7, *range(100, 100 + BLOCK_ROWS + 1), 5, 6])
    taken = Spy(matrix, Path("spy")).take(rows)
    assert torch.equal(taken[:, 0], rows.float())
    middle = 100 + BLOCK_ROWS
    assert Spy.reads == [(5, 8), (100, middle), (middle, middle + 1)]
