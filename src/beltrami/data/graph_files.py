"""The files of a graph: tables of edges, features and labels, and NumPy arrays without pickle."""

from __future__ import annotations

import csv
import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as np_format
from torch import Tensor

from beltrami.data.lines import is_number, quoted, read_lines

_MAX_LINE = 1 << 20  # bytes; a row of features can be long
_MAX_NUMBERS = 1 << 28  # of a dense array: 1 GiB as float32
_MAX_NODES = 100_000_000
_MOST_NODES_A_ROW = 1000  # numbers may have gaps, but a table this sparse was misread
_SMALL = 1_000_000  # nodes that need no rows to be believed
_UNREADABLE = (
    ValueError,
    EOFError,
    KeyError,
    TypeError,
    MemoryError,
    OverflowError,
    RuntimeError,  # an encrypted member, or a compression that zipfile does not know
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tokenize.TokenError,  # of NumPy's reader of headers
)
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


class GraphError(ValueError):
    """A graph's files cannot be used; the message names the file, the line and the remedy."""


class NodeNames:
    """Numbers of named nodes, in the order in which names turn up."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The node of this name; a new one if the name is new."""
        return self._number.setdefault(name, len(self._number))

    def number_all(self, pairs: list[Any]) -> int:
        """Number the ends of edges that no table has named; returns the number of nodes."""
        for pair in pairs:
            for name in pair:
                self.number(name)
        return len(self._number)

    def pairs(self, pairs: list[Any]) -> Tensor:
        """Pairs of names as pairs of numbers, (2, k)."""
        return torch.tensor([[self._number[name] for name in pair] for pair in pairs]).t()

    @property
    def in_order(self) -> tuple[str, ...]:
        """All names."""
        return tuple(self._number)


def read_edge_table(path: Path) -> tuple[list[Any], bool, list[int]]:
    """Pairs of nodes, whether they are numbers, and the line of each pair."""
    pairs: list[Any] = []
    lines: list[int] = []
    for line, fields in _table(path):
        if not pairs and tuple(field.lower() for field in fields) in _EDGE_HEADERS:
            continue
        if len(fields) != 2 or not all(fields):
            raise GraphError(
                f"{path}, line {line}: expected the two ends of an edge in two columns, found "
                f"{quoted(' '.join(fields))}"
            )
        pairs.append(tuple(fields))
        lines.append(line)
    if not pairs:
        raise GraphError(f"{path} has no edges")
    if all(field.isdecimal() for pair in pairs for field in pair):
        numbers = [
            tuple(_node_number(field, path, line) for field in pair)
            for line, pair in zip(lines, pairs, strict=True)
        ]
        highest = max(range(len(numbers)), key=lambda row: max(numbers[row]))
        _check_gaps(max(numbers[highest]), len(numbers), path, lines[highest])
        return numbers, True, lines
    return pairs, False, lines


def read_features(path: Path, names: NodeNames | None) -> Tensor:
    """Features (n, d), float32, finite."""
    ending = path.suffix.lower()
    if ending == ".npz":
        values = _sparse_rows(path)
    elif ending == ".npy":
        values = _array(path)
    elif ending in (".csv", ".tsv"):
        return _feature_table(path, names)
    else:
        raise GraphError(f"{path}: features must be .npz, .npy, .csv or .tsv, not {ending!r}")
    if names is not None:
        raise GraphError(
            f"{path}: the edges name their nodes, so features must be a table with the names in "
            "its first column (.csv or .tsv)"
        )
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        raise GraphError(
            f"{path}: features must be numbers of shape (nodes, features), got {values.dtype} of "
            f"shape {values.shape}"
        )
    features = torch.from_numpy(values.astype(np.float32))
    _check_finite(path, features)
    return features


def read_labels(path: Path, names: NodeNames | None) -> list[str]:
    """The label of each node as text."""
    ending = path.suffix.lower()
    if ending in (".csv", ".tsv"):
        return _label_table(path, names)
    if ending != ".npy":
        raise GraphError(f"{path}: labels must be .npy, .csv or .tsv, not {ending!r}")
    if names is not None:
        raise GraphError(
            f"{path}: the edges name their nodes, so labels must be a table of two columns, node "
            "and label (.csv or .tsv)"
        )
    values = _array(path)
    if values.ndim != 1 or values.dtype.kind not in "iuUSfb":
        raise GraphError(
            f"{path}: labels must be whole numbers or text of shape (nodes,), got {values.dtype} "
            f"of shape {values.shape}"
        )
    if values.dtype.kind == "f":
        if not np.array_equal(values, np.round(values)):
            raise GraphError(f"{path}: labels must be whole numbers, got fractions or NaN")
        values = values.astype(np.int64)
    if values.dtype.kind == "b":
        values = values.astype(np.int64)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    return [str(value) for value in values.tolist()]


# --- tables ---------------------------------------------------------------------------------------


