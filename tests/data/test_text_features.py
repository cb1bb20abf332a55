"""Hashed n-grams: known values, lengths, and what makes texts alike."""

from __future__ import annotations

import math
import zlib

import pytest
import torch

from beltrami.data import text_features
from beltrami.data.text_features import hashed_ngrams


def column(gram: str, size: int) -> tuple[int, int]:
    code = zlib.crc32(gram.encode())
    return (code >> 1) % size, 1 - 2 * (code & 1)


def test_a_word_is_its_ngrams() -> None:
    size = 1 << 16  # no collisions
    (row,) = hashed_ngrams(["Aaa"], size, shortest=2, longest=3)
    counts = {"<aaa>": 1, "<a": 1, "aa": 2, "a>": 1, "<aa": 1, "aaa": 1, "aa>": 1}
    expected = torch.zeros(size)
    for gram, count in counts.items():
        place, sign = column(gram, size)
        expected[place] += sign * (1 + math.log(count))
    torch.testing.assert_close(row, expected / expected.norm())


def test_rows_have_length_one_and_do_not_depend_on_others() -> None:
    texts = ["domestic cat", "", "  ", "cat", "ünï", "wild  Cat"]
    rows = hashed_ngrams(texts, 256)
    assert rows.shape == (6, 256)
    torch.testing.assert_close(rows.norm(dim=1), torch.tensor([1.0, 0, 0, 1, 1, 1]))
    assert torch.equal(rows[3:4], hashed_ngrams(["cat"], 256))
    assert torch.equal(hashed_ngrams([], 8), torch.zeros(0, 8))
    torch.testing.assert_close(rows[5], hashed_ngrams(["wild cat"], 256)[0])


def test_blocks_of_texts_are_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"kind {i} of cat" for i in range(7)]
    whole = hashed_ngrams(texts, 64)
    monkeypatch.setattr(text_features, "_TEXTS_AT_ONCE", 3)
    assert torch.equal(hashed_ngrams(texts, 64), whole)
    assert whole.dtype == torch.float32


def test_texts_that_share_letters_are_alike() -> None:
    cat, cats, dog = hashed_ngrams(["wild cat", "wildcats", "hound dog"], 4096)
    assert cat @ cats > 0.3 > abs(cat @ dog)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        hashed_ngrams(["a"], 0)
    with pytest.raises(ValueError, match="shortest must be at least 1, got 0"):
        hashed_ngrams(["a"], shortest=0)
    with pytest.raises(ValueError, match="longest must be at least 3, got 2"):
        hashed_ngrams(["a"], shortest=3, longest=2)
