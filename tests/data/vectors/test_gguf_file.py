from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from beltrami.data.vectors import VectorsError, open_vectors
from tests.data.vectors.tables import MATRIX, check_reads

gguf = pytest.importorskip("gguf", reason='needs pip install "beltrami[gguf]"')

TOKENS = ["<|end|>", "Ġdog", "s", "ĠcafÃ©"]


def write_gguf(path: Path, tensors: dict[str, Any], tokens: list[str] | None = TOKENS) -> Path:
    """A GGUF file; a pair (array, type) is quantised."""
    writer = gguf.GGUFWriter(path, "llama")
    if tokens is not None:
        writer.add_token_list(tokens)
    for name, tensor in tensors.items():
        if isinstance(tensor, tuple):
            array, kind = tensor
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_plain_numbers(tmp_path: Path, dtype: str) -> None:
    array = MATRIX.numpy().astype(dtype)
    path = write_gguf(tmp_path / "a.gguf", {"token_embd.weight": array})
    vectors = open_vectors(path)
    check_reads(vectors, torch.from_numpy(array))
    assert vectors.tensor == "token_embd.weight"
    assert vectors.labels == TOKENS
    assert vectors.words == [None, "dog", None, "café"]


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "BF16"])
def test_quantised_numbers(tmp_path: Path, kind: str) -> None:
    array = np.random.default_rng(0).normal(size=(7, 64)).astype("float32")
    quantisation = gguf.GGMLQuantizationType[kind]
    path = write_gguf(tmp_path / "a.gguf", {"token_embd.weight": (array, quantisation)})
    packed = gguf.quants.quantize(array, quantisation)
    expected = torch.from_numpy(gguf.quants.dequantize(packed, quantisation))
    vectors = open_vectors(path)
    check_reads(vectors, expected)
    assert (expected - torch.from_numpy(array)).abs().max() < 0.3
    assert vectors.labels is not None
    assert vectors.labels[4:] == [f"<row {row}: no token>" for row in (4, 5, 6)]


def test_another_tensor_has_no_tokens(tmp_path: Path) -> None:
    other = np.ones((2, 5), dtype="float32")
    tensors = {"token_embd.weight": MATRIX.numpy(), "blk.0.weight": other, "n": other[0]}
    path = write_gguf(tmp_path / "a.gguf", tensors)
    vectors = open_vectors(path, tensor="blk.0.weight")
    check_reads(vectors, torch.from_numpy(other))
    assert vectors.labels is None
    assert vectors.words is None
    assert vectors.digest() != open_vectors(path).digest()
    with pytest.raises(
        VectorsError, match=r"no tensor 'x'; It has token_embd.weight \(4, 3\), blk"
    ):
        open_vectors(path, tensor="x")


def test_a_file_without_tokens(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", {"token_embd.weight": MATRIX.numpy()}, tokens=None)
    assert open_vectors(path).labels is None


def test_numbers_that_cannot_be_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.zeros((2, 64), dtype="float32")
    kind = gguf.GGMLQuantizationType.Q8_0
    path = write_gguf(tmp_path / "a.gguf", {"token_embd.weight": (array, kind)})

    def refuse(*arguments: Any) -> None:
        raise NotImplementedError

    monkeypatch.setattr(gguf.quants, "dequantize", refuse)
    with pytest.raises(VectorsError, match=r"quantised as Q8_0.*upgrade \"beltrami\[gguf\]\""):
        open_vectors(path)


def test_damaged_files(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", {"token_embd.weight": MATRIX.numpy()})
    whole = path.read_bytes()
    for content in (b"", b"junk", b"junk" * 100, whole[:40], whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(VectorsError, match=r"a\.gguf"):
            open_vectors(path)
