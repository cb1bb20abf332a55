"""Edge lists: text with one edge a line, in columns.

Two columns, child and parent, separated by tabs, commas or semicolons:

    child   parent
    dog     canine
    wolf    canine

The header row is optional, blank lines are skipped, and fields may be quoted as CSV allows. A line
that starts with ``#`` is a comment, unless it has as many columns as the others: labels may start
with ``#``, too. Files with more columns, or in another order, need a header that names two of them
`child` and `parent`; `parent_id`, `Parent Name` or `parentNameUsageID` do as well, and columns of
ids (`id`, `taxonID`) or of names (`name`, `title`) may stand for the child. With both, the values
of the parents tell which is meant, and nodes are labelled by name. Or `hyponym` and `hypernym`; or
`source` and `target` (a source is the parent, as edges of graphs are drawn from the root); or
`id1` and `id2` (child and parent, as in files of Poincaré embeddings). A column `rank` beside them
has the rank of the child. A line whose parent is empty is a root, which needs no line of its own;
so is one with `NA`, `null` and the like, unless a child is called so.

Graph files, two integers separated by spaces, are taken as source and target, too; so are all
files called `.edges`, whatever separates their columns. Lines starting with ``%`` are comments
there.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from beltrami.data.atomic import write_atomically
from beltrami.data.collect import Collector, unique_labels
from beltrami.data.delimited import Row, Rows
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.text import MISSING_VALUES, DataWarning, is_number, quoted

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
RANK_COLUMNS = {RANK_COLUMN, "taxonrank"}  # the second of Darwin Core
GENERAL_NAMES = {"node", "id", "name"}  # that columns have in all kinds of tables
# The first or last words of names of columns, and the last words.
CHILD_WORDS = {"child", "children"}
PARENT_WORDS = {"parent", "parents", "parentid"}
PARENTS_OF_TWO = PARENT_WORDS | {"hypernym", "broader", "superclass"}  # where there are two columns
ID_WORDS = {"id", "node", "code", "nodeid", "taxonid", "parentid"}
NAME_WORDS = {"name", "label", "title", "scientificname"}
NEARLY_ALL = 0.9  # of the parents must be ids, where names are parents, too
GRAPH_SUFFIX = ".edges"

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_]+|\d+")  # also those of camelCase

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

    Ranks are a third column. Nodes without an edge, roots called like a missing value, and with
    ranks all roots, have lines with an empty parent. Labels must not hold line ends or begin or
    end with spaces.
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
    lonely.update(root for root in hierarchy.roots.tolist() if labels[root] in MISSING_VALUES)
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
        missing: list[tuple[str, tuple[int, str, str]]] = []  # until all children are known
        children: set[str] = set()
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
            label_of = layout.label_of
            edge = line, label_of.get(child, child), label_of.get(parent, parent)
            if self._on_node is not None:
                self._on_node(edge[1], "" if layout.rank is None else fields[layout.rank], line)
            children.update({child} & MISSING_VALUES)
            if parent in MISSING_VALUES and not self.of_graph:
                missing.append((parent, edge))
            elif parent:
                yield edge
        yield from (edge for parent, edge in missing if parent in children)
        if empty := [(parent, *edge) for parent, edge in missing if parent not in children]:
            first = f"first {empty[0][0]!r} on line {empty[0][1]}"
            message = f"missing values are read as empty parents: {len(empty):,}, {first}"
            warnings.warn(f"{rows.source}: {message}", DataWarning, 2)


@dataclass(frozen=True)
class _Layout:
    """How many columns there are, and which of them hold child and parent."""

    columns: int
    child: int
    parent: int
    of_graph: bool
    header_line: int | None = None
    rank: int | None = None
    label_of: dict[str, str] = field(default_factory=dict)

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


def edge_columns(fields: Sequence[str]) -> tuple[int, list[int], list[int]] | None:
    """The column of parents in a header, those that parents may refer to, and those of names."""
    names = [_plain(field) for field in fields]
    pairs = [pair for pair in COLUMN_NAMES if set(pair) <= set(names)]
    parents = _columns(fields, PARENT_WORDS, ends=(0, -1))
    others = [column for column in range(len(fields)) if column not in parents]
    children = [
        column for column in _columns(fields, CHILD_WORDS, ends=(0, -1)) if column in others
    ]
    pool = children or others
    ids = [column for column in _columns(fields, ID_WORDS) if column in pool]
    titles = [column for column in _columns(fields, NAME_WORDS) if column in pool]
    if pairs[:1] != list(COLUMN_NAMES[:1]):
        of_ids, of_titles = _columns(fields, ID_WORDS), _columns(fields, NAME_WORDS)
        for parent in sorted(parents, key=lambda column: column not in of_ids):
            meant = ids * (parent not in of_titles) + titles * (parent not in of_ids)
            if meant or children:
                return parent, meant or children, titles
    return (names.index(pairs[0][1]), [names.index(pairs[0][0])], []) if pairs else None


def _plain(field: str) -> str:
    return field.lower().lstrip("# ")


def _columns(fields: Sequence[str], words: set[str], ends: Sequence[int] = (-1,)) -> list[int]:
    """The columns with a name that ends, or begins, with one of the words; just that word first."""
    split = [[word.lower() for word in _WORD.findall(field)] or [""] for field in fields]
    columns = (n for n, of in enumerate(split) if any(of[end] in words for end in ends))
    return sorted(columns, key=lambda column: len(split[column]))


def _header(row: Row, rows: Rows) -> _Layout | None:
    """The layout a first row gives if it is a header."""
    names = [_plain(field) for field in row.fields]
    two = len(names) == len(COLUMN_NAMES[0])
    if two and not any(set(pair) <= set(names) for pair in COLUMN_NAMES):
        return _header_of_two(row, rows)
    if columns := edge_columns(row.fields):
        parent, meant, titles = columns
        for name in (*(names[column] for column in (*meant, parent)), RANK_COLUMN):
            if names.count(name) > 1:
                raise rows.problem(row.line, f"two columns are called {name!r}; rename one")
        of_graph = (names[meant[0]], names[parent]) in GRAPH_NAMES
        ranks = [column for column, name in enumerate(names) if name in RANK_COLUMNS]
        rank = ranks[0] if ranks and not of_graph else None
        child, label_of = meant[0], dict[str, str]()
        if len({*meant, *titles}) > 1:
            child, label_of = _children_and_labels(row, rows, columns)
        return _Layout(len(names), child, parent, of_graph, row.line, rank, label_of)
    if len(names) < len(COLUMN_NAMES[0]):
        return None
    for pair in COLUMN_NAMES:
        if (pair[0] in names and pair[0] not in GENERAL_NAMES) or pair[1] in names:
            missing = pair[1] if pair[0] in names else pair[0]
            raise rows.problem(
                row.line,
                f"there is no column {missing!r}; the columns are {quoted(', '.join(names))}",
            )
    if any(map(is_number, names)):
        return None
    levels = "of a header, call the columns 'level 1', 'level 2', ... from the top"
    raise rows.wrong_columns(
        row, len(COLUMN_NAMES[0]), f"child, parent; {levels}, or name child and parent"
    )


def _header_of_two(row: Row, rows: Rows) -> _Layout | None:
    """The layout of two columns, of which one is called like parents or children.

    Such words may be labels, too: a row is no header if a row below has one of them.
    """
    fields, header = row.fields, quoted(", ".join(row.fields))
    parents = _columns(fields, PARENTS_OF_TWO, ends=(0, -1))
    children = _columns(fields, CHILD_WORDS, ends=(0, -1))
    known = 1 in (len(parents), len(children))
    if not known and len(_columns(fields, {*ID_WORDS, *NAME_WORDS, "path"})) < len(fields):
        return None
    if not all(fields) or any({*fields} & {*below.fields} for below in _rows_below(row, rows)):
        return None
    if not known:
        what = f"no column of {header} has parents; name child and parent, or leave only paths"
        raise rows.problem(row.line, what)
    if {*parents, *children} != {0, 1}:
        message = f"{rows.source}: line {row.line} ({header}) is read as a header"
        warnings.warn(message, DataWarning, 2)
    parent = parents[0] if len(parents) == 1 else 1 - children[0]
    return _Layout(len(fields), 1 - parent, parent, False, row.line)


def _rows_below(row: Row, rows: Rows) -> Iterator[Row]:
    """The rows below a header, read anew."""
    again = Rows(Path(rows.source), error=HierarchyError, comments=True)
    return (other for other in again if other.line > row.line)


def _children_and_labels(
    header: Row, rows: Rows, columns: tuple[int, list[int], list[int]]
) -> tuple[int, dict[str, str]]:
    """The column that parents refer to, by their values, and the label of each of its ids."""
    parent, meant, titles = columns
    width = len(header.fields)
    table = [row.fields for row in _rows_below(header, rows) if len(row.fields) == width]
    above = {fields[parent]: fields[parent] for fields in table}
    for value in ("", *MISSING_VALUES):
        above.pop(value, None)
    hits = {column: len(above.keys() & {fields[column] for fields in table}) for column in meant}
    child = max(meant, key=hits.__getitem__)
    rivals = [column for column in meant if (column in titles) != (child in titles)]
    rival = max(rivals, key=hits.__getitem__, default=child)
    unsure = hits[child] < NEARLY_ALL * len(above) and (not hits[child] or hits[rival])
    if unsure and [c for c in meant if _plain(header.fields[c]) in GENERAL_NAMES] == titles[:1]:
        child = titles[0]  # the column `name`
    elif rivals and unsure:
        raise rows.problem(
            header.line,
            f"the parents may be those of {_plain(header.fields[child])!r} or of "
            f"{_plain(header.fields[rival])!r}; call the right one 'child'",
        )
    if child in titles or not titles:
        return child, {}
    names: dict[str, str] = {}
    for fields in table:
        names.setdefault(fields[child], fields[titles[0]] or fields[child])
    names = above | names  # with parents that have no row of their own
    labels = unique_labels((name, ident) for ident, name in names.items())
    return child, dict(zip(names, labels, strict=True))
