"""A text as tokens in one file, read by memory map.

Tokenizing is done once for the contents of a text and a tokenizer. The cache holds

    corpus/KEY/tokens.bin       all tokens, as uint16 or uint32, little-endian
    corpus/KEY/documents.npy    tokens, UTF-8 bytes and digest of each document

and KEY depends on both. The folder is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from beltrami.checks import check_integer, check_number
from beltrami.data.atomic import scratch_folder, sweep
from beltrami.data.cache import cache_folder
from beltrami.data.corpus.documents import documents
from beltrami.data.dag import Ints
from beltrami.data.lock import locked
from beltrami.data.vectors.library import library

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

IGNORE = -100  # the label that losses leave out
FORMAT = "beltrami tokens 1"
TOKENS, DOCUMENTS = "tokens.bin", "documents.npy"
UINT16_VOCABULARY = 1 << 16
CHUNK = 1 << 18  # characters; a longer document is tokenized in pieces that end with a line
BATCH = 1 << 21  # characters that are tokenized at once


@dataclass(frozen=True, eq=False)
class TokenCorpus:
    """Documents as tokens, each with the end-of-text token at its end.

    `len(corpus)` is the number of documents and `corpus[i]` the tokens of one. The arrays have an
    entry a document.
    """

    tokens: npt.NDArray[Any]
    """All tokens of the file, a memory map; those of other parts, too."""
    starts: Ints
    """Where a document starts in `tokens`."""
    lengths: Ints
    """Tokens of a document, with its end-of-text token."""
    sizes: Ints
    """UTF-8 bytes of a document."""
    digests: Ints
    """Equal for equal documents."""
    token_bytes: Tensor
    """UTF-8 bytes of each token of the vocabulary, int64; 0 for special tokens."""
    end_id: int
    pad_id: int

    @classmethod
    def build(
        cls,
        source: str | Path,
        tokenizer: PreTrainedTokenizerFast,
        *,
        field: str = "text",
        show_progress: bool = False,
    ) -> TokenCorpus:
        """The tokens of `documents(source, field=field)`, from the cache or tokenized now.

        The tokenizer must be a byte-level one that gives back every byte of a text, as those of
        GPT-2, Llama 3 and `train_tokenizer` do; another is a `ValueError`. Special tokens that
        are written out in a text count as text.
        """
        encoder = _Encoder(tokenizer)
        contents = _contents(documents(source, field=field))
        key = hashlib.sha256(encoder.key.encode() + contents.tobytes()).hexdigest()[:32]
        folder = cache_folder() / "corpus" / key
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(cache_folder() / "locks" / f"corpus-{key}.lock", lambda: None) as alone:
            if (opened := _open(folder, encoder.dtype)) is None:
                if alone:
                    sweep(folder.parent, key)
                with scratch_folder(folder.parent, key) as scratch:
                    texts = documents(source, field=field)
                    written = _write(scratch, texts, encoder, len(contents), show_progress)
                    if not np.array_equal(written, contents):
                        raise ValueError(f"{source} has changed while it was read; start again")
                    shutil.rmtree(folder, ignore_errors=True)  # one that is damaged
                    scratch.rename(folder)
                opened = _open(folder, encoder.dtype)
        if opened is None:
            raise ValueError(f"{folder} cannot be read; remove it and start again")
        tokens, table = opened
        lengths, sizes, digests = np.ascontiguousarray(table.T)
        starts = np.cumsum(lengths) - lengths
        return cls(
            tokens,
            starts,
            lengths,
            sizes,
            digests,
            torch.from_numpy(encoder.token_bytes),
            encoder.end_id,
            encoder.pad_id,
        )

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, document: int) -> npt.NDArray[Any]:
        start = self.starts[document]
        return self.tokens[start : start + self.lengths[document]]

    @property
    def n_tokens(self) -> int:
        """Tokens of all documents, with their end-of-text tokens."""
        return int(self.lengths.sum())

    @property
    def n_bytes(self) -> int:
        """UTF-8 bytes of all documents."""
        return int(self.sizes.sum())

    def split(self, held_out: float, seed: int = 0) -> tuple[TokenCorpus, TokenCorpus]:
        """A part to train on and a held-out part, each of whole documents.

        Equal documents are in the same part. The held-out ones are the first of a seeded order
        that reach `held_out`: a share of the bytes if it is a float, so that all tokenizers hold
        out the same documents, or a number of tokens if it is an int.
        """
        if isinstance(held_out, int):
            wanted = float(check_integer("held_out", held_out))
            weights = self.lengths
        else:
            check_number("held_out", held_out, low=0, high=1, open_low=True, open_high=True)
            wanted, weights = held_out * self.n_bytes, self.sizes
        distinct, group = np.unique(self.digests, return_inverse=True)
        order = np.random.default_rng(seed).permutation(len(distinct))
        sums = np.cumsum(np.bincount(group, weights, len(distinct))[order])
        taken = int(np.searchsorted(sums, wanted)) + 1
        if taken >= len(distinct):
            raise ValueError(
                f"held_out={held_out} leaves nothing to train on, for the text has "
                f"{len(distinct)} different documents with {self.n_tokens} tokens; hold out less, "
                "or write a line <|endoftext|> between the documents of a file"
            )
        held = np.isin(group, order[:taken])
        return self._part(~held), self._part(held)

    def target_bytes(self, labels: Tensor) -> int:
        """UTF-8 bytes of the tokens that a causal model predicts from a batch.

        `labels` (..., T) are as Hugging Face models take them: position t is predicted at t - 1,
        so the first never is, and -100 is left out. The end-of-text token counts 0 bytes.
        """
        targets = labels[..., 1:]
        return int(self.token_bytes.to(labels.device)[targets[targets != IGNORE]].sum())

    def _part(self, chosen: npt.NDArray[np.bool_]) -> TokenCorpus:
        return replace(
            self,
            starts=self.starts[chosen],
            lengths=self.lengths[chosen],
            sizes=self.sizes[chosen],
            digests=self.digests[chosen],
        )


def bits_per_byte(nats: float, n_bytes: int) -> float:
    """A summed loss, in nats, as bits per byte of the tokens that were predicted.

    `nats / (ln 2 * n_bytes)`, with the bytes of `TokenCorpus.target_bytes` for the same batches.
    The loss includes that of end-of-text tokens, which have no bytes.
    """
    return nats / (math.log(2) * n_bytes)


class _Encoder:
    """A copy of a tokenizer's backend that encodes plain text, and the bytes of its tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        tokenizers = library("tokenizers", extra="llm", needs="a tokenizer")
        if tokenizer.eos_token_id is None:
            raise ValueError("the tokenizer has no eos token, which ends documents; set eos_token")
        self.end_id = int(tokenizer.eos_token_id)
        self.pad_id = self.end_id if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        self._backend = tokenizers.Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = True  # "<|endoftext|>" in a text is text
        self.key = f"{FORMAT}\0{self._backend.to_str()}\0{self.end_id}\0"
        vocabulary = self._backend.get_vocab()
        added = self._backend.get_added_tokens_decoder()
        self.token_bytes = np.zeros(max(vocabulary.values()) + 1, dtype=np.int64)
        for token, number in vocabulary.items():
            self.token_bytes[number] = len(token)  # byte-level BPE writes a byte as a character
        for number, token in added.items():
            self.token_bytes[number] = 0 if token.special else len(token.content.encode())
        self.token_bytes[self.end_id] = 0
        small = len(self.token_bytes) <= UINT16_VOCABULARY
        self.dtype = np.dtype("<u2" if small else "<u4")

    def encode(self, batch: list[tuple[str, bool]]) -> Iterator[npt.NDArray[Any]]:
        """The tokens of each text, and end-of-text behind the last of a document."""
        texts = [text for text, _ in batch]
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        for (text, last), encoding in zip(batch, encodings, strict=True):
            tokens = np.array(encoding.ids + [self.end_id] * last, dtype=self.dtype)
            if self.token_bytes[tokens].sum() != len(text.encode()):
                raise ValueError(
                    "the tokenizer does not give back every byte of the text, so bits per byte "
                    "would be wrong; take a byte-level one that neither normalises nor adds a space"
                )
            yield tokens


