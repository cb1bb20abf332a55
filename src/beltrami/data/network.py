"""Graphs without directions, as distances see them: any edge list, also one with cycles.

network = load_network("friends.tsv")        # two columns, also with cycles
network = load_network("wordnet-mammals")    # what `load_hierarchy` reads, without directions
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from beltrami.data import dag
from beltrami.data.dag import Ints, Neighbours
from beltrami.data.edge_list import GRAPH_SUFFIX, edge_rows
from beltrami.data.hierarchy import Hierarchy, HierarchyError, digest_of_graph
from beltrami.data.load import load_hierarchy
from beltrami.data.text import numbered_lines

EDGE_LISTS = (".edges", ".tsv", ".csv", ".txt")
_SOURCES_AT_A_TIME = 64


@dataclass(frozen=True, eq=False)
class Network:
    """An undirected graph with a name at each node.

    Args:
        name: what to call it.
        labels: one a node.
        edges: int64 (m, 2), each pair once, without loops; child and parent where that is known.
        directed: whether it is.
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

    def hops(self, sources: Tensor) -> Tensor:
        """Edges on a shortest path from each source to every node, int32 (s, n); −1 without one."""
        start = sources.detach().cpu().numpy().astype(np.int64)
        found = np.full((len(start), len(self)), -1, dtype=np.int32)
        for low in range(0, len(start), _SOURCES_AT_A_TIME):
            some = slice(low, low + _SOURCES_AT_A_TIME)
            dag.flood(self._near, start[some], found[some])
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
    number: dict[str, int] = {}
    seen: dict[tuple[int, int], tuple[int, int]] = {}
    rows = edge_rows(
        numbered_lines(path), str(path), parent_first=path.suffix.lower() == GRAPH_SUFFIX
    )
    for _, child, parent in rows:
        ends = number.setdefault(child, len(number)), number.setdefault(parent, len(number))
        seen.setdefault((min(ends), max(ends)), ends)
    if not seen:
        raise HierarchyError(f"{path} has no edges")
    return Network(path.stem, tuple(number), torch.tensor(list(seen.values())))
