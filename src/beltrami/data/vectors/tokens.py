"""Tokens as the labels of a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from beltrami.data.vectors.table import Vectors
from beltrami.data.vectors.words import words_of


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
