"""Graphs with features and labels at their nodes, from tables and from NumPy arrays without pickle.

    graph = read_graph("disease_lp")                 # a folder with edges, features and labels
    graph = read_graph("edges.tsv", "features.npy", "labels.csv")

Edges are CSV or TSV with two columns, the two ends of an edge; a header row is optional. If all
ends are whole numbers they are the numbers of the nodes, from 0; else they are names. Features are
a NumPy array `.npy` of shape (nodes, features), a sparse matrix in compressed rows `.npz` (the
format of `scipy.sparse.save_npz`), or a CSV or TSV table of numbers. Labels are a `.npy` array of
shape (nodes,) or a CSV or TSV table of one column, or of two, node and label; a negative number or
an empty field is not a label. Rows are nodes in order; where nodes have names, tables have them in
their first column.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from beltrami.data.delimited import Rows
from beltrami.data.graphs import Graph, undirected_edges
from beltrami.data.text import is_number, quoted

_MAX_NUMBERS = 1 << 28  # of a dense array: 1 GiB as float32
_MAX_NODES = 100_000_000
_MOST_NODES_A_ROW = 1000  # numbers may have gaps, but a table this sparse was misread
_SMALL = 1_000_000  # nodes that need no rows to be believed
_EDGE_HEADERS = {
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("u", "v"),
    ("id1", "id2"),
    ("node1", "node2"),
}
_NODE_WORDS = {"node", "id", "name"}
_LABEL_WORDS = {"label", "labels", "class"}


_ENDINGS = {
    "edges": (".csv", ".tsv", ".txt"),
    "features": (".npz", ".npy", ".csv", ".tsv"),
    "labels": (".npy", ".csv", ".tsv"),
}
_ALIASES = {"feats": "features"}


class GraphError(ValueError):
    """A graph's files cannot be used; the message names the file, the line and the remedy."""


def read_graph(
    edges: str | Path,
    features: str | Path | None = None,
    labels: str | Path | None = None,
    *,
    name: str | None = None,
) -> Graph:
    """A graph from its files, as the module describes them; else a `GraphError`.

    Pairs that are listed twice or in both directions are one edge, and loops are left out: layers
    add their own.

    Args:
        edges: the file of edges, or a folder that holds one file each of edges, features and
            labels, named `*edges.*`, `*features.*` or `*feats.*`, and `*labels.*`.
        features: file of features; without, each node has the features 1 and the logarithm of
            1 + its number of neighbours.
        labels: file of labels, if there are any.
        name: what to call the graph; the name of the file or the folder if None.
    """
    place = Path(edges)
    if place.is_dir():
        if features is not None or labels is not None:
            raise GraphError(
                f"{place} is a folder: leave features and labels out, or give the file of edges"
            )
        files = _find_files(place)
        edges_file, features_file, labels_file = (files.get(k) for k in _ENDINGS)
        if edges_file is None:
            raise GraphError(f"{place} has no file of edges; expected one named like *edges.csv")
    else:
        edges_file = place
        features_file, labels_file = (None if f is None else Path(f) for f in (features, labels))
    pairs, lines = _edge_table(edges_file)
    names = None if isinstance(pairs[0][0], int) else NodeNames()
    rows = None if features_file is None else read_features(features_file, names)
    classes = None if labels_file is None else _labels(labels_file, names)
    if names is not None:  # nodes that no table has named come last
        pairs = [tuple(map(names.number, pair)) for pair in pairs]
    ends = torch.tensor(pairs).t()
    listed = 1 + int(ends.max()) if names is None else len(names)
    tables = ((features_file, rows), (labels_file, classes))
    counts = {file: len(table) for file, table in tables if file and table is not None}
    nodes = max(listed, *counts.values()) if counts else listed  # some may have no edge
    _check_counts(counts, nodes, edges_file, ends, lines)
    joined = undirected_edges(ends)
    label_names, label_ids = _label_classes(classes)
    return Graph(
        name or (place.name if place.is_dir() else place.stem),
        joined,
        _degrees(joined, nodes) if rows is None else rows,
        label_ids,
        label_names,
        None if names is None else names.in_order,
    )


