"""Knowledge graphs as files of triples, in the format of WN18RR and FB15k-237.

A graph is a folder with three UTF-8 files, `train.txt`, `valid.txt` and `test.txt` (or `.tsv`; or
with a prefix, as in `wordnet-mlj12-train.txt`), one triple a line, separated by tabs:

    head    relation    tail

A header row of just these words is skipped, as are blank lines.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from beltrami.checks import check_choice, check_unique
from beltrami.data.delimited import Rows
from beltrami.data.text import DataWarning, quoted

SPLITS = ("train", "valid", "test")
COLUMNS = ("head", "relation", "tail")

_SUFFIXES = (".txt", ".tsv")


class TripleError(ValueError):
    """The triples cannot be used; the message names the file, the line and the remedy."""


@dataclass(frozen=True)
class TripleSet:
    """A knowledge graph in three splits.

    Entities and relations are numbered in the order of their first appearance in train, valid and
    test.

    Args:
        name: what to call the graph in reports.
        entities, relations: their labels, unique.
        train, valid, test: int64 (m, 3), rows of (head, relation, tail) without duplicates.
    """

    name: str
    entities: tuple[str, ...]
    relations: tuple[str, ...]
    train: Tensor
    valid: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        for label, names in (("entities", self.entities), ("relations", self.relations)):
            check_unique(label, names)
        for split in SPLITS:
            self._check_split(split, self.split(split))

    def split(self, name: str) -> Tensor:
        """The triples of "train", "valid" or "test"."""
        check_choice("split", name, SPLITS)
        triples: Tensor = getattr(self, name)
        return triples

    @cached_property
    def known_tails(self) -> KnownTails:
        """The true answers of every query (head, relation), in all splits and both directions."""
        everything = torch.cat([self.train, self.valid, self.test])
        return KnownTails.of(
            add_reciprocals(everything, len(self.relations)), entities=len(self.entities)
        )

    def summary(self) -> dict[str, int]:
        """Sizes, and how much of valid and test no training can have seen.

        `valid_unseen_entities` counts entities of valid without a triple in train,
        `valid_unseen_triples` the triples that have one; `_unseen_relations` likewise, and
        `_in_train` counts the triples that are in train, too: answers given away.
        """
        counts = {"entities": len(self.entities), "relations": len(self.relations)}
        counts |= {split: len(self.split(split)) for split in SPLITS}
        seen = torch.zeros(len(self.entities), dtype=torch.bool)
        seen[self.train[:, [0, 2]].flatten()] = True
        trained = torch.zeros(len(self.relations), dtype=torch.bool)
        trained[self.train[:, 1]] = True
        for split in SPLITS[1:]:
            triples = self.split(split)
            ends = triples[:, [0, 2]]
            used = triples[:, 1].unique()
            counts[f"{split}_unseen_entities"] = int((~seen[ends.unique()]).sum())
            counts[f"{split}_unseen_triples"] = int((~seen[ends]).any(1).sum())
            counts[f"{split}_unseen_relations"] = int((~trained[used]).sum())
            counts[f"{split}_in_train"] = int(
                torch.isin(self._keys(triples), self._keys(self.train)).sum()
            )
        return counts

    def digest(self) -> str:
        """SHA-256 of labels and triples: equal for equal graphs, whatever the files' dates."""
        state = hashlib.sha256()
        for names in (self.entities, self.relations):
            for label in names:
                data = label.encode("utf-8")
                state.update(len(data).to_bytes(8, "little") + data)
            state.update(b"\xff")
        for split in SPLITS:
            triples = self.split(split)
            state.update(len(triples).to_bytes(8, "little"))
            state.update(triples.contiguous().numpy().astype("<i8").tobytes())
        return state.hexdigest()

    def _keys(self, triples: Tensor) -> Tensor:
        """One number a triple."""
        n, r = len(self.entities), len(self.relations)
        return (triples[:, 0] * r + triples[:, 1]) * n + triples[:, 2]

    def _check_split(self, name: str, triples: Tensor) -> None:
        if triples.dtype != torch.int64 or triples.ndim != 2 or triples.shape[1] != len(COLUMNS):
            raise ValueError(
                f"{name} must be int64 of shape (m, 3), got {triples.dtype} {tuple(triples.shape)}"
            )
        if len(triples) == 0:
            raise ValueError(f"{name} must hold at least one triple")
        limit = torch.tensor([len(self.entities), len(self.relations), len(self.entities)])
        if bool((triples < 0).any()) or bool((triples >= limit).any()):
            raise ValueError(f"{name} has indices beyond its entities or relations")


# --- filtered ranking ----------------------------------------------------------------------------


