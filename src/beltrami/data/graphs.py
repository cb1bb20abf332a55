"""Graphs: nodes, the edges between them, and what is known of the nodes.

graph = read_graph("disease_lp")             # a folder with edges, features and labels
graph = load_network("friends.tsv")          # names and edges alone, also with cycles
graph = load_network("wordnet-mammals")      # what `load_hierarchy` reads
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from beltrami.data import dag
from beltrami.data.collect import warn_of_repetitions
from beltrami.data.dag import Ints, Neighbours, Topology
from beltrami.data.edge_list import EdgeRows, read_edge_list
from beltrami.data.hierarchy import Hierarchy, HierarchyError, digest_of_graph
from beltrami.data.load import find_reader, list_hierarchies, load_hierarchy, refuse_changes

_SOURCES_AT_A_TIME = 64
_PLACES_AT_A_TIME = 1 << 24  # nodes and ends of edges, all reached at once by a star: 0.6 GB


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes and edges; distances and layers see the edges without their direction.

    Args:
        name: what to call it in reports.
        edges: int64 (2, m), each edge once, whichever way round, without loops.
        features: float32 (n, d), one row a node; d is 0 where nothing is known of the nodes.
        labels: int64 (n,), the class of each node, −1 where it is not known; None without labels.
        label_names: of the classes.
        node_names: of the nodes; None where they have only numbers.
        directed: whether edges go from child to parent, without cycles.
    """

    name: str
    edges: Tensor
    features: Tensor
    labels: Tensor | None = None
    label_names: tuple[str, ...] = ()
    node_names: tuple[str, ...] | None = None
    directed: bool = False

    @classmethod
    def of_names(
        cls, name: str, node_names: tuple[str, ...], edges: Tensor, *, directed: bool = False
    ) -> Graph:
        """A graph of named nodes of which nothing else is known."""
        features = torch.empty(len(node_names), 0)
        return cls(name, edges, features, node_names=node_names, directed=directed)

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
        low, high = self.edges.amin(0), self.edges.amax(0)
        inside = not low.numel() or (int(low.min()) >= 0 and int(high.max()) < nodes)
        if not inside or bool((low == high).any()):
            raise ValueError(
                f"edges must join different nodes below {nodes}; undirected_edges drops loops"
            )
        if len((low * nodes + high).unique()) < low.numel():
            raise ValueError("edges must not repeat an edge; undirected_edges drops repetitions")
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

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each node, or its number as text."""
        return self.node_names or tuple(map(str, range(len(self))))

    @cached_property
    def edge_index(self) -> Tensor:
        """Every edge in both directions, int64 (2, 2m), for layers on graphs."""
        return both_directions(self.edges)

    @property
    def degrees(self) -> Tensor:
        """The number of neighbours of each node, (n,)."""
        return torch.bincount(self.edges.flatten(), minlength=len(self))

    def hops(
        self,
        sources: Tensor,
        targets: Tensor | None = None,
        tick: Callable[[float], None] = lambda share: None,
    ) -> Tensor:
        """Edges on a shortest path from each source to each target, −1 without one.

        Beside the result, memory is that of a few sources at a time, however many there are.

        Args:
            sources: nodes, (s,).
            targets: nodes, (t,); without them all, in order.
            tick: called with the share that is done.

        Returns:
            int32 (s, t).
        """
        start = _as_nodes(sources)
        columns = slice(None) if targets is None else _as_nodes(targets)
        width = len(self) if targets is None else len(targets)
        hops = np.empty((len(start), width), dtype=np.int32)
        places = len(self) + 2 * self.edges.shape[1]
        step = min(_SOURCES_AT_A_TIME, max(1, _PLACES_AT_A_TIME // max(1, places)))
        for low in range(0, len(start), step):
            part = start[low : low + step]
            block = np.full((len(part), len(self)), -1, dtype=np.int32)
            dag.flood(self._near, part, block)
            hops[low : low + step] = block[:, columns]
            tick((low + len(part)) / len(start))
        return torch.from_numpy(hops)

    def components(self) -> Tensor:
        """The component of each node, (n,), numbered from 0 for the largest."""
        root = list(range(len(self)))

        def find(node: int) -> int:
            while root[node] != node:
                root[node] = root[root[node]]
                node = root[node]
            return node

        for left, right in self.edges.t().tolist():
            root[find(left)] = find(right)
        _, number = np.unique([find(node) for node in root], return_inverse=True)
        sizes = np.bincount(number)
        place = np.empty(len(sizes), dtype=np.int64)
        place[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
        return torch.from_numpy(place[number])

    def part(self, inside: Tensor) -> Graph:
        """The nodes where `inside`, (n,) booleans, holds, and the edges among them."""
        number = inside.long().cumsum(0) - 1
        edges = number[self.edges[:, inside[self.edges].all(0)]]
        labels = None if self.labels is None else self.labels[inside]
        names = self.names
        return Graph(
            self.name,
            edges,
            self.features[inside],
            labels,
            self.label_names,
            tuple(names[node] for node in inside.nonzero()[:, 0].tolist()),
            self.directed,
        )

    def digest(self) -> str:
        """SHA-256 of names and edges, as hexadecimal text."""
        return digest_of_graph(self.names, self.edges.t().contiguous())

    @cached_property
    def _near(self) -> Neighbours:
        edges: Ints = self.edge_index.t().numpy()
        return Neighbours.parents(edges, len(self))


def both_directions(edges: Tensor) -> Tensor:
    """Edges (2, m) and, after them, the same the other way round: (2, 2m)."""
    return torch.cat([edges, edges.flip(0)], dim=1)


def undirected_edges(pairs: Tensor) -> Tensor:
    """Pairs of nodes (2, k) as edges (2, m): smaller end first, sorted, each once, no loops."""
    low, high = pairs.amin(0), pairs.amax(0)
    edges = torch.stack([low, high])[:, low < high]
    return torch.unique(edges, dim=1) if edges.shape[1] else edges


def load_network(spec: str | Path, *, strict: bool = False) -> Graph:
    """The names and edges of an edge list, also with cycles, or of what `load_hierarchy` reads.

    Raises:
        HierarchyError: what is wrong with a file, and in which line.
    """
    path = Path(spec).expanduser()
    if spec not in list_hierarchies() and path.is_file() and find_reader(path) is read_edge_list:
        with refuse_changes(strict):
            return _read_edges(path)
    return as_graph(load_hierarchy(spec, strict=strict))


def as_graph(hierarchy: Hierarchy) -> Graph:
    """The nodes and edges of a hierarchy, from child to parent."""
    edges = hierarchy.edges.t().contiguous()
    return Graph.of_names(hierarchy.name, hierarchy.labels, edges, directed=True)


def _read_edges(path: Path) -> Graph:
    """The edges of a file; child and parent unless it calls them otherwise, or has cycles."""
    number: dict[str, int] = {}
    seen: dict[tuple[int, int], tuple[int, int]] = {}
    both_ways = False
    repeated: list[str] = []
    rows = EdgeRows(path)
    for line, child, parent in rows:
        ends = number.setdefault(child, len(number)), number.setdefault(parent, len(number))
        count = len(seen)
        if seen.setdefault((min(ends), max(ends)), ends) != ends:
            both_ways = True
        elif len(seen) == count:
            repeated.append(f"on line {line}")
    if not seen:
        raise HierarchyError(f"{path} has no edges")
    edges = torch.tensor(list(seen.values()))
    directed = not (rows.of_graph or both_ways)
    if directed:
        directed = Topology.of(edges.numpy(), len(number)).cycle is None
    if directed and rows.has_header:  # a taxonomy, whose roots are joined
        return as_graph(load_hierarchy(path))
    if repeated:
        warn_of_repetitions(str(path), len(repeated), repeated[0])
    return Graph.of_names(path.stem, tuple(number), edges.t().contiguous(), directed=directed)


def _as_nodes(nodes: Tensor) -> Ints:
    return nodes.detach().cpu().numpy().astype(np.int64)


_MOVED = {
    "GraphData": ("beltrami.data.graphs", "Graph"),
    "read_graph": ("beltrami.data.graph_files", "read_graph"),
}


def __getattr__(name: str) -> Any:
    """Names that moved; their aliases go with version 0.3."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, new = _MOVED[name]
    warnings.warn(f"{__name__}.{name} is {module}.{new} now", DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module(module), new)
