from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from beltrami.data.corpus import IGNORE, PackedRows, TokenCorpus, bits_per_byte, pack
from tests.data.corpus.conftest import some_texts

Build = Callable[[list[str]], TokenCorpus]
END, PAD, VOCABULARY = 0, 1, 1000


def corpus_of(lengths: list[int]) -> TokenCorpus:
    """Documents of so many tokens, which are 2, 3, 4, ... and the end; token n has n % 5 bytes."""
    sizes = np.array(lengths, dtype=np.int64)
    tokens = np.arange(2, 2 + sizes.sum(), dtype=np.uint32)
    ends = np.cumsum(sizes)
    tokens[ends - 1] = END
    token_bytes = torch.arange(len(tokens) + 2) % 5
    token_bytes[[END, PAD]] = 0
    starts = ends - sizes
    return TokenCorpus(tokens, starts, sizes, sizes, starts, token_bytes, END, PAD)


def pieces(row: dict[str, Any]) -> list[list[int]]:
    """Tokens of a row between restarts of the positions, without padding."""
    tokens, restarts = row["input_ids"].tolist(), (row["position_ids"] == 0).nonzero()[:, 0]
    parts = np.split(np.array(tokens), restarts.tolist()[1:])
    return [part.tolist() for part in parts if part[0] != PAD]


def expected_pieces(corpus: TokenCorpus, length: int) -> list[list[int]]:
    documents = [document.tolist() for document in corpus]
    return [text[i : i + length] for text in documents for i in range(0, len(text), length)]


def check_labels(row: dict[str, Any], documents: bool) -> None:
    """By the definition: what each position predicts, without shifting anything."""
    tokens, positions, labels = (
        row[key].tolist() for key in ("input_ids", "position_ids", "labels")
    )
    assert positions[0] == 0
    for place in range(1, len(tokens)):
        restarts = positions[place] == 0
        assert restarts or positions[place] == positions[place - 1] + 1
        predicted = tokens[place] != PAD and not restarts
        assert labels[place] == (tokens[place] if predicted else IGNORE)
        assert documents or not restarts
    assert labels[0] == IGNORE


lengths = st.lists(st.integers(2, 40), min_size=1, max_size=40)


@given(lengths=lengths, length=st.integers(2, 30), seed=st.integers(0, 3), epoch=st.integers(0, 3))
def test_no_document_that_fits_is_cut_and_no_token_is_lost(
    lengths: list[int], length: int, seed: int, epoch: int
) -> None:
    corpus = corpus_of(lengths)
    rows = pack(corpus, length, seed=seed, epoch=epoch)
    assert sorted(piece for row in rows for piece in pieces(row)) == sorted(
        expected_pieces(corpus, length)
    )
    for row in rows:
        check_labels(row, documents=True)
        assert all(value.dtype == torch.int64 for value in row.values())
        assert all(value.shape == (length,) for value in row.values())
    filled = sum(int((row["input_ids"] != PAD).sum()) for row in rows)
    assert rows.padding == pytest.approx(1 - filled / (len(rows) * length))


@given(lengths=lengths, length=st.integers(2, 30))
def test_best_fit_leaves_no_two_rows_that_fit_into_one(lengths: list[int], length: int) -> None:
    rows = pack(corpus_of(lengths), length)
    used = sorted(int((row["input_ids"] != PAD).sum()) for row in rows)
    assert len(used) == 1 or used[0] + used[1] > length


