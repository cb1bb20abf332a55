"""GloVe's vectors, which come as one JSON document of 300 MB.

The document is converted once, into `converted/` beside it: an array that can be mapped, and the
words. It is scanned, not loaded, which would take a gigabyte:

    {..., "size": 341479, ..., "vectors": {"the": [100 numbers, norm, rank], ...}, ...}
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from beltrami.data.atomic import scratch_folder, sweep, write_atomically
from beltrami.data.cache import cache_folder
from beltrami.data.lock import locked
from beltrami.data.vectors.arrays import open_npy
from beltrami.data.vectors.table import Vectors, VectorsError
from beltrami.data.vectors.words import letters_only

WIDTH = 100
NUMBERS = WIDTH + 2  # of each word: its vector, then norm and rank
CONVERTED = "converted"
ARRAY, WORDS = "vectors.npy", "words.json"

_HEAD = 1 << 12  # bytes, in which the size stands
_SIZE = re.compile(rb'"size"\s*:\s*(\d+)')
_VECTORS = re.compile(rb'"vectors"\s*:\s*\{')
_ENTRY = re.compile(rb'\s*("(?:[^"\\]|\\.)*")\s*:\s*\[([^\]]*)\]\s*([,}])')


def open_glove(folder: Path) -> Vectors:
    """The vectors in an installed folder, most frequent word first; converted if need be."""
    converted = folder / CONVERTED
    if not converted.is_dir():
        # The lock of the data: nobody fetches it anew meanwhile, and nobody converts it twice.
        with locked(cache_folder() / "locks" / "glove.lock", lambda: None) as alone:
            if not converted.is_dir():
                _convert(folder, converted, alone)
    vectors = open_npy(converted / ARRAY)
    labels: list[str] = json.loads((converted / WORDS).read_text(encoding="utf-8"))
    vectors.labels = labels
    vectors.words = [letters_only(label) for label in labels]
    return vectors


def _convert(folder: Path, target: Path, alone: bool) -> None:
    """Write both files into a folder of their own, then rename it."""
    documents = sorted(path for path in folder.glob("*.json") if path.name != "manifest.json")
    if not documents:
        raise VectorsError(f"{folder} holds no JSON document; run: beltrami data get glove --check")
    if alone:
        sweep(folder, CONVERTED)
    with scratch_folder(folder, CONVERTED) as scratch:
        _write(documents[0], scratch)
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was quicker, where there are no locks
                raise


def _write(document: Path, folder: Path) -> None:
    with (
        document.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
    ):
        match = _SIZE.search(text, 0, _HEAD)
        if match is None:
            raise VectorsError(f'{document} has no "size"; run: beltrami data get glove --check')
        size = int(match[1])
        words: list[str | None] = [None] * size
        array = np.lib.format.open_memmap(
            folder / ARRAY, mode="w+", dtype=np.float32, shape=(size, WIDTH)
        )
        for word, numbers in _entries(text, document):
            rank = int(numbers[-1]) if numbers[-1].is_integer() else -1
            if len(numbers) != NUMBERS or not 0 <= rank < size or words[rank] is not None:
                raise VectorsError(
                    f"{document}: {word!r} has {len(numbers)} numbers, the last {numbers[-1]}; "
                    f"expected {NUMBERS}, the last its own rank below {size}"
                )
            words[rank] = word
            array[rank] = numbers[:WIDTH]
    if None in words:
        raise VectorsError(
            f"{document} is cut short: no word of rank {words.index(None)}; run: "
            "beltrami data get glove --check"
        )
    array.flush()
    del array
    write_atomically(folder / WORDS, json.dumps(words, ensure_ascii=False))


def _entries(text: mmap.mmap, document: Path) -> Iterator[tuple[str, list[float]]]:
    """Each word with its numbers."""
    start = _VECTORS.search(text)
    place, end = (start.end(), b",") if start else (0, b"")
    while end == b",":
        entry = _ENTRY.match(text, place)
        parsed = _parsed(entry) if entry else None
        if entry is None or parsed is None:
            break
        yield parsed
        place, end = entry.end(), entry[3]
    if end != b"}":
        raise VectorsError(
            f"{document}, byte {place}: expected a word and its list of numbers; run: "
            "beltrami data get glove --check"
        )


def _parsed(entry: re.Match[bytes]) -> tuple[str, list[float]] | None:
    """The word and the numbers of an entry; None where they are none."""
    try:
        return json.loads(entry[1]), [float(number) for number in entry[2].split(b",")]
    except ValueError:
        return None
