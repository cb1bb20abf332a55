"""Tokens as the labels of a table, and the tokenizers of models, which transformers loads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beltrami.data.vectors.library import first_line, library
from beltrami.data.vectors.table import Vectors, VectorsError
from beltrami.data.vectors.words import words_of

# Any of these is a tokenizer's vocabulary.
VOCABULARIES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)


def label_tokens(vectors: Vectors, tokens: Sequence[str | None]) -> None:
    """Label each row with its token, and tell which are words.

    Tables are often longer than their vocabulary, for the sake of the hardware; rows without a
    token get a label that says so.
    """
    padded = [*tokens[: vectors.rows], *[None] * (vectors.rows - len(tokens))]
    vectors.labels = [
        f"<row {row}: no token>" if token is None else token for row, token in enumerate(padded)
    ]
    vectors.tokenless = [row for row, token in enumerate(padded) if token is None]
    words = iter(words_of([token for token in padded if token is not None]))
    vectors.words = [None if token is None else next(words) for token in padded]


def labels_digest(labels: Sequence[str]) -> str:
    """SHA-256 of the labels, for tables whose labels come from another file."""
    digest = hashlib.sha256()
    for label in labels:
        digest.update(label.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def ordered_tokens(vocabulary: Mapping[str, int]) -> list[str | None]:
    """The tokens of a vocabulary by their number, None where a number has none."""
    tokens: list[str | None] = [None] * (max(vocabulary.values(), default=-1) + 1)
    for token, number in vocabulary.items():
        tokens[number] = token
    return tokens


def folder_tokens(folder: Path) -> list[str | None] | None:
    """The tokens of a folder's tokenizer by their number; None where it has none."""
    if not any((folder / name).is_file() for name in VOCABULARIES):
        return None
    tokenizers = _tokenizers(str(folder))
    try:
        return _tokens(tokenizers, str(folder), local_files_only=True)
    except Exception as error:  # tokenizers raise whatever they like
        raise VectorsError(
            f"cannot read the tokenizer in {folder} ({first_line(error)}); open the .safetensors "
            "file itself for vectors without labels"
        ) from error


def hub_tokens(name: str) -> list[str | None] | None:
    """The tokens of a model on the hub; None where its tokenizer cannot be loaded."""
    tokenizers = _tokenizers(name)
    try:
        return _tokens(tokenizers, name)
    except Exception:  # a model need not have one, and vectors are of use without labels
        return None


def _tokenizers(source: str) -> Any:
    needs = f"the tokenizer of {source}"
    return library("transformers", extra="llm", needs=needs).AutoTokenizer


def _tokens(tokenizers: Any, source: str, **options: Any) -> list[str | None]:
    tokenizer = tokenizers.from_pretrained(source, trust_remote_code=False, **options)
    return ordered_tokens(tokenizer.get_vocab())
