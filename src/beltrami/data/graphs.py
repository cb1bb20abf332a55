"""Graphs with features and labels at their nodes, read from files.

    graph = read_graph("disease_lp")                 # a folder with edges, features and labels
    graph = read_graph("edges.tsv", "features.npy", "labels.csv")

Edges are CSV or TSV with two columns, the two ends of an edge; a header row is optional. If all
ends are whole numbers they are the numbers of the nodes, from 0; else they are names. Features are
a NumPy array `.npy` of shape (nodes, features), a sparse matrix in compressed rows `.npz` (the
format of `scipy.sparse.save_npz`), or a CSV or TSV table of numbers. Labels are a `.npy` array of
shape (nodes,) or a CSV or TSV table of one column, or of two, node and label; a negative number or
an empty field is no label. Rows are nodes in order; where nodes have names, tables have the name in
their first column.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from beltrami.data.graph_files import (
    GraphError,
    NodeNames,
    read_edge_table,
    read_features,
    read_labels,
)

_ENDINGS = {
    "edges": (".csv", ".tsv", ".txt"),
    "features": (".npz", ".npy", ".csv", ".tsv"),
    "labels": (".npy", ".csv", ".tsv"),
}
_ALIASES = {"feats": "features"}


@dataclass(frozen=True, eq=False)
class GraphData:
    """An undirected graph.

    Args:
        name: what to call it in reports.
        edges: int64 (2, m), each edge once, smaller end first, without loops.
        features: float32 (n, d), one row a node.
        labels: int64 (n,), the class of each node, −1 where it is not known; None without labels.
        label_names: of the classes.
        node_names: of the nodes, where the files have names.
    """

    name: str
    edges: Tensor
    features: Tensor
    labels: Tensor | None = None
    label_names: tuple[str, ...] = ()
    node_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        nodes = self.features.shape[0]
        if self.features.ndim != 2 or not self.features.is_floating_point():
            raise ValueError(
                f"features must be floats of shape (n, d), got {self.features.dtype} of shape "
                f"{tuple(self.features.shape)}"
            )
        if self.edges.dtype != torch.int64 or self.edges.ndim != 2 or self.edges.shape[0] != 2:
            raise ValueError(
                f"edges must be int64 of shape (2, m), got {self.edges.dtype} of shape "
                f"{tuple(self.edges.shape)}"
            )
        if self.edges.numel() and (
            int(self.edges.min()) < 0
            or int(self.edges.max()) >= nodes
            or bool((self.edges[0] >= self.edges[1]).any())
        ):
            raise ValueError(
                f"edges must be pairs of nodes below {nodes}, the smaller first: use "
                "undirected_edges"
            )
        if self.labels is not None and (
            self.labels.shape != (nodes,)
            or (nodes > 0 and int(self.labels.max()) >= len(self.label_names))
        ):
            raise ValueError(
                f"labels must have shape ({nodes},) and be below {len(self.label_names)}, the "
                f"number of label_names; got shape {tuple(self.labels.shape)}"
            )
        if self.node_names is not None and len(self.node_names) != nodes:
            raise ValueError(f"node_names must be {nodes}, got {len(self.node_names)}")

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @cached_property
    def edge_index(self) -> Tensor:
        """Every edge in both directions, int64 (2, 2m), for layers on graphs."""
        return both_directions(self.edges)


def both_directions(edges: Tensor) -> Tensor:
    """Edges (2, m) and, after them, the same the other way round: (2, 2m)."""
    return torch.cat([edges, edges.flip(0)], dim=1)


def undirected_edges(pairs: Tensor) -> Tensor:
    """Pairs of nodes (2, k) as edges (2, m): smaller end first, sorted, each once, no loops."""
    low, high = pairs.amin(0), pairs.amax(0)
    kept = torch.stack([low, high])[:, low < high]
    return torch.unique(kept, dim=1) if kept.shape[1] else kept


def read_graph(
    edges: str | Path,
    features: str | Path | None = None,
    labels: str | Path | None = None,
    *,
    name: str | None = None,
) -> GraphData:
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
        found = _find_files(place)
        edges_file, features_file, labels_file = (found.get(k) for k in _ENDINGS)
        if edges_file is None:
            raise GraphError(f"{place} has no file of edges; expected one named like *edges.csv")
    else:
        edges_file = place
        features_file, labels_file = (None if f is None else Path(f) for f in (features, labels))
    pairs, numbered, lines = read_edge_table(edges_file)
    names = None if numbered else NodeNames()
    rows = None if features_file is None else read_features(features_file, names)
    classes = None if labels_file is None else read_labels(labels_file, names)
    listed = names.number_all(pairs) if names is not None else 1 + max(map(max, pairs))
    ends = names.pairs(pairs) if names is not None else torch.tensor(pairs).t()
    tables = ((features_file, rows), (labels_file, classes))
    counts = {file: len(found) for file, found in tables if file and found is not None}
    nodes = max(listed, *counts.values()) if counts else listed  # some may have no edge
    _check_counts(counts, nodes, edges_file, ends, lines)
    kept = undirected_edges(ends)
    label_names, label_ids = _label_classes(classes)
    return GraphData(
        name or (place.name if place.is_dir() else place.stem),
        kept,
        _degrees(kept, nodes) if rows is None else rows,
        label_ids,
        label_names,
        None if names is None else names.in_order,
    )


def _find_files(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        word = file.stem.rpartition(".")[2].rpartition("_")[2].lower()
        kind = _ALIASES.get(word, word)
        if kind not in _ENDINGS or file.suffix.lower() not in _ENDINGS[kind]:
            continue
        if kind in found:
            raise GraphError(
                f"{folder} has two files of {kind}, {found[kind].name} and {file.name}; name the "
                "files one by one"
            )
        found[kind] = file
    return found


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
    known = {label for label in labels if label and not _negative(label)}
    if not known:
        raise GraphError("no node has a label")
    numeric = all(label.isdecimal() and len(label) < 20 for label in known)
    names = sorted(known, key=lambda label: (int(label) if numeric else 0, label))
    number = {label: i for i, label in enumerate(names)}
    return tuple(names), torch.tensor([number.get(label, -1) for label in labels])


def _negative(label: str) -> bool:
    return label.startswith("-") and label[1:].isdecimal()


def _degrees(edges: Tensor, nodes: int) -> Tensor:
    degree = torch.bincount(edges.flatten(), minlength=nodes).float()
    return torch.stack([torch.ones(nodes), torch.log1p(degree)], dim=1)
