"""Small rooted trees: the embedded ones, and the reader for a user's own edge file.

An edge file is UTF-8 text with two columns, child and parent, separated by tabs or commas:

    child   parent
    dog     canine
    wolf    canine
    canine  carnivore

The header row is optional, blank lines are skipped, and fields may be quoted as CSV allows. A line
that starts with ``#`` is a comment, unless it has two columns: labels may start with ``#``, too.
The root is the one node that is nobody's child.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor

MIN_NODES = 3
MAX_NODES = 2000  # all pairs of more nodes would not fit a laptop's patience
HEADER = ("child", "parent")
QUOTED_NAMES = 5  # an error lists at most this many nodes


class TaxonomyError(ValueError):
    """The tree cannot be used; the message names the file, the line and the remedy."""


@dataclass(frozen=True)
class Tree:
    """A rooted tree whose nodes are numbered so that a parent comes before its children.

    Args:
        name: what to call the tree in reports.
        labels: one label a node.
        parent: the index of each node's parent; node 0 is the root and has parent -1.
    """

    name: str
    labels: tuple[str, ...]
    parent: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.parent):
            raise ValueError(
                f"labels and parent must be equally long, got {len(self.labels)} "
                f"and {len(self.parent)}"
            )
        if not self.parent or self.parent[0] != -1:
            raise ValueError("node 0 must be the root, with parent -1")
        for node, parent in enumerate(self.parent[1:], start=1):
            if not 0 <= parent < node:
                raise ValueError(
                    f"the parent of node {node} must be an earlier node, got {parent}; "
                    "number the nodes from the root down"
                )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def depth(self) -> tuple[int, ...]:
        """Number of edges between each node and the root."""
        depth = [0] * len(self)
        for node, parent in enumerate(self.parent[1:], start=1):
            depth[node] = depth[parent] + 1
        return tuple(depth)

    @property
    def leaves_below(self) -> tuple[int, ...]:
        """Number of leaves in each node's subtree; 1 for a leaf itself."""
        inner = set(self.parent)
        count = [0 if node in inner else 1 for node in range(len(self))]
        for node in range(len(self) - 1, 0, -1):
            count[self.parent[node]] += count[node]
        return tuple(count)

    @property
    def descendants(self) -> tuple[int, ...]:
        """Number of nodes below each node; 0 for a leaf."""
        count = [0] * len(self)
        for node in range(len(self) - 1, 0, -1):
            count[self.parent[node]] += count[node] + 1
        return tuple(count)

    def distances(self) -> Tensor:
        """Numbers of edges between all pairs of nodes, float64 of shape (n, n)."""
        n = len(self)
        hops = torch.zeros(n, n, dtype=torch.float64)
        # A node reaches every earlier node through its parent, which is itself earlier.
        for node, parent in enumerate(self.parent[1:], start=1):
            hops[node, :node] = hops[parent, :node] + 1
            hops[:node, node] = hops[node, :node]
        return hops


def list_taxonomies() -> list[str]:
    """Names that `load_taxonomy` knows."""
    folder = files("beltrami.data") / "files"
    return sorted(f.name.removesuffix(".tsv") for f in folder.iterdir() if f.name.endswith(".tsv"))


def load_taxonomy(name: str) -> Tree:
    """An embedded tree. `carnivores`: 131 of WordNet's carnivores, three levels below the root."""
    known = list_taxonomies()
    if name not in known:
        raise ValueError(f"no taxonomy called {name!r}; available: {', '.join(known)}")
    text = (files("beltrami.data") / "files" / f"{name}.tsv").read_text(encoding="utf-8")
    return parse_edges(text.split("\n"), name=name, source=f"{name}.tsv")


