"""Trees in the Newick format, as phylogenies are passed on: ((cat,dog)carnivore,horse)mammal;

Labels may be quoted ('O''Brien'), comments stand in square brackets, and branch lengths (:0.1) are
checked and left out. An underscore in a label without quotes is a space. Inner nodes without a
label are called node-1, node-2, ... in the order of their opening brackets. Leaves must have names,
each once; an inner label that is taken (support values such as 95 often are) gets its node's
number, as in "95 (node-7)". A file holds one tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from beltrami.data.collect import Collector
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.text import is_number, quoted, whole_text

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<mark>[(),:;])"
    r"|'(?P<quoted>[^']*(?:''[^']*)*)'"
    r"|(?P<comment>\[)"
    r"|(?P<plain>[^\s()\[\],:;']+)"
)
_BRACKET = re.compile(r"[\[\]]")
_UNCLOSED = "this bracket is never closed"


@dataclass
class _Node:
    """A node; `number` counts inner nodes from 1 and is 0 for leaves."""

    parent: _Node | None
    offset: int
    number: int
    label: str | None = None
    has_length: bool = False


def read_newick(path: str | Path) -> Hierarchy:
    """The tree in a Newick file."""
    path = Path(path)
    source = _Source(whole_text(path, error=HierarchyError), path)
    nodes = _parse(source)
    labels = _labels(nodes, source)
    label_of = {id(node): label for node, label in zip(nodes, labels, strict=True)}
    collector = Collector(str(path))
    line, counted = 1, 0
    for node, label in zip(nodes, labels, strict=True):  # in the order of their offsets
        line, counted = line + source.text.count("\n", counted, node.offset), node.offset
        collector.node(label)
        if node.parent is not None:
            collector.edge(label, label_of[id(node.parent)], line)
    return collector.hierarchy(path.stem)


def _parse(source: _Source) -> list[_Node]:
    """All nodes in the order in which they begin, the root first; depth has no limit."""
    nodes: list[_Node] = []
    above: _Node | None = None  # the innermost open bracket
    current: _Node | None = None  # what labels and lengths belong to
    numbers = count(1)
    colon: int | None = None  # after which a length must stand
    ended = False
    for kind, word, offset in source.tokens():
        if ended:
            raise source.error(offset, "something follows the tree; a file holds one tree")
        if (kind, word) == ("mark", "(") and colon is None:
            if current is not None:
                raise source.error(
                    offset, "an opening bracket right after a node; a comma is missing"
                )
            above = _Node(above, offset, next(numbers))
            nodes.append(above)
            continue
        if current is None:
            current = _Node(above, offset, 0)
            nodes.append(current)
        if colon is not None:
            _check_length(current, kind, word, offset, source)
            current.has_length, colon = True, None
        elif kind != "mark":
            if current.label is not None or current.has_length:
                raise source.error(
                    offset, f"a label right after a node, {quoted(word)}; a comma is missing"
                )
            current.label = word
        elif word == ":":
            colon = offset
        elif word == ";":
            if above is not None:
                raise source.error(above.offset, _UNCLOSED)
            ended = True
        elif above is None:
            raise source.error(offset, f"{word!r} outside of all brackets")
        else:
            current, above = (above, above.parent) if word == ")" else (None, above)
    if colon is not None:
        raise source.error(colon, "expected a branch length after ':'")
    if above is not None:
        raise source.error(above.offset, _UNCLOSED)
    if not ended:
        what = "the tree must end with ;" if nodes else "the file is empty: it has no tree"
        raise source.error(len(source.text), what)
    return nodes


def _check_length(node: _Node, kind: str, word: str, offset: int, source: _Source) -> None:
    if node.has_length:
        raise source.error(offset, "a second branch length")
    text = word if kind == "plain" else ""
    if not is_number(text):
        raise source.error(offset, f"expected a branch length after ':', found {quoted(text)}")


@dataclass(frozen=True)
class _Source:
    text: str
    path: Path

    def tokens(self) -> Iterator[tuple[str, str, int]]:
        """(kind, word, offset) of all tokens but spaces and comments."""
        offset = 0
        while offset < len(self.text):
            match = _TOKEN.match(self.text, offset)
            if match is None:
                what = "a quote that is never closed" if self.text[offset] == "'" else "a stray ]"
                raise self.error(offset, what)
            kind = match.lastgroup or ""
            if kind == "comment":
                offset = self.after_comment(offset)
                continue
            if kind == "quoted":
                yield kind, match[kind].replace("''", "'"), offset
            elif kind != "space":
                yield kind, match[kind].replace("_", " "), offset
            offset = match.end()

    def after_comment(self, start: int) -> int:
        """The end of a comment, which may hold others."""
        depth = 0
        for bracket in _BRACKET.finditer(self.text, start):
            depth += 1 if bracket[0] == "[" else -1
            if not depth:
                return bracket.end()
        raise self.error(start, "a comment that is never closed")

    def error(self, offset: int, what: str) -> HierarchyError:
        """An error with line and column."""
        line = self.text.count("\n", 0, offset) + 1
        column = offset - self.text.rfind("\n", 0, offset)
        return HierarchyError(f"{self.path}, line {line}, column {column}: {what}")


def _labels(nodes: list[_Node], source: _Source) -> list[str]:
    """The names of leaves, each once, and of inner nodes with what tells them apart."""
    taken: dict[str, int] = {}
    for node in nodes:
        if node.number:
            continue
        if not node.label:
            raise source.error(node.offset, "a leaf without a name")
        if node.label in taken:
            first = source.text.count("\n", 0, taken[node.label]) + 1
            raise source.error(
                node.offset,
                f"the leaf {quoted(node.label)} is there twice (first on line {first})",
            )
        taken[node.label] = node.offset
    labels = []
    for node in nodes:
        own = f"node-{node.number}"
        label = node.label or own
        if node.number:
            if label in taken:
                label = f"{label} ({own})"
            while label in taken:
                label += "'"
            taken[label] = node.offset
        labels.append(label)
    return labels
