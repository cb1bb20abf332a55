from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from beltrami.data.vectors import VectorsError, open_vectors, tensors
from tests.data.vectors.tables import MATRIX, check_reads


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8],
)
def test_one_tensor(tmp_path: Path, dtype: torch.dtype) -> None:
    matrix = MATRIX.abs().to(dtype)
    save_file({"x": matrix}, tmp_path / "a.safetensors")
    vectors = open_vectors(tmp_path / "a.safetensors")
    check_reads(vectors, matrix)
    assert vectors.tensor is None
    assert vectors.labels is None


def test_bools(tmp_path: Path) -> None:
    save_file({"x": MATRIX > 0}, tmp_path / "a.safetensors")
    check_reads(open_vectors(tmp_path / "a.safetensors"), (MATRIX > 0).float())


def test_the_token_embedding_is_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    other = torch.zeros(2, 2)
    save_file({"model.embed_tokens.weight": MATRIX, "a.weight": other}, path)
    vectors = open_vectors(path)
    check_reads(vectors)
    assert vectors.tensor == "model.embed_tokens.weight"
    named = open_vectors(path, tensor="a.weight")
    check_reads(named, other)
    assert named.tensor == "a.weight"
    assert named.digest() != vectors.digest()


def test_several_tensors_without_a_known_name(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"x": MATRIX, "y": torch.zeros(2, 2), "bias": torch.zeros(3)}, path)
    with pytest.raises(VectorsError, match=r"a\.safetensors has no tensor.*x \(4, 3\), y \(2, 2\)"):
        open_vectors(path)
    with pytest.raises(VectorsError, match=r"tensor 'bias' is a list of 3 numbers"):
        open_vectors(path, tensor="bias")


def test_complex_numbers_are_refused_by_name(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(2, 2, dtype=torch.complex64)}, tmp_path / "a.safetensors")
    with pytest.raises(VectorsError, match=r"tensor 'x' holds C64, complex numbers; save real"):
        open_vectors(tmp_path / "a.safetensors")


def test_overflow_names_the_row(tmp_path: Path) -> None:
    matrix = torch.zeros(5, 2, dtype=torch.float64)
    matrix[3, 0] = 1e200
    save_file({"x": matrix}, tmp_path / "a.safetensors")
    with pytest.raises(VectorsError, match=r"row 3: 1e\+200 is beyond float32"):
        open_vectors(tmp_path / "a.safetensors").take(torch.tensor([3]))


def test_a_block_holds_its_own_rows_alone(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(1000, 8)}, tmp_path / "a.safetensors")
    for _, block in open_vectors(tmp_path / "a.safetensors").blocks(10):
        assert block.untyped_storage().nbytes() == 10 * 8 * 4


def test_damaged_and_empty_files(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    for content in (b"", b"junk junk junk"):
        path.write_bytes(content)
        with pytest.raises(VectorsError, match=r"a\.safetensors is damaged or no safetensors file"):
            open_vectors(path)
    save_file({}, path)
    with pytest.raises(VectorsError, match=r"a\.safetensors holds no tensors"):
        open_vectors(path)


def test_a_file_is_mapped_anew_before_all_of_it_counts_as_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    real = tensors._opened
    monkeypatch.setattr(tensors, "MOST_MAPPED", 100)
    monkeypatch.setattr(tensors, "_opened", lambda path: opened.append(path) or real(path))
    x = torch.randn(40, 3)
    save_file({"x": x}, tmp_path / "x.safetensors")
    vectors = open_vectors(tmp_path / "x.safetensors")
    found = torch.cat([block for _, block in vectors.blocks(10)])
    assert torch.equal(found, x)
    assert len(opened) == 6  # once to open, after each of four blocks, and at the end
