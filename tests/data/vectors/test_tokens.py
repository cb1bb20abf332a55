from __future__ import annotations

from pathlib import Path

import numpy as np

from beltrami.data.vectors.arrays import ArrayVectors
from beltrami.data.vectors.tokens import label_tokens, labels_digest, ordered_tokens


def table(rows: int) -> ArrayVectors:
    return ArrayVectors(np.zeros((rows, 2)), Path("x"))


def test_rows_without_a_token_say_so() -> None:
    vectors = table(5)
    label_tokens(vectors, ["▁dog", None, "s"])
    assert vectors.labels == [
        "▁dog", "<row 1: no token>", "s", "<row 3: no token>", "<row 4: no token>",
    ]  # fmt: skip
    assert vectors.words == ["dog", None, None, None, None]


def test_tokens_without_a_row_are_left_out() -> None:
    vectors = table(1)
    label_tokens(vectors, ["▁dog", "▁oak"])
    assert vectors.labels == ["▁dog"]
    assert vectors.words == ["dog"]


def test_a_vocabulary_is_put_in_order_with_its_gaps() -> None:
    assert ordered_tokens({"b": 2, "a": 0}) == ["a", None, "b"]
    assert ordered_tokens({}) == []


def test_the_digest_tells_where_labels_end() -> None:
    assert labels_digest(["ab", "c"]) != labels_digest(["a", "bc"])
    assert len(labels_digest(["\ud800"])) == 64
