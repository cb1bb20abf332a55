"""Edge lists: text with one edge a line, in columns.

Two columns, child and parent, separated by tabs, commas or semicolons:

    child   parent
    dog     canine
    wolf    canine

The header row is optional, blank lines are skipped, and fields may be quoted as CSV allows. A line
that starts with ``#`` is a comment, unless it has as many columns as the others: labels may start
with ``#``, too. Files with more columns, or in another order, need a header that names two of them
`child` and `parent`; `node`, `id` or `name` may stand for the child. Or `hyponym` and `hypernym`;
or `source` and `target` (a source is the parent, as edges of graphs are drawn from the root); or
`id1` and `id2` (child and parent, as in files of Poincaré embeddings). A column `rank` beside them
has the rank of the child. A line whose parent is empty is a root, which needs no line of its own.

Graph files, two integers separated by spaces, are taken as source and target, too; so are all
files called `.edges`, whatever separates their columns. Lines starting with ``%`` are comments
there.
"""

from __future__ import annotations

import csv
import io
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from beltrami.data.atomic import write_atomically
from beltrami.data.collect import Collector
from beltrami.data.delimited import Row, Rows
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.text import DataWarning, quoted

# What headers may call the child and the parent.
COLUMN_NAMES = (
    ("child", "parent"),
    ("id", "parent_id"),
    ("node", "parent"),
    ("id", "parent"),
    ("name", "parent"),
    ("hyponym", "hypernym"),
    ("target", "source"),
    ("to", "from"),
    ("id1", "id2"),
)
GRAPH_NAMES = (("target", "source"), ("to", "from"))  # of them, what any graph's edges may have
RANK_COLUMN = "rank"
# One of two columns of such a name makes a header of a row, whatever the other is called.
PARENT_NAMES = {"parent", "parent_id", "parents", "hypernym", "broader", "superclass"}
GENERAL_NAMES = {"node", "id", "name"}  # that columns have in all kinds of tables
GRAPH_SUFFIX = ".edges"

OnNode = Callable[[str, str, int], None]


def read_edge_list(path: str | Path) -> Hierarchy:
    """The hierarchy in a file as the module describes it; else a `HierarchyError`."""
    path = Path(path)
    collector = Collector(str(path))
    for line, child, parent in EdgeRows(path, collector.rank):
        collector.edge(child, parent, line)
    return collector.hierarchy(path.stem)


def write_edge_list(hierarchy: Hierarchy, path: str | Path) -> None:
    """Write the edges as tab-separated child and parent, so that `read_edge_list` gives them back.

    Ranks are a third column. Nodes without an edge, and with ranks all roots, have lines with an
    empty parent. Labels must not hold line ends or begin or end with spaces.
    """
    path = Path(path)
    labels, edges, ranks = hierarchy.labels, hierarchy.edges.tolist(), hierarchy.ranks
    for text in itertools.chain(labels, set(ranks or ())):
        if text != text.strip() or "\n" in text or "\r" in text:
            raise HierarchyError(
                f"the label {quoted(text)} cannot stand in {path}: it holds a line end, or a "
                "space at an end"
            )
    header: list[str] = [*COLUMN_NAMES[0]]
    lonely = set(range(len(labels))).difference(itertools.chain.from_iterable(edges))
    roots = sorted(lonely) if ranks is None else hierarchy.roots.tolist()
    children = [*roots, *(child for child, _ in edges)]
    parents = [*[""] * len(roots), *(labels[parent] for _, parent in edges)]
    table = [[labels[child], parent] for child, parent in zip(children, parents, strict=True)]
    if ranks is not None:
        header.append(RANK_COLUMN)
        table = [[*row, ranks[child]] for row, child in zip(table, children, strict=True)]
    file = io.StringIO()
    csv.writer(file, delimiter="\t", lineterminator="\n").writerows([header, *table])
    write_atomically(path, file.getvalue())


