from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from beltrami.data.corpus import IGNORE, TokenCorpus, bits_per_byte, tokens, train_tokenizer
from tests.data.corpus.conftest import some_texts

Build = Callable[[list[str]], TokenCorpus]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of texts that were tokenized at once."""
    calls: list[int] = []
    encode = tokens._Encoder.encode

    def counting(self: Any, batch: list[Any]) -> Iterator[Any]:
        calls.append(len(batch))
        return encode(self, batch)

    monkeypatch.setattr(tokens._Encoder, "encode", counting)
    return calls


def test_documents_come_back(build: Build, tokenizer: PreTrainedTokenizerFast) -> None:
    texts = some_texts(200)
    corpus = build(texts)
    assert len(corpus) == len(texts)
    assert corpus.sizes.tolist() == [len(text.encode()) for text in texts]
    assert corpus.n_bytes == sum(corpus.sizes)
    assert corpus.n_tokens == len(corpus.tokens) == sum(len(document) for document in corpus)
    for text, document in zip(texts, corpus, strict=True):
        assert document[-1] == tokenizer.eos_token_id
        assert tokenizer.eos_token_id not in document[:-1]
        assert tokenizer.decode(document[:-1]) == text
        assert corpus.token_bytes[document.astype(np.int64)].sum() == len(text.encode())


def test_long_documents_are_tokenized_in_pieces(
    build: Build,
    tokenizer: PreTrainedTokenizerFast,
    encoded: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "CHUNK", 50)
    monkeypatch.setattr(tokens, "BATCH", 100)
    texts = ["a b\n" * 100, "x" * 170, *some_texts(20)]
    corpus = build(texts)
    assert len(encoded) > 5
    assert [tokenizer.decode(document[:-1]) for document in corpus] == texts
    whole = tokenizer(texts[0]).input_ids
    assert corpus[0][:-1].tolist() == whole  # cut where a line ends, as the tokenizer does


@pytest.mark.parametrize(("vocabulary", "size"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_uint16_while_the_vocabulary_allows_it(
    write: Callable[[list[str]], Path], vocabulary: int, size: int
) -> None:
    tokenizer = train_tokenizer(["a b c"], 300)
    missing = vocabulary - len(tokenizer)
    tokenizer.add_tokens([f"海{number}" for number in range(missing)])
    assert len(tokenizer) == vocabulary
    last = f"a 海{missing - 1}海{missing - 1} b"
    corpus = TokenCorpus.build(write([last]), tokenizer)
    assert corpus.tokens.itemsize == size
    assert vocabulary - 1 in corpus[0].tolist()
    assert tokenizer.decode(corpus[0][:-1]) == last
    assert corpus.n_bytes == len(last.encode())


def test_the_cache_is_used_and_depends_on_text_and_tokenizer(
    write: Callable[[list[str]], Path],
    tokenizer: PreTrainedTokenizerFast,
    encoded: list[int],
    cache: Path,
    tmp_path: Path,
) -> None:
    path = write(some_texts(20))
    first = TokenCorpus.build(path, tokenizer)
    assert encoded == [20]
    moved = path.rename(tmp_path / "elsewhere.jsonl")
    again = TokenCorpus.build(moved, tokenizer)
    assert encoded == [20]
    assert np.array_equal(first.tokens, again.tokens)
    assert np.array_equal(first.digests, again.digests)
    TokenCorpus.build(write(some_texts(19)), tokenizer)
    TokenCorpus.build(moved, train_tokenizer(["other"], 300))
    assert encoded == [20, 19, 20]
    assert len(list((cache / "corpus").iterdir())) == 3


@pytest.mark.parametrize("file", [tokens.TOKENS, tokens.DOCUMENTS])
def test_a_damaged_file_is_made_again(
    build: Build, encoded: list[int], cache: Path, file: str
) -> None:
    texts = some_texts(20)
    expected = build(texts).tokens.tolist()
    (folder,) = (cache / "corpus").iterdir()
    (folder / file).write_bytes((folder / file).read_bytes()[:-2])
    assert build(texts).tokens.tolist() == expected
    (folder / file).unlink()
    assert build(texts).tokens.tolist() == expected
    assert len(encoded) == 3


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
def test_an_interruption_leaves_nothing(
    build: Build,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    interruption: type[BaseException],
) -> None:
    monkeypatch.setattr(tokens, "BATCH", 200)
    texts = some_texts(50)
    encode = tokens._Encoder.encode
    calls = []

    def interrupted(self: Any, batch: list[Any]) -> Iterator[Any]:
        calls.append(len(batch))
        if len(calls) > 2:
            raise interruption
        return encode(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(tokens._Encoder, "encode", interrupted)
        with pytest.raises(interruption):
            build(texts)
    assert not list((cache / "corpus").iterdir())
    assert len(build(texts)) == 50


def test_what_a_killed_process_left_is_not_loaded(
    build: Build, encoded: list[int], cache: Path
) -> None:
    build(some_texts(20))
    (folder,) = (cache / "corpus").iterdir()
    left = folder.with_name(f".{folder.name}~abc.tmp")
    folder.rename(left)
    assert len(build(some_texts(20))) == 20
    assert len(encoded) == 2
    assert not left.exists()
    assert folder.exists()


def test_a_text_that_changes_meanwhile_is_refused(
    build: Build, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = tokens.documents
    extra = iter([[], ["more"]])
    monkeypatch.setattr(
        tokens, "documents", lambda *args, **kw: [*documents(*args, **kw), *next(extra)]
    )
    with pytest.raises(ValueError, match=r"texts\.jsonl has changed while it was read"):
        build(["a", "b"])
    assert not list((cache / "corpus").iterdir())


def test_tokenizers_that_lose_bytes_are_refused(write: Callable[[list[str]], Path]) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    for change in (
        lambda backend: setattr(backend, "normalizer", tokenizers.normalizers.Lowercase()),
        lambda backend: setattr(
            backend, "pre_tokenizer", tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
        ),
    ):
        tokenizer = train_tokenizer(["a b"], 300)
        change(tokenizer.backend_tokenizer)
        with pytest.raises(ValueError, match="give back every byte"):
            TokenCorpus.build(write(["AİB"]), tokenizer)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>")
    with pytest.raises(ValueError, match="give back every byte"):
        TokenCorpus.build(write(["some text"]), tokenizer)
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="no eos token"):
        TokenCorpus.build(write(["a"]), tokenizer)


def test_the_parts_of_a_split_share_no_document(build: Build) -> None:
    texts = [text for text in some_texts(300) for _ in range(1 + len(text) % 3)]
    corpus = build(texts)
    for held_out in (0.1, 500, 0.5):
        train, held = corpus.split(held_out, seed=3)
        assert not {bytes(text) for text in train} & {bytes(text) for text in held}
        assert sorted([*train.starts, *held.starts]) == corpus.starts.tolist()
        assert train.n_tokens + held.n_tokens == corpus.n_tokens
        amount = (
            held.n_tokens / 500 if held_out == 500 else held.n_bytes / corpus.n_bytes / held_out
        )
        assert 1 <= amount < 1.5
    assert np.array_equal(corpus.split(0.1, seed=3)[1].starts, corpus.split(0.1, seed=3)[1].starts)
    other = corpus.split(0.1, seed=4)[1].starts
    assert not np.array_equal(corpus.split(0.1, seed=3)[1].starts, other)


def test_a_share_holds_out_the_same_documents_for_all_tokenizers(
    write: Callable[[list[str]], Path], tokenizer: PreTrainedTokenizerFast
) -> None:
    path = write(some_texts(300))
    other = train_tokenizer(some_texts(50), 280)
    parts = [TokenCorpus.build(path, each).split(0.1)[1] for each in (tokenizer, other)]
    assert np.array_equal(parts[0].digests, parts[1].digests)
    assert parts[0].n_tokens != parts[1].n_tokens


def test_bad_shares(build: Build) -> None:
    corpus = build(some_texts(5))
    for held_out in (0.0, 1.0, -0.5, math.nan, 0):
        with pytest.raises(ValueError, match="held_out must be"):
            corpus.split(held_out)
    with pytest.raises(TypeError, match="held_out must be"):
        corpus.split(True)
    with pytest.raises(ValueError, match=r"1 different documents.*hold out less"):
        build(["same", "same"]).split(0.1)
    with pytest.raises(ValueError, match="hold out less"):
        corpus.split(corpus.n_tokens)


def test_bits_per_byte_of_a_uniform_model(build: Build, tokenizer: PreTrainedTokenizerFast) -> None:
    texts = some_texts(8)
    corpus = build(texts)
    labels = torch.full((8, 200), IGNORE)
    for row, document in enumerate(corpus):
        labels[row, : len(document)] = torch.from_numpy(document.astype(np.int64))[:200]
    firsts = [len(tokenizer.decode(document[:1]).encode()) for document in corpus]
    assert max(len(document) for document in corpus) <= 200
    assert corpus.target_bytes(labels) == corpus.n_bytes - sum(firsts)
    loss = torch.nn.functional.cross_entropy(  # as Hugging Face models shift labels
        torch.zeros(8, 199, 300).transpose(1, 2), labels[:, 1:], reduction="sum"
    )
    expected = math.log2(300) * (corpus.n_tokens - 8) / (corpus.n_bytes - sum(firsts))
    assert bits_per_byte(loss.item(), corpus.target_bytes(labels)) == pytest.approx(expected)


def test_the_files_can_be_removed_while_they_are_used(build: Build, cache: Path) -> None:
    corpus = build(some_texts(20))
    before = corpus.tokens.tolist()
    shutil.rmtree(cache)
    assert corpus.tokens.tolist() == before