def _table(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of each row of a CSV or TSV file; the separator is the first line's."""
    delimiter = ""
    for number, text in read_lines(path, error=GraphError, max_bytes=_MAX_LINE):
        if not delimiter:
            delimiter = "\t" if "\t" in text else "," if "," in text else " "
        try:
            fields = next(csv.reader([text], delimiter=delimiter, strict=True))
        except csv.Error as error:
            raise GraphError(f"{path}, line {number}: {error}") from error
        yield number, [field.strip() for field in fields]


def _feature_table(path: Path, names: NodeNames | None) -> Tensor:
    rows: dict[int, list[float]] = {}
    width = 0
    first = True
    for line, fields in _table(path):
        cells = fields if names is None else fields[1:]
        header = first and cells and not any(is_number(cell) for cell in cells)
        first = False
        if header:
            continue
        try:
            numbers = [float(cell) for cell in cells]
        except ValueError:
            bad = next(cell for cell in cells if not is_number(cell))
            raise GraphError(f"{path}, line {line}: {quoted(bad)} is no number") from None
        width = width or len(numbers)
        if len(numbers) != width or not width:
            raise GraphError(
                f"{path}, line {line}: expected {width or 'some'} features, found {len(numbers)}"
            )
        node = len(rows) if names is None else names.number(fields[0])
        if node in rows:
            raise GraphError(f"{path}, line {line}: node {quoted(fields[0])} has two rows")
        rows[node] = numbers
        if len(rows) * width > _MAX_NUMBERS:
            raise GraphError(f"{path}, line {line}: more than {_MAX_NUMBERS} numbers")
    if not rows:
        raise GraphError(f"{path} has no features")
    features = torch.tensor([rows[node] for node in range(len(rows))])
    _check_finite(path, features)
    return features


def _label_table(path: Path, names: NodeNames | None) -> list[str]:
    labels: dict[int, str] = {}
    highest = highest_line = 0
    first = True
    for line, fields in _table(path):
        header = first and fields[-1].lower() in _LABEL_WORDS
        header = header and (len(fields) == 1 or fields[0].lower() in _NODE_WORDS)
        first = False
        if header:
            continue
        if len(fields) > 2 or (len(fields) == 1 and names is not None):
            raise GraphError(
                f"{path}, line {line}: expected two columns, node and label"
                + ("" if names is not None else ", or one")
                + f"; found {len(fields)}"
            )
        node = len(labels)
        if len(fields) == 2:
            if names is None and not fields[0].isdecimal():
                raise GraphError(
                    f"{path}, line {line}: {quoted(fields[0])} is no node; the edges number them"
                )
            node = _node_number(fields[0], path, line) if names is None else names.number(fields[0])
        if node in labels:
            raise GraphError(f"{path}, line {line}: node {quoted(fields[0])} has two labels")
        labels[node] = fields[-1]
        if node > highest:
            highest, highest_line = node, line
    if not labels:
        raise GraphError(f"{path} has no labels")
    _check_gaps(highest, len(labels), path, highest_line)
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


def _check_finite(path: Path, features: Tensor) -> None:
    bad = ~features.isfinite()
    if bool(bad.any()):
        row, column = (int(i) for i in bad.nonzero()[0])
        raise GraphError(f"{path}: the feature {column} of node {row} is not finite")


# --- NumPy ----------------------------------------------------------------------------------------


def _array(path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        # Mapped, so that a header that claims a huge shape cannot take memory for it.
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from error
    except _UNREADABLE as error:
        raise GraphError(f"{path} is no NumPy array that can be read safely: {error}") from error
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
    kind = form.item() if form.size == 1 else form.tolist()
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    missing = {"data", "indices", "indptr", "shape"} - parts.keys()
    if missing or kind != "csr":
        found = f"format {quoted(kind)}" if kind != "csr" else f"no {', '.join(sorted(missing))}"
        raise GraphError(f"{path} must hold a sparse matrix in compressed rows (csr): {found}")
    data, indices, indptr, shape = (parts[k] for k in ("data", "indices", "indptr", "shape"))
    whole = all(part.dtype.kind in "iu" for part in (indices, indptr, shape))
    flat = data.ndim == indices.ndim == indptr.ndim == 1
    if not whole or shape.shape != (2,) or not flat or data.dtype.kind not in "fiub":
        raise GraphError(f"{path} holds no matrix in compressed rows: wrong types or shapes")
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
            return {
                entry.filename.removesuffix(".npy"): _member(archive, entry)
                for entry in archive.infolist()
                if entry.filename.endswith(".npy")
            }
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from error
    except GraphError:
        raise
    except _UNREADABLE as error:
        raise GraphError(f"{path} is no NumPy archive that can be read safely: {error}") from error


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray[Any, np.dtype[Any]]:
    """An array of an archive, whose header may not claim more than the member holds."""
    headers = {(1, 0): np_format.read_array_header_1_0, (2, 0): np_format.read_array_header_2_0}
    with archive.open(entry) as file:
        version = np_format.read_magic(file)
        if version not in headers:
            raise ValueError(f"{entry.filename} is of an unknown version of the format")
        shape, _, dtype = headers[version](file)
    # An item without bytes would let any number of them fit.
    claimed = math.prod(shape) * max(1, dtype.itemsize)
    if min(shape, default=0) < 0 or claimed > entry.file_size:
        raise ValueError(f"{entry.filename} claims the shape {shape} in {entry.file_size} bytes")
    with archive.open(entry) as file:
        values: np.ndarray[Any, np.dtype[Any]] = np_format.read_array(file, allow_pickle=False)
    return values