class NodeNames(dict[str, int]):
    """The number of each named node, in the order in which names turn up."""

    def number(self, name: str) -> int:
        """The node of this name; a new one if the name is new."""
        return self.setdefault(name, len(self))

    @property
    def in_order(self) -> tuple[str, ...]:
        """All names, by number."""
        return tuple(self)


def _edge_table(path: Path) -> tuple[list[Any], list[int]]:
    """Pairs of nodes, all of them numbers or all of them names, and the line of each pair."""
    pairs: list[Any] = []
    lines: list[int] = []
    table = Rows(path, error=GraphError, words=True)
    for line, fields, _ in table:
        if not pairs and tuple(field.lower() for field in fields) in _EDGE_HEADERS:
            continue
        if len(fields) != 2 or not all(fields):
            both = quoted(" ".join(fields))
            raise table.problem(
                line, f"expected the two ends of an edge in two columns, found {both}"
            )
        pairs.append(tuple(fields))
        lines.append(line)
    if not pairs:
        raise GraphError(f"{path} has no edges")
    if not all(field.isdecimal() for pair in pairs for field in pair):
        return pairs, lines
    numbers = [
        tuple(_node_number(field, path, line) for field in pair)
        for line, pair in zip(lines, pairs, strict=True)
    ]
    highest = max(range(len(numbers)), key=lambda row: max(numbers[row]))
    _check_gaps(max(numbers[highest]), len(numbers), path, lines[highest])
    return numbers, lines


def read_features(path: Path, names: NodeNames | None) -> Tensor:
    """Features (n, d), float32, finite."""
    ending = path.suffix.lower()
    if ending not in _ENDINGS["features"]:
        raise GraphError(f"{path}: features must be .npz, .npy, .csv or .tsv, not {ending!r}")
    if ending in (".csv", ".tsv"):
        features = _feature_table(path, names)
    else:
        _check_numbered(path, names, "features must be a table with the names in its first column")
        values = _sparse_rows(path) if ending == ".npz" else _array(path)
        if values.ndim != 2 or values.dtype.kind not in "fiub":
            raise GraphError(
                f"{path}: features must be numbers of shape (nodes, features), got {values.dtype} "
                f"of shape {values.shape}"
            )
        features = torch.from_numpy(values.astype(np.float32))
    bad = ~features.isfinite()
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        raise GraphError(f"{path}: the feature {column} of node {row} is not finite")
    return features


def _labels(path: Path, names: NodeNames | None) -> list[str]:
    """The label of each node as text."""
    ending = path.suffix.lower()
    if ending in (".csv", ".tsv"):
        return _label_table(path, names)
    if ending != ".npy":
        raise GraphError(f"{path}: labels must be .npy, .csv or .tsv, not {ending!r}")
    _check_numbered(path, names, "labels must be a table of two columns, node and label")
    values = _array(path)
    if values.ndim != 1 or values.dtype.kind not in "iuUSfb":
        raise GraphError(
            f"{path}: labels must be whole numbers or text of shape (nodes,), got {values.dtype} "
            f"of shape {values.shape}"
        )
    if values.dtype.kind == "f" and not np.array_equal(values, np.round(values)):
        raise GraphError(f"{path}: labels must be whole numbers, got fractions or NaN")
    if values.dtype.kind in "fb":
        values = values.astype(np.int64)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    return [str(value) for value in values.tolist()]


def _check_numbered(path: Path, names: NodeNames | None, what: str) -> None:
    if names is not None:
        raise GraphError(f"{path}: the edges name their nodes, so {what} (.csv or .tsv)")


# --- the parts put together -----------------------------------------------------------------------


