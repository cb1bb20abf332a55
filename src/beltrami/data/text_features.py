"""Texts as vectors without a model to download: hashed character n-grams."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from beltrami.checks import check_integer

_TEXTS_AT_ONCE = 1024  # whose sums are held in float64


def hashed_ngrams(
    texts: Sequence[str], size: int = 1024, *, shortest: int = 2, longest: int = 4
) -> Tensor:
    """Bags of character n-grams, hashed to `size` columns, float32 (len(texts), size).

    Each text is lower-cased and split at white space; n-grams are taken of each word with a mark at
    both ends, "<word>", so that beginnings and endings are features of their own, and the whole
    marked word is one, too. An n-gram that occurs k times adds ±(1 + log k) to its column, the sign
    also from the hash, so that collisions cancel on average (Weinberger et al. 2009). Rows have
    length 1, that of an empty text 0. The hash is CRC-32 of UTF-8: the same on every machine.

    Args:
        texts: one a row. size: number of columns.
        shortest, longest: length of the n-grams in characters.
    """
    check_integer("size", size)
    check_integer("shortest", shortest)
    check_integer("longest", longest, shortest)
    out = torch.zeros(len(texts), size)
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        block = texts[start : start + _TEXTS_AT_ONCE]
        out[start : start + len(block)] = _unit_rows(block, size, shortest, longest)
    return out


def _unit_rows(texts: Sequence[str], size: int, shortest: int, longest: int) -> Tensor:
    """The rows of some texts, float64."""
    rows, columns, values = [], [], []
    for row, text in enumerate(texts):
        for gram, count in Counter(_ngrams(text, shortest, longest)).items():
            code = zlib.crc32(gram.encode("utf-8", "surrogatepass"))
            rows.append(row)
            columns.append((code >> 1) % size)
            values.append((1 - 2 * (code & 1)) * (1 + math.log(count)))
    out = torch.zeros(len(texts), size, dtype=torch.float64)
    if rows:
        place = torch.tensor([rows, columns])
        out.index_put_((place[0], place[1]), torch.tensor(values).double(), accumulate=True)
    length = torch.linalg.vector_norm(out, dim=1, keepdim=True)
    return out / torch.where(length > 0, length, 1.0)


def _ngrams(text: str, shortest: int, longest: int) -> Iterator[str]:
    for word in text.lower().split():
        marked = f"<{word}>"
        yield marked
        for n in range(shortest, min(longest, len(marked) - 1) + 1):
            for start in range(len(marked) - n + 1):
                yield marked[start : start + n]
