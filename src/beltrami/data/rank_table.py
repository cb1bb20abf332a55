"""Tables of ranked paths: one row a taxon, one column a rank.

    kingdom    family     genus    species
    Animalia   Felidae    Felis    catus
    Animalia   Felidae    Felis

A column is known by its name in the header: the ranks of biology in any case, such as `Kingdom` or
`sub_family`, in any order of columns, or the names that the caller gives, from the top down. Other
columns are left aside. An empty cell is skipped: the taxon below hangs on the next one above. Rows
may end before the last column. Levels without names of ranks may be called `level 1`, `level 2` ...

A node is a path, not a name: `alba` below `Tyto` and `alba` below `Motacilla` are two nodes, with
the labels `alba (Tyto)` and `alba (Motacilla)`. Rows may repeat a path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from beltrami.data.collect import unique_labels
from beltrami.data.delimited import Row, Rows
from beltrami.data.edge_list import COLUMN_NAMES, edge_columns
from beltrami.data.hierarchy import Hierarchy, HierarchyError, did_you_mean, quoted_names
from beltrami.data.ranks import PLACE_OF_RANK, RANKS, plain_rank
from beltrami.data.text import MISSING_VALUES, quoted

MIN_RANKS = 2  # a table has; one column is not a path
MOST_ANCESTORS = 50  # that a label names

Key = tuple[int, int, str]  # of a node: its parent or -1, its rank, its name


def read_rank_table(path: str | Path, ranks: Sequence[str] | None = None) -> Hierarchy:
    """The ranked hierarchy in a file as the module describes it; else a `HierarchyError`.

    Args:
        path: of a CSV or TSV file.
        ranks: the columns to read, from the top down; the ranks of biology if None.
    """
    if isinstance(ranks, str):
        raise TypeError(f"ranks must be a sequence of column names, got the text {ranks!r}")
    path = Path(path)
    rows = Rows(path, error=HierarchyError, comments=True)
    body = iter(rows)
    header = _header_row(body, rows)
    if header is None:
        raise HierarchyError(f"{path} is empty; its first row must name the ranks")
    columns = _known_columns(header, rows) if ranks is None else _columns(header, rows, ranks)
    keys = _nodes(header, body, rows, columns)
    return hierarchy_of_keys(path, keys, [title for title, _ in columns])


def hierarchy_of_keys(
    path: Path, keys: Sequence[Key], titles: Sequence[str], *, ranked: bool = True
) -> Hierarchy:
    """The hierarchy of nodes, parents first, whose ranks have titles."""
    edges = [(node, parent) for node, (parent, _, _) in enumerate(keys) if parent >= 0]
    try:
        return Hierarchy(
            path.stem,
            tuple(_labels(keys, titles)),
            torch.tensor(edges, dtype=torch.int64).reshape(-1, 2),
            tuple(titles[rank] for _, rank, _ in keys) if ranked else None,
        )
    except HierarchyError as error:
        raise HierarchyError(f"{path}: {error}") from None


def _nodes(
    header: Row, body: Iterator[Row], rows: Rows, columns: Sequence[tuple[str, int]]
) -> list[Key]:
    """The nodes of all rows below the header, parents first."""
    node_of: dict[Key, int] = {}
    width = len(header.fields)
    for row in body:
        if len(row.fields) != width and rows.is_comment(row.text):
            continue
        if any(row.fields[width:]):
            raise rows.wrong_columns(row, width, f"as in the header on line {header.line}")
        node = -1
        for rank, (title, column) in enumerate(columns):
            name = row.fields[column] if column < len(row.fields) else ""
            if name in MISSING_VALUES:
                raise rows.problem(
                    row.line, f"the {title} is {name!r}; leave the cell of a missing rank empty"
                )
            if name:
                node = node_of.setdefault((node, rank, name), len(node_of))
        if node < 0:
            titles = quoted_names([title for title, _ in columns])
            raise rows.problem(
                row.line, f"all ranks ({titles}) are empty; fill one or remove the line"
            )
    if not node_of:
        raise HierarchyError(f"{rows.source} is empty: it has a header and no row below it")
    return list(node_of)


def is_rank_table(path: Path) -> bool:
    """Whether a file's first row names two ranks or more, and not a child and its parent."""
    rows = Rows(path, error=HierarchyError, comments=True)
    header = _header_row(iter(rows), rows)
    if header is None:
        return False
    names = {field.lower().lstrip("# ") for field in header.fields}
    if any(set(pair) <= names for pair in COLUMN_NAMES):
        return False
    if "species" not in names and edge_columns(header.fields):
        return False  # Darwin Core has parents, and ranks as well, which end above the species
    return _count_ranks(header) >= MIN_RANKS