class EdgeRows:
    """(line number, child, parent) of each edge of a file, once.

    Args:
        path: of the file, whose ending says whether columns without a header are source and target.
        on_node: called with child, its rank or "", and line of each row.
    """

    def __init__(self, path: Path, on_node: OnNode | None = None) -> None:
        self._rows = Rows(path, error=HierarchyError, comments=True)
        self._on_node = on_node
        self.has_header = False
        self.of_graph = path.suffix.lower() == GRAPH_SUFFIX
        """Whether columns are source and target, of any graph; known when an edge was read."""

    def __iter__(self) -> Iterator[tuple[int, str, str]]:
        rows = self._rows
        layout: _Layout | None = None
        for row in rows:
            line, fields, text = row
            expected = layout.columns if layout else len(COLUMN_NAMES[0])
            if len(fields) != expected and rows.is_comment(text):
                continue
            if layout is None:
                layout = _header(row, rows)
                if layout is not None:
                    self.of_graph, self.has_header = layout.of_graph, True
                    continue
                self.of_graph |= rows.delimiter is None
                places = (1, 0) if self.of_graph else (0, 1)
                layout = _Layout(len(COLUMN_NAMES[0]), *places, self.of_graph)
            if len(fields) != layout.columns:
                raise rows.wrong_columns(row, layout.columns, layout.words)
            child, parent = fields[layout.child], fields[layout.parent]
            if not child:
                raise rows.problem(line, "the child is empty; of a root only the parent is")
            if child == parent:
                root = "; leave the parent of a root empty"
                raise rows.problem(line, f"{quoted(child)} is its own parent{root}")
            if self._on_node is not None:
                self._on_node(child, "" if layout.rank is None else fields[layout.rank], line)
            if parent:
                yield line, child, parent


@dataclass(frozen=True)
class _Layout:
    """How many columns there are, and which of them hold child and parent."""

    columns: int
    child: int
    parent: int
    of_graph: bool
    header_line: int | None = None
    rank: int | None = None

    @property
    def words(self) -> str:
        """The columns for an error message."""
        if self.header_line is not None:
            return f"as in the header on line {self.header_line}"
        order = "child, parent" if self.child < self.parent else "parent, child"
        return (
            f"{order}; files with more need a header row that names child and parent, or ranks; "
            "`beltrami data show --help` shows other forms"
        )


def _header(row: Row, rows: Rows) -> _Layout | None:
    """The layout a first row gives if it is a header."""
    names = [field.lower().lstrip("# ") for field in row.fields]
    for child, parent in COLUMN_NAMES:
        if child in names and parent in names:
            for name in (child, parent, RANK_COLUMN):
                if names.count(name) > 1:
                    raise rows.problem(row.line, f"two columns are called {name!r}; rename one")
            others = [n for n in names if n in GENERAL_NAMES and n != child]
            if child in GENERAL_NAMES and parent == "parent" and others:
                raise rows.problem(
                    row.line,
                    f"the parents may be those of {child!r} or of {others[0]!r}; call the right "
                    "one 'child'",
                )
            of_graph = (child, parent) in GRAPH_NAMES
            places = names.index(child), names.index(parent)
            ranked = RANK_COLUMN in names and not of_graph
            rank = names.index(RANK_COLUMN) if ranked else None
            return _Layout(len(names), *places, of_graph, row.line, rank)
    if len(names) == len(COLUMN_NAMES[0]):
        parents = [place for place, name in enumerate(names) if name in PARENT_NAMES]
        if len(parents) == 1:
            message = (
                f"{rows.source}: line {row.line} ({', '.join(row.fields)}) is read as a header"
            )
            warnings.warn(message, DataWarning, 2)
            return _Layout(len(names), 1 - parents[0], parents[0], False, row.line)
    if len(names) > len(COLUMN_NAMES[0]):
        for child, parent in COLUMN_NAMES:
            if (child in names and child not in GENERAL_NAMES) or parent in names:
                missing = parent if child in names else child
                raise rows.problem(
                    row.line,
                    f"there is no column {missing!r}; the columns are {quoted(', '.join(names))}",
                )
    return None
