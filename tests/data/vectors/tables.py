"""What tests of all formats ask of a table, and small models to ask it of."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from beltrami.data.vectors import Vectors

MATRIX = torch.tensor([[0.5, -1.0, 3.0], [0.25, 2.0, -0.125], [1e-3, 7.0, 0.0], [4.0, 5.0, 6.0]])
WORDS = ["dog", "oak", "wolf", "elm"]


def check_reads(vectors: Vectors, matrix: Tensor = MATRIX) -> None:
    """Blocks of every size, rows in any order and the whole are the same numbers."""
    assert (vectors.rows, vectors.width) == tuple(matrix.shape)
    for size in (1, 2, 3, vectors.rows, vectors.rows + 5):
        blocks = list(vectors.blocks(size))
        assert [first for first, _ in blocks] == _starts(blocks)
        assert all(len(block) <= size for _, block in blocks)
        whole = torch.cat([block for _, block in blocks])
        assert whole.dtype == torch.float32
        torch.testing.assert_close(whole, matrix.float(), rtol=0, atol=0, equal_nan=True)
    rows = torch.tensor([vectors.rows - 1, 0, 0, vectors.rows // 2])
    taken = vectors.take(rows)
    torch.testing.assert_close(taken, matrix[rows].float(), rtol=0, atol=0, equal_nan=True)
    everything = vectors.take(torch.arange(vectors.rows))
    torch.testing.assert_close(everything, matrix.float(), rtol=0, atol=0, equal_nan=True)
    assert vectors.take(torch.tensor([], dtype=torch.int64)).shape == (0, vectors.width)


def _starts(blocks: list[tuple[int, Tensor]]) -> list[int]:
    starts, first = [], 0
    for _, block in blocks:
        starts.append(first)
        first += len(block)
    return starts


def save_tokenizer(folder: Path, tokens: list[str]) -> None:
    """A tokenizer of these tokens that transformers loads."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    vocabulary = {token: number for number, token in enumerate(tokens)}
    Tokenizer(WordLevel(vocabulary, unk_token=tokens[0])).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )


def save_shards(folder: Path, shards: list[dict[str, Tensor]]) -> None:
    """A model in several files with their index."""
    holders = {}
    for number, tensors in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file(tensors, folder / file)
        holders |= dict.fromkeys(tensors, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": holders}))
    (folder / "config.json").write_text("{}")