def read_edges(path: str | Path) -> Tree:
    """The tree in an edge file, as the module describes it; else a `TaxonomyError`."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise TaxonomyError(f"cannot read the edge file {path}: {reason}") from error
    except UnicodeDecodeError as error:
        raise TaxonomyError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8 with two columns, "
            "child and parent"
        ) from error
    return parse_edges(text.split("\n"), name=path.stem, source=str(path))


def parse_edges(lines: Sequence[str], *, name: str, source: str) -> Tree:
    """The tree given by the lines of an edge file; `source` is how errors call the file."""
    parent_of: dict[str, str] = {}
    line_of: dict[str, int] = {}
    names: set[str] = set()
    for line, child, parent in _rows(lines, source):
        if child in parent_of:
            again = "the same edge" if parent_of[child] == parent else "a second parent"
            raise TaxonomyError(
                f"{source}, line {line}: {child!r} has {again} (first on line {line_of[child]}); "
                "a tree gives each node one parent, so remove one of the two lines"
            )
        parent_of[child], line_of[child] = parent, line
        names |= {child, parent}
        if len(names) > MAX_NODES:
            raise TaxonomyError(
                f"{source}, line {line}: more than {MAX_NODES} nodes; pass a smaller subtree"
            )
    if len(names) < MIN_NODES:
        raise TaxonomyError(
            f"{source} has {len(names)} nodes; at least {MIN_NODES} are needed "
            "(one line per edge: child, parent)"
        )
    root = _only_root(parent_of, line_of, source)
    return _breadth_first(parent_of, line_of, root, name, source)


def _rows(lines: Iterable[str], source: str) -> Iterator[tuple[int, str, str]]:
    """(line number, child, parent) of each edge line, checked for shape."""
    filled = [(number, text) for number, text in enumerate(lines, start=1) if text.strip()]
    delimiter = _delimiter([text for _, text in filled])
    may_be_header = True
    for number, text in filled:
        try:
            fields = [field.strip() for field in next(csv.reader([text], delimiter=delimiter))]
        except csv.Error as error:
            raise TaxonomyError(f"{source}, line {number}: {error}") from error
        if _has_hash(text) and len(fields) != len(HEADER):
            continue  # a comment
        first, may_be_header = may_be_header, False
        if first and tuple(field.lower().lstrip("# ") for field in fields) == HEADER:
            continue
        if len(fields) != len(HEADER):
            kind = "tab" if delimiter == "\t" else "comma"
            raise TaxonomyError(
                f"{source}, line {number}: expected 2 {kind}-separated columns (child, parent), "
                f"found {len(fields)}: {text.strip()!r}"
            )
        child, parent = fields
        if not child or not parent:
            raise TaxonomyError(
                f"{source}, line {number}: the {'child' if not child else 'parent'} is empty; "
                "the root needs no line of its own"
            )
        if child == parent:
            raise TaxonomyError(f"{source}, line {number}: {child!r} is its own parent")
        yield number, child, parent


def _has_hash(text: str) -> bool:
    return text.lstrip().startswith("#")


def _delimiter(texts: Sequence[str]) -> str:
    """Tab or comma, by the first line that is surely no comment."""
    first = next((text for text in texts if not _has_hash(text)), "".join(texts[:1]))
    return "\t" if "\t" in first else ","


def _only_root(parent_of: Mapping[str, str], line_of: Mapping[str, int], source: str) -> str:
    roots = [p for p in dict.fromkeys(parent_of.values()) if p not in parent_of]
    if len(roots) == 1:
        return roots[0]
    if not roots:
        raise TaxonomyError(_cycle_message(parent_of, line_of, next(iter(parent_of)), source))
    shown = ", ".join(repr(root) for root in roots[:QUOTED_NAMES])
    more = ", ..." if len(roots) > QUOTED_NAMES else ""
    raise TaxonomyError(
        f"{source} has {len(roots)} roots ({shown}{more}); a tree has one: add lines that give "
        "them a common parent, or pass one of the trees"
    )


def _cycle_message(
    parent_of: Mapping[str, str], line_of: Mapping[str, int], start: str, source: str
) -> str:
    """Describe the cycle that is reached by climbing from `start`."""
    seen: dict[str, None] = {}
    node = start
    while node not in seen:
        seen[node] = None
        node = parent_of[node]
    chain = list(seen)[list(seen).index(node) :]
    shown = " -> ".join(repr(n) for n in [*chain[:QUOTED_NAMES], chain[0]])
    at = ", ".join(str(line_of[n]) for n in chain[:QUOTED_NAMES])
    return f"{source}, lines {at}: the parents form a cycle: {shown}; remove one of these edges"


def _breadth_first(
    parent_of: Mapping[str, str], line_of: Mapping[str, int], root: str, name: str, source: str
) -> Tree:
    children = defaultdict(list)
    for child, parent in parent_of.items():
        children[parent].append(child)
    labels, parents = [root], [-1]
    for index, label in enumerate(labels):  # grows while it is walked
        labels += children[label]
        parents += [index] * len(children[label])
    if len(labels) <= len(parent_of):
        unreached = next(n for n in parent_of if n not in set(labels))
        raise TaxonomyError(_cycle_message(parent_of, line_of, unreached, source))
    return Tree(name, tuple(labels), tuple(parents))