@given(lengths=lengths, length=st.integers(2, 30), seed=st.integers(0, 3))
def test_a_stream_is_the_shuffled_documents(lengths: list[int], length: int, seed: int) -> None:
    corpus = corpus_of(lengths)
    rows = pack(corpus, length, seed=seed, documents=False)
    assert len(rows) == -(-corpus.n_tokens // length)
    tokens = torch.cat([row["input_ids"] for row in rows])
    assert (tokens == PAD).sum() == len(rows) * length - corpus.n_tokens
    assert sorted(tokens[tokens != PAD].tolist()) == sorted(corpus.tokens.tolist())
    # Rows are shuffled, but tokens that follow each other do so in a document.
    for row in rows:
        kept = row["input_ids"][row["input_ids"] != PAD].tolist()
        for first, second in pairwise(kept):
            assert first == END or second in (first + 1, END)
        assert row["position_ids"].tolist() == list(range(length))
        assert row["labels"][1 : len(kept)].tolist() == kept[1:]
        assert set(row["labels"][len(kept) :].tolist()) <= {IGNORE}
        assert row["labels"][0] == IGNORE


@given(lengths=lengths, length=st.integers(2, 30), documents=st.booleans())
def test_target_bytes_are_those_of_a_count_by_hand(
    lengths: list[int], length: int, documents: bool
) -> None:
    corpus = corpus_of(lengths)
    rows = pack(corpus, length, documents=documents)
    by_hand = 0
    for row in rows:
        tokens, positions = row["input_ids"].tolist(), row["position_ids"].tolist()
        for token, position in zip(tokens, positions, strict=True):
            by_hand += token % 5 if position and token != PAD else 0
    assert rows.target_bytes() == by_hand
    batches = DataLoader(rows, batch_size=3)
    assert sum(corpus.target_bytes(batch["labels"]) for batch in batches) == by_hand
    for batch in batches:  # truncated
        cut = batch["labels"][:, : length // 2]
        assert corpus.target_bytes(cut) == sum(
            token % 5 for row in cut[:, 1:].tolist() for token in row if token != IGNORE
        )


def test_the_order_is_that_of_seed_and_epoch() -> None:
    corpus = corpus_of(np.random.default_rng(0).integers(2, 100, 200).tolist())

    def order(documents: bool, **chosen: int) -> list[list[int]]:
        return [
            row["input_ids"].tolist() for row in pack(corpus, 64, documents=documents, **chosen)
        ]

    for documents in (True, False):
        first = order(documents, seed=1, epoch=0)
        assert first == order(documents, seed=1, epoch=0)
        assert first != order(documents, seed=1, epoch=1)
        assert first != order(documents, seed=2, epoch=0)
        assert first != sorted(first)


def test_little_is_padding() -> None:
    random = np.random.default_rng(0)
    for sizes in (random.integers(2, 300, 20_000), random.lognormal(8, 1, 2000).astype(int) + 2):
        assert pack(corpus_of(sizes.tolist()), 1024).padding < 0.01


def test_rows_by_index_and_bad_arguments() -> None:
    rows = pack(corpus_of([5, 7, 9]), 10)
    assert isinstance(rows, PackedRows)
    assert torch.equal(rows[-1]["input_ids"], rows[len(rows) - 1]["input_ids"])
    with pytest.raises(IndexError):
        rows[len(rows)]
    for options in ({"length": 1}, {"length": 8, "seed": -1}, {"length": 8, "epoch": -1}):
        with pytest.raises(ValueError, match="must be at least"):
            pack(corpus_of([5]), **options)  # type: ignore[arg-type]


def test_a_packed_row_gives_the_loss_of_its_documents(
    build: Build, tokenizer: PreTrainedTokenizerFast
) -> None:
    """From text to loss: transformers sees documents in a row as it sees them alone."""
    train, held = build(some_texts(60, most=10)).split(0.3)
    rows = pack(held, 64)
    assert any(len(pieces(row)) > 2 for row in rows)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.5,  # attention that looks at much
        max_position_embeddings=64,
    )
    model = LlamaForCausalLM(config).eval()

    def nats(**batch: torch.Tensor) -> float:
        with torch.no_grad():
            loss = model(**batch, use_cache=False).loss
        return float(loss) * int((batch["labels"][:, 1:] != IGNORE).sum())

    packed = sum(nats(**batch) for batch in DataLoader(rows, batch_size=2))
    alone, n_bytes = 0.0, 0
    for document in held:
        parts = [document[i : i + 64] for i in range(0, len(document), 64)]
        for part in parts:
            ids = torch.from_numpy(part.astype(np.int64))[None]
            if len(part) > 1:
                alone += nats(input_ids=ids, labels=ids)
            n_bytes += sum(len(_bytes(tokenizer, token)) for token in part[1:] if token != END)
    assert packed == pytest.approx(alone, rel=1e-5)
    assert rows.target_bytes() == n_bytes
    assert bits_per_byte(packed, n_bytes) > 0
    assert len(train) + len(held) == 60


def _bytes(tokenizer: PreTrainedTokenizerFast, token: int) -> str:
    """The token as byte-level BPE writes it, a character a byte."""
    return str(tokenizer.convert_ids_to_tokens(int(token)))


def test_the_default_collator_takes_rows(build: Build, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    rows = pack(build(some_texts(20)), 32)
    batch = transformers.default_data_collator([rows[0], rows[1]])
    assert set(batch) == {"input_ids", "labels", "position_ids"}
    assert batch["labels"].shape == (2, 32)
