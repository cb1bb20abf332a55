"""Directed acyclic graphs as arrays of (child, parent) rows: neighbours, cycles, ancestors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class TooManyPairs(Exception):  # noqa: N818  (a signal to the caller, who words the error)
    """There are more pairs of descendant and ancestor than asked for."""


@dataclass(frozen=True)
class Neighbours:
    """A list of nodes for each node, as one array: that of v is values[start[v]:start[v + 1]].

    `edge` tells which row each value comes from; a list keeps the order of the rows.
    """

    start: Ints
    values: Ints
    edge: Ints

    @staticmethod
    def of(owner: Ints, value: Ints, n: int) -> Neighbours:
        """The lists of values by their owners, who are numbered below n."""
        edge = np.argsort(owner, kind="stable")
        start = np.zeros(n + 1, dtype=np.int64)
        np.cumsum(np.bincount(owner, minlength=n), out=start[1:])
        return Neighbours(start, value[edge], edge)

    @staticmethod
    def parents(edges: Ints, n: int) -> Neighbours:
        """Each node's parents."""
        return Neighbours.of(edges[:, 0], edges[:, 1], n)

    @staticmethod
    def children(edges: Ints, n: int) -> Neighbours:
        """Each node's children."""
        return Neighbours.of(edges[:, 1], edges[:, 0], n)

    @property
    def count(self) -> Ints:
        """The length of each node's list."""
        return np.diff(self.start)

    def __getitem__(self, node: int) -> Ints:
        return self.values[self.start[node] : self.start[node + 1]]

    def join(self, nodes: Ints) -> tuple[Ints, Ints]:
        """All values of the given nodes: (places in `nodes`, values)."""
        count = self.count[nodes]
        which = np.repeat(np.arange(len(nodes)), count)
        offset = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        return which, self.values[self.start[nodes][which] + offset]


@dataclass(frozen=True)
class Topology:
    """The lengths of the shortest and longest way from each node up to a root.

    If there is a `cycle`, it holds the rows of its edges as one climbs them, and the lengths are
    not to be used.
    """

    shortest: Ints
    longest: Ints
    cycle: tuple[int, ...] | None

    @staticmethod
    def of(edges: Ints, n: int) -> Topology:
        """The topology of n nodes with these (child, parent) rows."""
        # One node at a time: by whole levels, a chain of a million nodes would take a minute.
        parents, children = Neighbours.parents(edges, n), Neighbours.children(edges, n)
        waiting = parents.count.tolist()
        start, below = children.start.tolist(), children.values.tolist()
        shortest = [n if count else 0 for count in waiting]
        longest = [0] * n
        order = [node for node, count in enumerate(waiting) if not count]
        for node in order:  # grows while it is walked
            near, far = shortest[node] + 1, longest[node] + 1
            for child in below[start[node] : start[node + 1]]:
                if near < shortest[child]:
                    shortest[child] = near
                if far > longest[child]:
                    longest[child] = far
                waiting[child] -= 1
                if not waiting[child]:
                    order.append(child)
        cycle = None
        if len(order) < n:
            stuck = np.ones(n, dtype=bool)
            stuck[order] = False
            cycle = _climb_to_cycle(edges, stuck, parents)
        return Topology(
            np.array(shortest, dtype=np.int64), np.array(longest, dtype=np.int64), cycle
        )


def _climb_to_cycle(edges: Ints, stuck: NDArray[np.bool_], parents: Neighbours) -> tuple[int, ...]:
    """Every node on or below a cycle has a parent that is: climb until a node comes again."""
    leaves_by: dict[int, int] = {}  # node -> the edge it is left by
    node = int(np.flatnonzero(stuck)[0])
    while node not in leaves_by:
        choices = parents.edge[parents.start[node] : parents.start[node + 1]]
        leaves_by[node] = int(next(edge for edge in choices if stuck[edges[edge, 1]]))
        node = int(edges[leaves_by[node], 1])
    visited = list(leaves_by)
    return tuple(leaves_by[v] for v in visited[visited.index(node) :])


def repeated_rows(edges: Ints, n: int) -> tuple[Ints, Ints]:
    """The rows that were there before, ascending, and the first row that each is like."""
    keys = edges[:, 0] * n + edges[:, 1]
    _, first, same = np.unique(keys, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[same] != np.arange(len(keys)))
    return repeated, first[same[repeated]]


def ancestors(edges: Ints, longest: Ints, most: int) -> tuple[list[Ints], NDArray[np.bool_]]:
    """The ancestors of each node, ascending, and which edges no longer way implies.

    A node's ancestors are its parents and theirs: from the roots down, each list is made once,
    however many paths there are. `TooManyPairs` if there are more than `most`, mostly before any
    work.
    """
    if int(longest.sum()) > most:  # a node has at least as many ancestors as the way up is long
        raise TooManyPairs
    parents = Neighbours.parents(edges, len(longest))
    above = [np.empty(0, dtype=np.int64)] * len(longest)
    needed = np.ones(len(edges), dtype=bool)
    total = 0
    for node in np.argsort(longest, kind="stable")[(longest == 0).sum() :].tolist():
        near = parents[node]
        further = above[near[0]]
        if len(near) > 1:
            further = np.unique(np.concatenate([above[parent] for parent in near]))
            rows = parents.edge[parents.start[node] : parents.start[node + 1]]
            needed[rows] = ~np.isin(near, further)
            near = near[needed[rows]]
        above[node] = np.sort(np.concatenate([further, near]))
        total += len(above[node])
        if total > most:
            raise TooManyPairs
    return above, needed


def reachable(near: Neighbours, source: int) -> NDArray[np.bool_]:
    """Which nodes can be reached from the source, itself included."""
    start, values = near.start.tolist(), near.values.tolist()
    inside = bytearray(len(start) - 1)
    inside[source] = 1
    queue = [source]
    for node in queue:  # grows while it is walked
        for other in values[start[node] : start[node + 1]]:
            if not inside[other]:
                inside[other] = 1
                queue.append(other)
    return np.frombuffer(inside, dtype=bool)


def flood(near: Neighbours, sources: Ints, hops: NDArray[np.int32]) -> None:
    """Replace the -1 of `hops` (s, n) by the number of steps from each source to each node."""
    n = hops.shape[1]
    flat = hops.reshape(-1)
    claimed_by = np.empty(flat.shape, dtype=np.int64)
    frontier = np.arange(len(sources)) * n + sources  # places in `flat`
    distance = 0
    while frontier.size:
        flat[frontier] = distance
        distance += 1
        node = frontier % n
        which, reached = near.join(node)
        places = (frontier - node)[which] + reached
        places = places[flat[places] < 0]
        # Of those that reach the same place, the one that claims it last goes on.
        claim = np.arange(len(places))
        claimed_by[places] = claim
        frontier = places[claimed_by[places] == claim]