def _write(
    folder: Path, texts: Iterable[str], encoder: _Encoder, n_documents: int, show_progress: bool
) -> Ints:
    """Write the tokens and the table of documents; the documents as `_contents` gives them."""
    from rich.console import Console
    from rich.progress import Progress

    rows, lengths, length = array("q"), array("q"), 0
    console = Console(stderr=True)
    hidden = not (show_progress and console.is_terminal)
    with (
        Progress(console=console, transient=True, disable=hidden) as bar,
        (folder / TOKENS).open("wb") as file,
    ):
        shown = bar.track(texts, total=n_documents, description="tokenizing")
        for batch in _batches(_chunks(shown, rows)):
            for tokens, (_, last) in zip(encoder.encode(batch), batch, strict=True):
                file.write(tokens.tobytes())
                length += len(tokens)
                if last:
                    lengths.append(length)
                    length = 0
    contents = _pairs(rows)
    np.save(folder / DOCUMENTS, np.column_stack([np.array(lengths), contents]))
    return contents


def _contents(texts: Iterable[str]) -> Ints:
    """UTF-8 bytes and digest of each document, (documents, 2)."""
    rows = array("q")
    for text in texts:
        rows.extend(_row(text))
    return _pairs(rows)


def _row(text: str) -> tuple[int, int]:
    data = text.encode()
    digest = hashlib.blake2b(data, digest_size=8).digest()
    return len(data), int.from_bytes(digest, "little", signed=True)


def _pairs(rows: array[int]) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def _chunks(texts: Iterable[str], rows: array[int]) -> Iterator[tuple[str, bool]]:
    """(piece of a document, whether it is the last one); adds each document to `rows`."""
    for text in texts:
        rows.extend(_row(text))
        start = 0
        while len(text) - start > CHUNK:
            end = text.rfind("\n", start, start + CHUNK) + 1 or start + CHUNK
            yield text[start:end], False
            start = end
        yield text[start:], True


def _batches(chunks: Iterable[tuple[str, bool]]) -> Iterator[list[tuple[str, bool]]]:
    batch, size = [], 0
    for chunk in chunks:
        batch.append(chunk)
        size += len(chunk[0])
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    yield batch


def _open(folder: Path, dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], Ints] | None:
    """Tokens and the table of documents; None where they are missing or damaged."""
    try:
        table = np.load(folder / DOCUMENTS, allow_pickle=False)
        tokens = np.memmap(folder / TOKENS, dtype=dtype, mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return (tokens, table) if len(tokens) == table[:, 0].sum() else None