def _count_ranks(row: Row) -> int:
    return sum(plain_rank(field) in PLACE_OF_RANK for field in row.fields)


def _header_row(body: Iterator[Row], rows: Rows) -> Row | None:
    """The first row that is not a comment; a header may itself begin with #."""
    for row in body:
        if not rows.is_comment(row.text) or _count_ranks(row) > 1:
            return row
    return None


def _known_columns(header: Row, rows: Rows) -> list[tuple[str, int]]:
    """(rank, column) of the ranks of biology in a header, from the top down."""
    columns: dict[str, int] = {}
    for column, field in enumerate(header.fields):
        if (rank := PLACE_OF_RANK.get(plain_rank(field))) is not None:
            if RANKS[rank] in columns:
                raise rows.problem(header.line, f"two columns are called {field!r}; rename one")
            columns[RANKS[rank]] = column
    if len(columns) < MIN_RANKS:
        raise rows.problem(
            header.line,
            f"the header names {len(columns)} ranks; {MIN_RANKS} are needed, such as genus and "
            f"species, or pass ranks=. The columns are {quoted(', '.join(header.fields))}",
        )
    return [(rank, columns[rank]) for rank in RANKS if rank in columns]


def _columns(header: Row, rows: Rows, ranks: Sequence[str]) -> list[tuple[str, int]]:
    """(rank, column) of the ranks that the caller names."""
    if len(ranks) < MIN_RANKS or len(set(ranks)) < len(ranks):
        raise ValueError(f"ranks must name {MIN_RANKS} or more different columns, got {ranks!r}")
    for rank in ranks:
        count = header.fields.count(rank)
        if count > 1:
            raise rows.problem(header.line, f"two columns are called {rank!r}; rename one")
        if not count:
            hint = did_you_mean(rank, header.fields)
            raise rows.problem(
                header.line,
                f"there is no column {rank!r}{'; ' if hint else '.'}{hint} The columns are "
                f"{quoted(', '.join(header.fields))}",
            )
    return [(rank, header.fields.index(rank)) for rank in ranks]


def _labels(keys: Sequence[Key], titles: Sequence[str]) -> list[str]:
    """Names, in brackets what tells apart the nodes that share one: rank, or nearest ancestors."""
    namesakes: dict[str, list[int]] = {}
    for node, (_, _, name) in enumerate(keys):
        namesakes.setdefault(name, []).append(node)
    detail: dict[int, str] = {}
    for nodes in namesakes.values():
        if len({keys[node][1] for node in nodes}) == len(nodes):
            detail.update((node, titles[keys[node][1]]) for node in nodes)
            continue
        above = {node: _ancestors(keys, titles, node) for node in nodes}
        for ancestors in range(1, max(map(len, above.values())) + 1):
            text_of = {node: ", ".join(above[node][:ancestors]) for node in nodes}
            count = Counter(text_of.values())
            detail.update((node, text) for node, text in text_of.items() if count[text] == 1)
            nodes = [node for node in nodes if count[text_of[node]] > 1]
        for node in nodes:  # the ancestors differ in nothing but their ranks
            texts = _ancestors(keys, titles, node, with_ranks=True)
            detail[node] = ", ".join([titles[keys[node][1]], *texts])
    return unique_labels((name, detail[node]) for node, (_, _, name) in enumerate(keys))


def _ancestors(
    keys: Sequence[Key], titles: Sequence[str], node: int, *, with_ranks: bool = False
) -> list[str]:
    """The names of a node's ancestors, the nearest first; of a root, its rank."""
    names: list[str] = []
    above = keys[node][0]
    while above >= 0 and len(names) < MOST_ANCESTORS:
        parent, rank, name = keys[above]
        names.append(f"{titles[rank]} {name}" if with_ranks else name)
        above = parent
    return names or [titles[keys[node][1]]]
