"""WordNet's nouns and verbs, from the database files of WordNet 3.0 and 3.1.

`data.noun` and `data.verb` hold one synset a line (wndb(5WN)), after a licence of lines that begin
with two spaces:

    offset lex_filenum ss_type w_cnt {word lex_id} p_cnt {pointer offset pos source/target} | gloss

`w_cnt` is hexadecimal. The edges are the pointers `@` (hypernym) and `@i` (instance hypernym).
With `index.noun` or `index.verb` beside the data, labels are the familiar `dog.n.01`: the first
word, and which of that word's senses the synset is. Without, the offset stands for the sense.
"""

from __future__ import annotations

from pathlib import Path

from beltrami.data.collect import Collector, unique_labels
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.text import quoted, read_lines

HYPERNYMS = ("@", "@i")
DEBIAN_FOLDER = Path("/usr/share/wordnet")
# Names of `beltrami data`, the preferred first.
PACKAGES = ("wordnet-3.0", "wordnet-3.0-npm", "wordnet-3.1")
LETTER = {"noun": "n", "verb": "v"}


def read_wordnet(path: str | Path) -> Hierarchy:
    """The hypernym hierarchy in a file `data.noun` or `data.verb`."""
    path = Path(path)
    part = path.suffix.removeprefix(".")
    if path.stem != "data" or part not in LETTER:
        raise HierarchyError(f"WordNet's files are called data.noun or data.verb, got {path}")
    words: dict[str, str] = {}
    line_of: dict[str, int] = {}
    edges: list[tuple[str, str]] = []
    for number, text in read_lines(path, error=HierarchyError):
        if text.startswith("  "):  # the licence
            continue
        try:
            offset, word, above = _synset(text)
        except (ValueError, IndexError):
            raise HierarchyError(
                f"{path}, line {number}: not a synset as in WordNet's data files: {text[:60]!r}"
            ) from None
        if offset in words:
            raise HierarchyError(
                f"{path}, line {number}: synset {offset} is there twice "
                f"(first on line {line_of[offset]})"
            )
        words[offset], line_of[offset] = word, number
        edges += [(offset, parent) for parent in above]
    label = _labels(path, words, LETTER[part])
    collector = Collector(str(path))
    for offset in words:
        collector.node(label[offset])
    for child, parent in edges:
        if parent not in label:
            raise collector.error(
                line_of[child],
                f"{quoted(label[child])} has the hypernym {parent}, which is not there",
            )
        collector.edge(label[child], label[parent], line_of[child])
    return collector.hierarchy(f"wordnet-{part}s")


def find_wordnet(part: str = "noun") -> Path:
    """The installed data.noun or data.verb: of Debian's `wordnet-base`, else of our own cache."""
    if part not in LETTER:
        raise ValueError(f"part must be 'noun' or 'verb', got {part!r}")
    from beltrami.data.cache import installed_path  # which reads the catalogue

    cached = [path for name in PACKAGES if (path := installed_path(name)) is not None]
    folders = [DEBIAN_FOLDER, *cached]
    for folder in folders:
        for file in sorted(folder.rglob(f"data.{part}")):
            return file
    raise HierarchyError(
        f"WordNet's data.{part} is not installed (looked in {', '.join(map(str, folders))}); "
        f"get it with: beltrami data get {PACKAGES[0]}"
    )


def _synset(text: str) -> tuple[str, str, list[str]]:
    """Offset, first word and the offsets of the hypernyms of a line."""
    fields = text.split(" | ", 1)[0].split()
    offset, letter, words = fields[0], fields[2], int(fields[3], 16)
    if len(offset) != 8 or not offset.isdecimal() or words < 1:
        raise ValueError(text)
    at = 4 + 2 * words
    end = at + 1 + 4 * int(fields[at])
    if len(fields) < end:
        raise ValueError(text)
    symbols, targets, kinds = (fields[at + i : end : 4] for i in (1, 2, 3))
    above = [
        target
        for symbol, target, kind in zip(symbols, targets, kinds, strict=True)
        if symbol in HYPERNYMS and kind == letter
    ]
    return offset, fields[4].lower(), list(dict.fromkeys(above))


def _labels(path: Path, words: dict[str, str], letter: str) -> dict[str, str]:
    """A label for each offset, with the sense numbers of the index file if that is there."""
    index_file = path.with_name("index" + path.suffix)
    senses = _senses(index_file) if index_file.is_file() else {}
    names = []
    for offset, word in words.items():
        known = senses.get(word, [])
        sense = f"{known.index(offset) + 1:02d}" if offset in known else offset
        names.append((f"{word}.{letter}.{sense}", offset))
    return dict(zip(words, unique_labels(names), strict=True))


def _senses(path: Path) -> dict[str, list[str]]:
    """The offsets of each word's synsets, first sense first."""
    senses = {}
    for number, text in read_lines(path, error=HierarchyError):
        if text.startswith("  "):
            continue
        fields = text.split()
        try:
            count, pointers = int(fields[2]), int(fields[3])
        except (ValueError, IndexError):
            raise HierarchyError(
                f"{path}, line {number}: not an entry of a WordNet index: {text[:60]!r}"
            ) from None
        senses[fields[0]] = fields[6 + pointers : 6 + pointers + count]
    return senses