def _find_files(folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        word = file.stem.rpartition(".")[2].rpartition("_")[2].lower()
        kind = _ALIASES.get(word, word)
        if kind not in _ENDINGS or file.suffix.lower() not in _ENDINGS[kind]:
            continue
        if kind in files:
            raise GraphError(
                f"{folder} has two files of {kind}, {files[kind].name} and {file.name}; name the "
                "files one by one"
            )
        files[kind] = file
    return files


def _check_counts(
    counts: dict[Path, int], nodes: int, edges_file: Path, ends: Tensor, lines: list[int]
) -> None:
    """Features and labels must have a row for every node, neither fewer nor more."""
    for file, count in counts.items():
        outside = (ends >= count).any(0)
        if bool(outside.any()):
            first = int(outside.nonzero()[0])
            raise GraphError(
                f"{edges_file}, line {lines[first]}: node {int(ends[:, first].max())} has no row "
                f"in {file}, which has {count} (nodes are numbered from 0)"
            )
        if count != nodes:
            other = next(f for f, n in counts.items() if n == nodes)
            raise GraphError(f"{file} has {count} rows, but {other} has {nodes}")


def _label_classes(labels: list[str] | None) -> tuple[tuple[str, ...], Tensor | None]:
    """Names of the classes, in numerical or else alphabetical order, and the class of each node."""
    if labels is None:
        return (), None
    known = {label for label in labels if label and not re.fullmatch(r"-\d+", label)}
    if not known:
        raise GraphError("no node has a label")
    numeric = all(label.isdecimal() and len(label) < 20 for label in known)
    names = sorted(known, key=lambda label: (int(label) if numeric else 0, label))
    number = {label: i for i, label in enumerate(names)}
    return tuple(names), torch.tensor([number.get(label, -1) for label in labels])


def _degrees(edges: Tensor, nodes: int) -> Tensor:
    degree = torch.bincount(edges.flatten(), minlength=nodes).float()
    return torch.stack([torch.ones(nodes), torch.log1p(degree)], dim=1)


# --- tables ---------------------------------------------------------------------------------------


def _feature_table(path: Path, names: NodeNames | None) -> Tensor:
    rows: dict[int, list[float]] = {}
    width = 0
    table = Rows(path, error=GraphError, words=True)
    for place, (line, fields, _) in enumerate(table):
        cells = fields if names is None else fields[1:]
        words = [cell for cell in cells if not is_number(cell)]
        if place == 0 and words and len(words) == len(cells):
            continue  # a header
        if words:
            raise table.problem(line, f"{quoted(words[0])} is not a number")
        width = width or len(cells)
        if len(cells) != width or not width:
            raise table.problem(
                line, f"expected {width or 'one or more'} features, found {len(cells)}"
            )
        node = len(rows) if names is None else names.number(fields[0])
        if node in rows:
            raise table.problem(line, f"node {quoted(fields[0])} has two rows")
        rows[node] = [float(cell) for cell in cells]
        if len(rows) * width > _MAX_NUMBERS:
            raise table.problem(line, f"more than {_MAX_NUMBERS} numbers")
    if not rows:
        raise GraphError(f"{path} has no features")
    return torch.tensor([rows[node] for node in range(len(rows))])


def _label_table(path: Path, names: NodeNames | None) -> list[str]:
    labels: dict[int, str] = {}
    line_of: dict[int, int] = {}
    table = Rows(path, error=GraphError, words=True)
    for place, (line, fields, _) in enumerate(table):
        titles = [field.lower() for field in fields]
        of_nodes = len(titles) == 1 or titles[0] in _NODE_WORDS
        if place == 0 and titles[-1] in _LABEL_WORDS and of_nodes:
            continue  # a header
        if len(fields) > 2 or (len(fields) == 1 and names is not None):
            or_one = ", or one" if names is None else ""
            raise table.problem(
                line, f"expected two columns, node and label{or_one}; found {len(fields)}"
            )
        if len(fields) == 1:
            node = len(labels)
        elif names is not None:
            node = names.number(fields[0])
        elif fields[0].isdecimal():
            node = _node_number(fields[0], path, line)
        else:
            raise table.problem(line, f"{quoted(fields[0])} is not a node; the edges number them")
        if node in labels:
            raise table.problem(line, f"node {quoted(fields[0])} has two labels")
        labels[node], line_of[node] = fields[-1], line
    if not labels:
        raise GraphError(f"{path} has no labels")
    highest = max(labels)
    _check_gaps(highest, len(labels), path, line_of[highest])
    return [labels.get(node, "") for node in range(highest + 1)]


def _node_number(text: str, path: Path, line: int) -> int:
    """The number of a node; refused where memory for so many nodes would be asked in vain."""
    if len(text) > len(str(_MAX_NODES)) or int(text) >= _MAX_NODES:
        raise GraphError(
            f"{path}, line {line}: node {quoted(text)} is beyond the {_MAX_NODES} nodes we hold; "
            "number nodes from 0, or give them names that are not numbers"
        )
    return int(text)


def _check_gaps(highest: int, rows: int, path: Path, line: int) -> None:
    if highest >= max(_SMALL, _MOST_NODES_A_ROW * rows):
        raise GraphError(
            f"{path}, line {line}: node {highest} in a table of {rows} rows; number nodes from 0 "
            "without such gaps, or give them names that are not numbers"
        )


# --- NumPy ----------------------------------------------------------------------------------------


def _array(path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        # Mapped, so that a header that claims a huge shape cannot take memory for it.
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # damaged files make NumPy raise whatever it comes to
        raise GraphError(f"{path} is not a NumPy array that is safe to read: {error}") from error
    if not isinstance(values, np.ndarray):
        raise GraphError(f"{path} holds several arrays; expected one (.npy)")
    _check_size(path, values.size)
    return np.array(values)


def _check_size(path: Path, numbers: int) -> None:
    if numbers > _MAX_NUMBERS:
        raise GraphError(f"{path}: {numbers} numbers are more than the {_MAX_NUMBERS} we hold")


def _sparse_rows(path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    """A matrix in compressed sparse rows, as `scipy.sparse.save_npz` writes it, made dense."""
    parts = _archive(path)
    form = parts.get("format", np.array(b"csr"))
    kind = str(form.astype(str)) if form.size == 1 else "of several values"
    names = ("data", "indices", "indptr", "shape")
    missing = ", ".join(name for name in names if name not in parts)
    if missing or kind != "csr":
        problem = f"format {quoted(kind)}" if kind != "csr" else f"no {missing}"
        raise GraphError(f"{path} must hold a sparse matrix in compressed rows (csr): {problem}")
    data, indices, indptr, shape = (parts[name] for name in names)
    whole = all(part.dtype.kind in "iu" for part in (indices, indptr, shape))
    flat = data.ndim == indices.ndim == indptr.ndim == 1
    if not whole or shape.shape != (2,) or not flat or data.dtype.kind not in "fiub":
        raise GraphError(f"{path} does not hold a matrix in compressed rows: wrong types or shapes")
    rows, columns = (int(n) for n in shape)
    steps = np.diff(indptr.astype(np.int64))
    fits = (
        min(rows, columns) >= 0
        and indptr.shape == (rows + 1,)
        and indices.shape == data.shape
        and indptr[0] == 0
        and indptr[-1] == len(data)
        and (steps >= 0).all()
        and (not len(indices) or (indices.min() >= 0 and indices.max() < columns))
    )
    if not fits:
        raise GraphError(f"{path}: the parts of the sparse matrix do not fit together")
    _check_size(path, rows * columns)
    dense = np.zeros((rows, columns), dtype=np.float32)
    np.add.at(dense, (np.repeat(np.arange(rows), steps), indices), data)
    return dense


def _archive(path: Path) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    try:
        with zipfile.ZipFile(path) as archive:
            _check_size(path, sum(entry.file_size for entry in archive.infolist()) // 4)
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from error
    except GraphError:
        raise
    except Exception as error:  # as above, and what zipfile raises
        raise GraphError(f"{path} is not a NumPy archive that is safe to read: {error}") from error
