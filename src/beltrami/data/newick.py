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
from pathlib import Path

from beltrami.data.collect import Collector
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.text import quoted, whole_text

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<mark>[(),:;])"
    r"|'(?P<quoted>[^']*(?:''[^']*)*)'"
    r"|(?P<comment>\[)"
    r"|(?P<plain>[^\s()\[\],:;']+)"
)
_BRACKET = re.compile(r"[\[\]]")


@dataclass
class _Node:
    """A node; `number` counts inner nodes from 1 and is 0 for leaves."""

    parent: _Node | None
    offset: int
    number: int
    label: str = ""


def read_newick(path: str | Path) -> Hierarchy:
    """The tree in a Newick file."""
    path = Path(path)
    text = whole_text(path, error=HierarchyError)
    nodes = _Parser(text, path).nodes()
    labels = _labels(nodes, text, path)
    label_of = {id(node): label for node, label in zip(nodes, labels, strict=True)}
    collector = Collector(str(path))
    line, counted = 1, 0
    for node, label in zip(nodes, labels, strict=True):  # in the order of their offsets
        line, counted = line + text.count("\n", counted, node.offset), node.offset
        collector.node(label)
        if node.parent is not None:
            collector.edge(label, label_of[id(node.parent)], line)
    return collector.hierarchy(path.stem)


class _Parser:
    """One pass over the tokens with the open brackets as a chain, so that depth has no limit."""

    def __init__(self, text: str, path: Path) -> None:
        self.text = text
        self.path = path
        self.found: list[_Node] = []
        self.inner = 0
        self.above: _Node | None = None  # the innermost open bracket
        self.current: _Node | None = None  # what labels and lengths belong to
        self.has_label = self.has_length = self.ended = False

    def nodes(self) -> list[_Node]:
        """All nodes in the order in which they begin, the root first."""
        colon: int | None = None
        for kind, word, offset in self.tokens():
            if self.ended:
                raise self.error(offset, "something follows the tree; a file holds one tree")
            if colon is not None:
                self.add_length(word if kind == "plain" else "", offset)
                colon = None
            elif kind != "mark":
                self.add_label(word, offset)
            elif word == "(":
                self.open(offset)
            elif word == ":":
                colon = offset
            else:
                self.close(word, offset)
        if colon is not None:
            raise self.error(colon, "expected a branch length after ':'")
        if self.above is not None:
            raise self.error(self.above.offset, "this bracket is never closed")
        if not self.ended:
            what = "the tree must end with ;" if self.found else "the file is empty: it has no tree"
            raise self.error(len(self.text), what)
        return self.found

    def open(self, offset: int) -> None:
        """An inner node begins."""
        if self.current is not None:
            raise self.error(offset, "an opening bracket right after a node; a comma is missing")
        self.inner += 1
        self.above = _Node(self.above, offset, self.inner)
        self.found.append(self.above)

    def add_label(self, label: str, offset: int) -> None:
        """A leaf, or the label of the inner node that was just closed."""
        node = self.node(offset)
        if self.has_label or self.has_length:
            raise self.error(
                offset, f"a label right after a node, {quoted(label)}; a comma is missing"
            )
        node.label, self.has_label = label, True

    def add_length(self, word: str, offset: int) -> None:
        """A branch length, which is checked and forgotten."""
        self.node(offset)
        if self.has_length:
            raise self.error(offset, "a second branch length")
        try:
            float(word)
        except ValueError:
            raise self.error(
                offset, f"expected a branch length after ':', found {quoted(word)}"
            ) from None
        self.has_length = True

    def close(self, mark: str, offset: int) -> None:
        """A comma, a closing bracket or a semicolon ends a node."""
        self.node(offset)
        self.current, self.has_label, self.has_length = None, False, False
        if mark == ";":
            if self.above is not None:
                raise self.error(self.above.offset, "this bracket is never closed")
            self.ended = True
        elif self.above is None:
            raise self.error(offset, f"{mark!r} outside of all brackets")
        elif mark == ")":
            self.current, self.above = self.above, self.above.parent

    def node(self, offset: int) -> _Node:
        """The node that is being read; a new leaf if there is none."""
        if self.current is None:
            self.current = _Node(self.above, offset, 0)
            self.found.append(self.current)
        return self.current

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
            elif kind == "plain":
                yield kind, match[kind].replace("_", " "), offset
            elif kind == "mark":
                yield kind, match[kind], offset
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
        return _error(self.text, self.path, offset, what)


def _labels(nodes: list[_Node], text: str, path: Path) -> list[str]:
    taken: dict[str, int] = {}
    for node in nodes:
        if node.number:
            continue
        if not node.label:
            raise _error(text, path, node.offset, "a leaf without a name")
        if node.label in taken:
            first = text.count("\n", 0, taken[node.label]) + 1
            raise _error(
                text,
                path,
                node.offset,
                f"the leaf {quoted(node.label)} is there twice (first on line {first})",
            )
        taken[node.label] = node.offset
    labels = []
    for node in nodes:
        label = node.label
        if node.number:
            own = f"node-{node.number}"
            label = label or own
            if label in taken:
                label = f"{label} ({own})"
            while label in taken:
                label += "'"
            taken[label] = node.offset
        labels.append(label)
    return labels


def _error(text: str, path: Path, offset: int, what: str) -> HierarchyError:
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    return HierarchyError(f"{path}, line {line}, column {column}: {what}")
