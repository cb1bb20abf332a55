"""How readers put a hierarchy together: edges by label, each with the place it was found at."""

from __future__ import annotations

import warnings
from array import array
from collections import Counter
from collections.abc import Iterable

import numpy as np
import torch

from beltrami.data import dag
from beltrami.data.dag import Ints, Topology
from beltrami.data.hierarchy import QUOTED_NAMES, Hierarchy, HierarchyError, show_cycle
from beltrami.data.text import DataWarning, quoted


class Collector:
    """Nodes and edges in the order in which they are added.

    Args:
        source: how errors call the file.
        unit: what a place is: "line", or "entry" or "pair" where there are no lines.
    """

    def __init__(self, source: str, unit: str = "line") -> None:
        self.source = source
        self.unit = unit
        self._nodes: dict[str, int] = {}
        self._edges = array("q")  # child, parent, child, parent, ...
        self._places = array("q")
        self._ranks: dict[str, tuple[str, int]] = {}  # with its place

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, label: str) -> int:
        """The number of a label, new or known."""
        return self._nodes.setdefault(label, len(self._nodes))

    def edge(self, child: str, parent: str, place: int) -> None:
        """Add a direct edge that stands at this place of the source."""
        if child == parent:
            raise self.error(place, f"{quoted(child)} is its own parent")
        self._edges.append(self.node(child))
        self._edges.append(self.node(parent))
        self._places.append(place)

    def rank(self, label: str, rank: str, place: int) -> None:
        """Set the rank of a node that may be new; an empty one leaves it as it is."""
        self.node(label)
        if not rank:
            return
        known, first = self._ranks.setdefault(label, (rank, place))
        if known != rank:
            raise self.error(
                place,
                f"{quoted(label)} has the rank {quoted(rank)}, but {quoted(known)} on "
                f"{self.unit} {first}; give it one rank",
            )

    def hierarchy(self, name: str) -> Hierarchy:
        """What was collected; errors name the places of edges that form a cycle.

        Edges that repeat are used once, and a `DataWarning` counts them.
        """
        if not self._nodes:
            raise HierarchyError(
                f"{self.source} is empty: it has no edge; one edge a {self.unit}: child, parent"
            )
        edges = self._without_repetitions(np.array(self._edges, dtype=np.int64).reshape(-1, 2))
        ranks = tuple(self._ranks.get(label, ("", 0))[0] for label in self._nodes)
        try:
            return Hierarchy(name, tuple(self._nodes), torch.from_numpy(edges), ranks)
        except HierarchyError as error:
            cycle = Topology.of(edges, len(self)).cycle
            if cycle is not None:
                raise self._cycle_error(edges, cycle) from None
            raise HierarchyError(f"{self.source}: {error}") from None

    def error(self, place: int, what: str) -> HierarchyError:
        """An error at a place of the source."""
        return HierarchyError(f"{self.source}, {self.unit} {place}: {what}")

    def _without_repetitions(self, edges: Ints) -> Ints:
        repeated, first = dag.repeated_rows(edges, len(self))
        if not len(repeated):
            return edges
        child, parent = map(quoted, self._labels(edges[repeated[0]]))
        warn_of_repetitions(
            self.source,
            len(repeated),
            f"{child} -> {parent} on {self.unit} {self._places[repeated[0]]}, which is on "
            f"{self.unit} {self._places[first[0]]}, too",
        )
        keep = np.delete(np.arange(len(edges)), repeated)
        self._places = array("q", np.array(self._places, dtype=np.int64)[keep].tobytes())
        return edges[keep]

    def _cycle_error(self, edges: Ints, cycle: tuple[int, ...]) -> HierarchyError:
        places = ", ".join(str(self._places[row]) for row in cycle[:QUOTED_NAMES])
        unit = {"entry": "entries"}.get(self.unit, f"{self.unit}s")
        return HierarchyError(
            f"{self.source}, {unit} {places}: the parents form a cycle: "
            f"{show_cycle(self._labels(edges[list(cycle), 0]))}; remove one of these edges"
        )

    def _labels(self, nodes: Iterable[int]) -> list[str]:
        labels = list(self._nodes)
        return [labels[node] for node in nodes]


def warn_of_repetitions(source: str, count: int, first: str) -> None:
    """Say that edges which were there before are used once."""
    edges = "1 edge is" if count == 1 else f"{count:,} edges are"
    warnings.warn(f"{source}: {edges} repeated and used once, first {first}", DataWarning, 3)


def unique_labels(names: Iterable[tuple[str, str]]) -> list[str]:
    """Readable labels for (name, id) pairs: the name, with its id where several share the name."""
    pairs = list(names)
    count = Counter(name for name, _ in pairs)
    taken = {name for name, times in count.items() if times == 1}
    labels = []
    for name, ident in pairs:
        label = name if count[name] == 1 else f"{name} ({ident})"
        while count[name] > 1 and label in taken:  # somebody's plain name
            label += "'"
        taken.add(label)
        labels.append(label)
    return labels
