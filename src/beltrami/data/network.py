"""Graphs as distances see them, without directions: any edge list, also one with cycles.

network = load_network("friends.tsv")        # two columns, also with cycles
network = load_network("wordnet-mammals")    # what `load_hierarchy` reads
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from beltrami.data import dag
from beltrami.data.dag import Ints, Neighbours, Topology
from beltrami.data.edge_list import EdgeRows
from beltrami.data.hierarchy import Hierarchy, HierarchyError, digest_of_graph
from beltrami.data.load import load_hierarchy

EDGE_LISTS = (".edges", ".tsv", ".csv", ".txt")
_SOURCES_AT_A_TIME = 64
_PLACES_AT_A_TIME = 1 << 24  # nodes and ends of edges, all reached at once by a star: 0.6 GB


@dataclass(frozen=True, eq=False)
class Network:
    """A graph with a name at each node, whose paths go along edges both ways.

    Args:
        name: what to call it.
        labels: one a node.
        edges: int64 (m, 2), each pair once, without loops; child and parent where that is known.
        directed: whether they are child and parent, without cycles; distances do not ask.
    """

    name: str
    labels: tuple[str, ...]
    edges: Tensor
    directed: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def degrees(self) -> Tensor:
        """Neighbours of each node, (n,)."""
        return torch.bincount(self.edges.flatten(), minlength=len(self))

    def hops(
        self,
        sources: Tensor,
        targets: Tensor | None = None,
        tick: Callable[[float], None] = lambda share: None,
    ) -> Tensor:
        """Edges on a shortest path from each source to each target, −1 without one.

        Beside the result, memory is that of some sources at a time, however many are asked for.

        Args:
            sources: nodes, (s,).
            targets: nodes, (t,); without them all, in order.
            tick: is told the share that is done.

        Returns:
            int32 (s, t).
        """
        start = _as_nodes(sources)
        kept = slice(None) if targets is None else _as_nodes(targets)
        width = len(self) if targets is None else len(targets)
        found = np.empty((len(start), width), dtype=np.int32)
        places = len(self) + 2 * len(self.edges)
        step = min(_SOURCES_AT_A_TIME, max(1, _PLACES_AT_A_TIME // max(1, places)))
        for low in range(0, len(start), step):
            some = start[low : low + step]
            block = np.full((len(some), len(self)), -1, dtype=np.int32)
            dag.flood(self._near, some, block)
            found[low : low + step] = block[:, kept]
            tick((low + len(some)) / len(start))
        return torch.from_numpy(found)

    def components(self) -> Tensor:
        """The component of each node, (n,), numbered from 0 for the largest."""
        root = list(range(len(self)))

        def find(node: int) -> int:
            while root[node] != node:
                root[node] = root[root[node]]
                node = root[node]
            return node

        for one, other in self.edges.tolist():
            root[find(one)] = find(other)
        _, number = np.unique([find(node) for node in root], return_inverse=True)
        sizes = np.bincount(number)
        place = np.empty(len(sizes), dtype=np.int64)
        place[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
        return torch.from_numpy(place[number])

    def part(self, inside: Tensor) -> Network:
        """The nodes where `inside`, (n,) booleans, holds, and the edges among them."""
        number = inside.long().cumsum(0) - 1
        kept = self.edges[inside[self.edges].all(1)]
        labels = tuple(self.labels[node] for node in inside.nonzero()[:, 0].tolist())
        return Network(self.name, labels, number[kept], self.directed)

    def digest(self) -> str:
        """SHA-256 of labels and edges, as hexadecimal text."""
        return digest_of_graph(self.labels, self.edges)

    @cached_property
    def _near(self) -> Neighbours:
        edges: Ints = self.edges.numpy()
        return Neighbours.parents(np.concatenate([edges, edges[:, ::-1]]), len(self))


def load_network(spec: str | Path) -> Network:
    """An edge list with or without cycles, or a hierarchy by name or from any file that we read.

    Raises:
        HierarchyError: what is wrong with a file, and in which line.
    """
    path = Path(spec).expanduser()
    if path.suffix.lower() in EDGE_LISTS and path.is_file():
        return _read(path)
    return as_network(load_hierarchy(spec))


def as_network(hierarchy: Hierarchy) -> Network:
    """A hierarchy's edges; a pair that occurs both ways cannot occur there."""
    return Network(hierarchy.name, tuple(hierarchy.labels), hierarchy.edges, directed=True)


def _read(path: Path) -> Network:
    """The edges of a file; child and parent unless it calls them otherwise, or has cycles."""
    number: dict[str, int] = {}
    seen: dict[tuple[int, int], tuple[int, int]] = {}
    both_ways = False
    rows = EdgeRows.of_file(path)
    for _, child, parent in rows:
        ends = number.setdefault(child, len(number)), number.setdefault(parent, len(number))
        both_ways |= seen.setdefault((min(ends), max(ends)), ends) != ends
    if not seen:
        raise HierarchyError(f"{path} has no edges")
    edges = torch.tensor(list(seen.values()))
    directed = not (rows.of_graph or both_ways)
    if directed:
        directed = Topology.of(edges.numpy(), len(number)).cycle is None
    return Network(path.stem, tuple(number), edges, directed)


def _as_nodes(nodes: Tensor) -> Ints:
    return nodes.detach().cpu().numpy().astype(np.int64)