@dataclass(frozen=True)
class KnownTails:
    """For each query (head, relation) the sorted tails that are true, in ragged (CSR) form.

    Relations count twice: `r + R` is relation r of R backwards, as in `add_reciprocals`.

    Args:
        entities: number of entities.
        keys: int64 (k,), ascending: relation·entities + head of each query that has tails.
        offsets: int64 (k + 1,): the tails of key i are `tails[offsets[i]:offsets[i + 1]]`.
        tails: int64.
    """

    entities: int
    keys: Tensor
    offsets: Tensor
    tails: Tensor

    @classmethod
    def of(cls, triples: Tensor, *, entities: int) -> KnownTails:
        """The index of triples that contain their reciprocals already."""
        pairs = torch.stack([triples[:, 1] * entities + triples[:, 0], triples[:, 2]], 1)
        key_of, tails = pairs.unique(dim=0).unbind(1)
        keys, counts = key_of.unique_consecutive(return_counts=True)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return cls(entities, keys, offsets, tails)

    def to(self, device: torch.device | str) -> KnownTails:
        """The same index on another device."""
        moved = (t.to(device) for t in (self.keys, self.offsets, self.tails))
        return KnownTails(self.entities, *moved)

    def pairs(self, heads: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
        """(row in the batch, tail) of every true answer to a batch of queries, each (total,)."""
        wanted = relations * self.entities + heads
        place = torch.searchsorted(self.keys, wanted).clamp(max=len(self.keys) - 1)
        starts = self.offsets[place]
        counts = torch.where(self.keys[place] == wanted, self.offsets[place + 1] - starts, 0)
        rows = torch.arange(len(heads), device=counts.device).repeat_interleave(counts)
        shift = starts + counts - counts.cumsum(0)  # from a place in the result to one in tails
        return rows, self.tails[torch.arange(len(rows), device=rows.device) + shift[rows]]


def add_reciprocals(triples: Tensor, relations: int) -> Tensor:
    """The triples and, for each (h, r, t), its reciprocal (t, r + relations, h): (2m, 3).

    With them both directions of link prediction are questions for the tail.
    """
    head, relation, tail = triples.unbind(1)
    return torch.cat([triples, torch.stack([tail, relation + relations, head], 1)])


# --- files ---------------------------------------------------------------------------------------


def load_triples(folder: str | Path, *, name: str | None = None) -> TripleSet:
    """Read a folder of triples, as the module describes it; else a `TripleError`.

    A triple that a file repeats is kept once, with a warning that counts the others. What valid
    and test hold that train does not is part of `TripleSet.summary()`.

    Args:
        folder: where train, valid and test are.
        name: what to call the graph; the folder's name if left out.
    """
    folder = Path(folder)
    files = {split: _find(folder, split) for split in SPLITS}
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    tensors: dict[str, Tensor] = {}
    for split, path in files.items():
        rows: dict[tuple[int, int, int], None] = {}
        total = 0
        for head, relation, tail in _rows(path):
            total += 1
            rows[
                entities.setdefault(head, len(entities)),
                relations.setdefault(relation, len(relations)),
                entities.setdefault(tail, len(entities)),
            ] = None
        if not rows:
            raise TripleError(f"{path} has no triples; one line each: head, relation, tail")
        if total > len(rows):
            warnings.warn(
                f"{path} repeats {total - len(rows)} of its {total} triples; each is used once",
                DataWarning,
                stacklevel=2,
            )
        tensors[split] = torch.tensor(list(rows), dtype=torch.int64)
    label = name or folder.resolve().name
    return TripleSet(label, tuple(entities), tuple(relations), **tensors)


def _find(folder: Path, split: str) -> Path:
    """The one file of a split: by its plain name, else the only one that ends in it."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise TripleError(f"{folder} {what}; pass the folder that holds train, valid and test")
    plain = [path for suffix in _SUFFIXES if (path := folder / f"{split}{suffix}").exists()]
    files = plain or [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in _SUFFIXES and path.stem.endswith((f"-{split}", f"_{split}"))
    ]
    if not files:
        raise TripleError(
            f"{folder} has no {split}.txt or {split}.tsv; a graph has three files, "
            "train, valid and test, with tab-separated lines: head, relation, tail"
        )
    if len(files) > 1:
        several = ", ".join(path.name for path in files)
        raise TripleError(f"{folder} has several files for {split} ({several}); keep one of them")
    return files[0]


def _rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """The triples of a file, checked for shape."""
    rows = Rows(path, error=TripleError, delimiter="\t", quotes=False)
    for number, row in enumerate(rows):
        if number == 0 and tuple(field.lower() for field in row.fields) == COLUMNS:
            continue
        if len(row.fields) != len(COLUMNS):
            raise rows.wrong_columns(row, len(COLUMNS), ", ".join(COLUMNS))
        for field, column in zip(row.fields, COLUMNS, strict=True):
            if not field:
                raise rows.problem(row.line, f"the {column} is empty: {quoted(row.text)}")
        head, relation, tail = row.fields
        yield head, relation, tail
