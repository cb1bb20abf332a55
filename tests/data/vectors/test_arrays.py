from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from beltrami.data.vectors import VectorsError, open_vectors
from tests.data.vectors.tables import MATRIX, check_reads

NUMBERS = MATRIX.numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64", ">f8", "float16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path: Path, dtype: str, order: str) -> None:
    array = np.asarray(NUMBERS, dtype=dtype, order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "a.npy", array)
    check_reads(open_vectors(tmp_path / "a.npy"), torch.from_numpy(array.astype("float32")))


def test_npy_of_bools_and_integers(tmp_path: Path) -> None:
    for array in (NUMBERS > 0, np.arange(12).reshape(4, 3), np.zeros((4, 3), dtype="uint16")):
        np.save(tmp_path / "a.npy", array)
        check_reads(open_vectors(tmp_path / "a.npy"), torch.from_numpy(array.astype("float32")))


def test_rows_of_nan_are_kept(tmp_path: Path) -> None:
    array = NUMBERS.copy()
    array[1] = np.nan
    np.save(tmp_path / "a.npy", array)
    check_reads(open_vectors(tmp_path / "a.npy"), torch.from_numpy(array))


def test_an_overflow_names_file_and_row_in_blocks_and_rows(tmp_path: Path) -> None:
    array = np.zeros((10, 2))
    array[7, 1] = 1e60
    np.save(tmp_path / "a.npy", array)
    vectors = open_vectors(tmp_path / "a.npy")
    assert torch.equal(vectors.take(torch.tensor([6, 8])), torch.zeros(2, 2))
    for read in (lambda: list(vectors.blocks(4)), lambda: vectors.take(torch.tensor([7, 2]))):
        with pytest.raises(VectorsError, match=r"a\.npy, row 7: 1e\+60 is beyond float32"):
            read()


def test_npy_is_read_in_bounded_memory(tmp_path: Path) -> None:
    file = np.lib.format.open_memmap(
        tmp_path / "large.npy", mode="w+", dtype=np.float64, shape=(200_000, 128)
    )
    file[-1] = 1  # the rest of its 205 MB is a hole
    del file
    # tracemalloc counts what numpy allocates; mapped pages are the system's to take back.
    script = f"""
import torch, tracemalloc
from beltrami.data.vectors import open_vectors
tracemalloc.start()
vectors = open_vectors({str(tmp_path / "large.npy")!r})
total = sum(float(block.sum()) for _, block in vectors.blocks())
total += float(vectors.take(torch.tensor([0, 199_999])).sum())
print(total, tracemalloc.get_traced_memory()[1] < 20e6)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["256.0", "True"]


def test_npz_of_one_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", vectors=NUMBERS)
    vectors = open_vectors(tmp_path / "a.npz")
    check_reads(vectors)
    assert vectors.tensor is None


def test_npz_of_several_arrays_needs_a_name(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, vectors=NUMBERS, other=NUMBERS[:2], names=np.array(["a", "b"]))
    with pytest.raises(VectorsError, match=r"a\.npz holds 3 arrays; name one with tensor=") as e:
        open_vectors(path)
    assert "vectors (4, 3), other (2, 3), names (2,)" in str(e.value)
    with pytest.raises(VectorsError, match=r"a\.npz has no array 'x'.*vectors \(4, 3\)"):
        open_vectors(path, tensor="x")
    vectors = open_vectors(path, tensor="vectors")
    check_reads(vectors)
    assert vectors.tensor == "vectors"
    assert vectors.digest() != open_vectors(path, tensor="other").digest()
    with pytest.raises(VectorsError, match=r"array 'names' holds str\d+, not real numbers"):
        open_vectors(path, tensor="names")


def test_npz_without_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz")
    with pytest.raises(VectorsError, match=r"a\.npz holds 0 arrays.*it holds none"):
        open_vectors(tmp_path / "a.npz")


def test_pickles_are_never_read(tmp_path: Path) -> None:
    objects = np.array([[1, "a"]], dtype=object)
    np.save(tmp_path / "a.npy", objects)
    np.savez(tmp_path / "b.npz", x=objects)
    (tmp_path / "c.npy").write_bytes(b"\x80\x04K\x01.")
    for name in ("a.npy", "b.npz", "c.npy"):
        with pytest.raises(VectorsError, match=rf"{name}.*pickles are never read; save numbers"):
            open_vectors(tmp_path / name)


def test_damaged_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", NUMBERS)
    whole = (tmp_path / "a.npy").read_bytes()
    for content in (whole[:-5], whole[:20], b""):
        (tmp_path / "b.npy").write_bytes(content)
        with pytest.raises(VectorsError, match=r"b\.npy is damaged or cut short"):
            open_vectors(tmp_path / "b.npy")
    np.savez(tmp_path / "a.npz", x=NUMBERS)
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-30])
    with pytest.raises(VectorsError, match=r"b\.npz is damaged"):
        open_vectors(tmp_path / "b.npz")


def test_files_with_the_other_ending(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", NUMBERS)
    np.savez(tmp_path / "b.npz", x=NUMBERS)
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    (tmp_path / "b.npz").rename(tmp_path / "b.npy")
    with pytest.raises(VectorsError, match=r"rename it to a\.npy"):
        open_vectors(tmp_path / "a.npz")
    with pytest.raises(VectorsError, match=r"rename it to b\.npz"):
        open_vectors(tmp_path / "b.npy")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(5), r"a\.npy is a list of 5 numbers.*reshape\(1, -1\)"),
        (np.zeros((2, 3, 4)), r"a\.npy has shape \(2, 3, 4\)"),
        (np.zeros((0, 4)), r"a\.npy is empty: it has no rows"),
        (np.zeros((4, 0)), r"a\.npy is empty: it has no columns"),
        (np.zeros((2, 2), dtype=complex), r"a\.npy holds complex128, not real numbers"),
    ],
)
def test_arrays_that_are_no_tables(
    tmp_path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.float64]], message: str
) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(VectorsError, match=message):
        open_vectors(tmp_path / "a.npy")
