"""What every table of vectors has: its size, its labels, and two ways to read it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from beltrami.data.cache import file_digest

# A mapped file counts as memory of the process as far as it was read: it is mapped anew after this.
MOST_MAPPED = 1 << 28  # bytes
BLOCK_ROWS = 4096  # of 4096 float32 columns: 64 MiB

Column = Sequence[str] | Sequence[float]


class VectorsError(ValueError):
    """The source cannot be opened or read; the message names it and says what to change."""


class Vectors(ABC):
    """A table of vectors, one a row, that is read as float32 on the CPU.

    NaN and infinity are kept as they are; what to do with them is the reader's business.
    """

    name: str
    """What to call it: a known name, a file's name, a model's name."""
    rows: int
    width: int
    labels: Sequence[str] | None
    """One a row; None where the source has none."""
    words: Sequence[str | None] | None
    """Where rows are tokens: the whole word that one stands for, None for pieces of words,
    punctuation and special tokens. None where rows are not tokens."""
    tokenless: Sequence[int]
    """Where rows are tokens: the rows that no token has, such as padding for the hardware."""
    extras: Mapping[str, Column]
    """Further columns of a CSV or parquet table, by name."""
    columns: Sequence[str]
    """Of such a table, the names of the columns that are the vectors."""
    tensor: str | None
    """Which tensor of the source it is, where there are several."""

    def __init__(
        self,
        path: Path,
        shape: tuple[int, int],
        *,
        labels: Sequence[str] | None = None,
        extras: Mapping[str, Column] | None = None,
        tensor: str | None = None,
        choices: Sequence[str] = (),
    ) -> None:
        """A table in the file `path`; `choices` tell it from other tables of the same file."""
        self.name = path.name
        self.rows, self.width = shape
        self.labels = labels
        self.words = None
        self.tokenless = ()
        self.extras = extras or {}
        self.columns = ()
        self.tensor = tensor
        self.path = path
        self.content: str | None = None
        self.choices = tuple(choices)

    @abstractmethod
    def _read(self, first: int, last: int) -> Tensor:
        """Rows first to last - 1, float32."""

    def _map_anew(self) -> None:  # noqa: B027  (files that are not mapped have nothing to do)
        """Let go of what was read of a mapped file."""

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[tuple[int, Tensor]]:
        """(first row, float32 block of at most `rows` rows), in order, until all were given."""
        if rows < 1:
            raise ValueError(f"rows must be at least 1, got {rows}")
        for first in range(0, self.rows, rows):
            yield first, self._read(first, min(first + rows, self.rows))
        self._map_anew()  # what comes next may need the memory

    def take(self, rows: Tensor) -> Tensor:
        """Vectors of `rows`, float32 (len(rows), width), in their order; rows may repeat."""
        if rows.ndim != 1 or rows.is_floating_point() or rows.dtype == torch.bool:
            raise ValueError(
                f"rows must be a 1-D tensor of integers, got {rows.dtype} of shape "
                f"{tuple(rows.shape)}"
            )
        if not len(rows):
            return torch.empty(0, self.width)
        ascending, places = torch.unique(rows.cpu().long(), return_inverse=True)
        for row in (int(ascending[0]), int(ascending[-1])):
            if not 0 <= row < self.rows:
                raise IndexError(f"{self.name} has rows 0 to {self.rows - 1}, not {row}")
        vectors = self._pick(ascending)[places]
        self._map_anew()
        return vectors

    def digest(self) -> str:
        """SHA-256 in hex of what the table holds, as the key of a cache.

        It is that of the file's bytes, or of the catalogue's entry; where labels or a choice of
        tensor or column come on top, they are part of it.
        """
        base = self.content or file_digest(self.path)
        if not self.choices:
            return base
        return hashlib.sha256("\0".join([base, *self.choices]).encode()).hexdigest()

    def _pick(self, ascending: Tensor) -> Tensor:
        """Rows in ascending order without repetitions; neighbours are read together."""
        breaks = torch.nonzero(ascending.diff() != 1).flatten() + 1
        edges = [0, *breaks.tolist(), len(ascending)]
        out = torch.empty(len(ascending), self.width)
        for start, end in pairwise(edges):
            for at in range(start, end, BLOCK_ROWS):
                stop, first = min(at + BLOCK_ROWS, end), int(ascending[at])
                out[at:stop] = self._read(first, first + stop - at)
        return out
