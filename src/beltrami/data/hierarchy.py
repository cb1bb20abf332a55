"""Hierarchies: nodes with labels, and edges from each node to its direct parents.

A hierarchy is a directed acyclic graph. A node may have several parents and there may be several
roots, as in WordNet or the Gene Ontology; the strict trees of `beltrami tour` are a special case.
Everything here is linear in nodes and edges, but for what is asked for pair by pair (`closure`,
`hops`), so that the 2.6 million taxa of NCBI fit a laptop.
"""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beltrami.data import dag
from beltrami.data.dag import Ints, Neighbours, Topology
from beltrami.data.ranks import PLACE_OF_RANK, plain_rank
from beltrami.data.text import quoted
from beltrami.data.tree import Tree

MAX_CLOSURE_PAIRS = 50_000_000  # 0.8 GB as a tensor, and about 2 GB while it is made
ADDED_ROOT = "(root)"
QUOTED_NAMES = 5  # an error lists at most this many nodes
SOURCES_AT_A_TIME = 16  # of `hops`: few enough that a step's work stays in the cache
NEAR_MATCH_POOL = 50_000  # comparing a label with more of them takes seconds


class HierarchyError(ValueError):
    """A hierarchy, or its file, cannot be used; the message names the place and the remedy."""


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A directed acyclic graph of labelled nodes.

    Args:
        name: what to call it in reports.
        labels: one label a node, each non-empty and different from the others.
        edges: int64 of shape (m, 2), rows (child, parent): the direct edges, each once, acyclic.
            The tensor belongs to the hierarchy from then on and must not be changed.
        ranks: the rank of each node, such as "genus"; "" for a node without one. None if no node
            has a rank.
    """

    name: str
    labels: tuple[str, ...]
    edges: Tensor
    ranks: tuple[str, ...] | None = None
    _index_of: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "_index_of", _index_of(self.labels))
        object.__setattr__(self, "edges", _checked_edges(self.edges, self.labels))
        object.__setattr__(self, "ranks", _checked_ranks(self.ranks, self.labels))
        cycle = self._topology.cycle
        if cycle is not None:
            labels = [self.labels[int(self.edges[edge, 0])] for edge in cycle]
            raise HierarchyError(
                f"the parents form a cycle: {show_cycle(labels)}; remove one of these edges"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __contains__(self, label: object) -> bool:
        return label in self._index_of

    @cached_property
    def roots(self) -> Tensor:
        """The nodes without a parent, int64, ascending."""
        return torch.from_numpy(np.flatnonzero(self._topology.longest == 0))

    @cached_property
    def leaves(self) -> Tensor:
        """The nodes without a child, int64, ascending."""
        return torch.from_numpy(np.flatnonzero(self._children.count == 0))

    @cached_property
    def depth(self) -> Tensor:
        """The smallest number of edges from each node to a root, int64 of shape (n,)."""
        return torch.from_numpy(self._topology.shortest)

    @cached_property
    def is_tree(self) -> bool:
        """Whether there is one root and every other node has one parent."""
        return len(self.roots) == 1 and len(self.edges) == len(self) - 1

    def index(self, label: str) -> int:
        """The node with this label; an error lists labels that look like it."""
        node = self._index_of.get(label)
        if node is None:
            hint = did_you_mean(label, self.labels)
            hint = hint or f"the first labels are {quoted_names(self.labels)}"
            raise HierarchyError(f"{self.name} has no node labelled {quoted(label)}; {hint}")
        return node

    @cached_property
    def rank_counts(self) -> dict[str, int]:
        """The number of nodes of each rank, from the top down.

        Ranks that biology uses come in its order, then others by the mean depth of their nodes.
        """
        nodes, depth = Counter(self.ranks), Counter[str]()
        for rank, edges in zip(self.ranks or (), self.depth.tolist(), strict=bool(self.ranks)):
            depth[rank] += edges
        last = len(PLACE_OF_RANK)
        order = {
            rank: (PLACE_OF_RANK.get(plain_rank(rank), last), depth[rank] / nodes[rank])
            for rank in filter(None, nodes)
        }
        return {rank: nodes[rank] for rank in sorted(order, key=order.__getitem__)}

    def at_rank(self, rank: str) -> Tensor:
        """The nodes of a rank, int64, ascending; an error lists the ranks there are."""
        if rank not in self.rank_counts:
            known = quoted_names(list(self.rank_counts), len(self.rank_counts))
            hint = f"its ranks are {known}" if known else "its nodes have no ranks"
            raise HierarchyError(f"{self.name} has no rank {quoted(rank)}; {hint}")
        return torch.tensor([node for node, name in enumerate(self.ranks or ()) if name == rank])

    def lineage(self, label: str) -> tuple[tuple[str, str], ...]:
        """(rank, label) of each node from a root to this one, through first parents."""
        node, path = self.index(label), []
        while node >= 0:
            path.append((self.ranks[node] if self.ranks else "", self.labels[node]))
            node = int(self.first_parent[node])
        return tuple(reversed(path))

    @cached_property
    def first_parent(self) -> Tensor:
        """The first parent of each node in the order of edges, −1 for roots: int64 (n,)."""
        child, above = self.edges.unbind(1)
        rows = torch.arange(len(child))
        first = torch.full((len(self),), len(child)).scatter_reduce(0, child, rows, "amin")
        return torch.cat([above, above.new_tensor([-1])])[first]

    def closure(self) -> Tensor:
        """All pairs (descendant, ancestor), sorted, without self pairs: int64 of shape (p, 2)."""
        above, _ = self._ancestors()
        node = np.repeat(np.arange(len(self)), [len(nodes) for nodes in above])
        return torch.from_numpy(np.stack([node, np.concatenate(above)], axis=1))

    def reduction(self) -> Hierarchy:
        """The same order of nodes with the fewest edges: none that other edges imply."""
        _, needed = self._ancestors()
        return replace(self, edges=self.edges[torch.from_numpy(needed)])

    def with_one_root(self) -> Hierarchy:
        """The same nodes and, if there are several roots, after them a node above these."""
        n, added = len(self), ADDED_ROOT
        if len(self.roots) == 1:
            return self
        while added in self._index_of:
            added += "'"
        above = torch.stack([self.roots, torch.full_like(self.roots, n)], dim=1)
        ranks = (*self.ranks, "") if self.ranks else None
        return Hierarchy(self.name, (*self.labels, added), torch.cat([self.edges, above]), ranks)

    def spanning_tree(self) -> Tree:
        """A tree in which each node keeps its first parent; several roots get one above them."""
        if len(self.roots) > 1:
            return self.with_one_root().spanning_tree()
        first = self.first_parent.numpy()
        nodes = np.flatnonzero(first >= 0)
        children = Neighbours.of(first[nodes], nodes, len(self))
        order = self.roots.tolist()
        for node in order:  # grows while it is walked
            order += children[node].tolist()
        position = np.empty(len(self), dtype=np.int64)
        position[order] = np.arange(len(self))
        parent = np.full(len(self), -1, dtype=np.int64)
        parent[position[nodes]] = position[first[nodes]]
        labels = tuple(self.labels[node] for node in order)
        return Tree(self.name, labels, tuple(parent.tolist()))

    def subtree(self, label: str) -> Hierarchy:
        """The node with this label and all its descendants, with the edges among them."""
        inside = dag.reachable(self._children, self.index(label))
        number = np.cumsum(inside) - 1
        edges = self.edges.numpy()
        nodes = np.flatnonzero(inside).tolist()
        return Hierarchy(
            f"{self.name}:{label}",
            tuple(self.labels[node] for node in nodes),
            torch.from_numpy(number[edges[inside[edges].all(axis=1)]]),
            tuple(self.ranks[node] for node in nodes) if self.ranks else None,
        )

    def hops(self, sources: Tensor) -> Tensor:
        """Edges on a shortest path, up or down, from each source to every node.

        Args:
            sources: nodes, integers of shape (s,).

        Returns:
            int32 of shape (s, n), -1 where there is no path.
        """
        if sources.dim() != 1 or sources.is_floating_point() or sources.is_complex():
            raise ValueError(
                f"sources must be a vector of node numbers, got {sources.dtype} "
                f"of shape {tuple(sources.shape)}"
            )
        n = len(self)
        start = sources.detach().cpu().numpy().astype(np.int64)
        if start.size and (start.min() < 0 or start.max() >= n):
            raise ValueError(f"sources must lie in 0..{n - 1}, got {start.min()}..{start.max()}")
        edges = self.edges.numpy()
        near = Neighbours.parents(np.concatenate([edges, edges[:, ::-1]]), n)
        hops = np.full((len(start), n), -1, dtype=np.int32)
        for low in range(0, len(start), SOURCES_AT_A_TIME):
            block = slice(low, low + SOURCES_AT_A_TIME)
            dag.flood(near, start[block], hops[block])
        return torch.from_numpy(hops)

    def digest(self) -> str:
        """SHA-256 of labels and edges, in their order, as text; name and ranks are not part."""
        return digest_of_graph(self.labels, self.edges)

    @cached_property
    def _children(self) -> Neighbours:
        return Neighbours.children(self.edges.numpy(), len(self))

    @cached_property
    def _topology(self) -> Topology:
        return Topology.of(self.edges.numpy(), len(self))

    def _ancestors(self) -> tuple[list[Ints], NDArray[np.bool_]]:
        try:
            return dag.ancestors(self.edges.numpy(), self._topology.longest, MAX_CLOSURE_PAIRS)
        except dag.TooManyPairs:
            raise HierarchyError(
                f"{self.name} has {len(self):,} nodes and more than {MAX_CLOSURE_PAIRS:,} pairs of "
                "descendant and ancestor, which is too many; choose a part of it: --root LABEL"
            ) from None


def digest_of_graph(labels: Sequence[str], edges: Tensor) -> str:
    """SHA-256 of labels and edges (m, 2), in their order, as hexadecimal text."""
    sha = hashlib.sha256(f"{len(labels)} nodes, {len(edges)} edges\n".encode())
    for label in labels:
        text = label.encode()
        sha.update(b"%d:%s" % (len(text), text))
    sha.update(edges.numpy().astype("<i8").tobytes())
    return sha.hexdigest()


def near_matches(wanted: str, known: Sequence[str], most: int = QUOTED_NAMES) -> list[str]:
    """Names that look like the wanted one: those that contain it, else those of similar letters."""
    low = wanted.casefold()
    matches = [name for name in known if low in name.casefold()] if low else []
    if matches:
        return sorted(matches, key=len)[:most]
    pool = known
    if len(pool) > NEAR_MATCH_POOL:
        pool = [name for name in known if name[:1].casefold() == low[:1]][:NEAR_MATCH_POOL]
    return difflib.get_close_matches(wanted, pool, n=most)


def did_you_mean(wanted: str, known: Sequence[str]) -> str:
    """ "did you mean ...?" with names that look like the wanted one; empty if there are none."""
    near = near_matches(wanted, known)
    return f"did you mean {quoted_names(near)}?" if near else ""


def quoted_names(names: Sequence[str], most: int = QUOTED_NAMES) -> str:
    """The first names for an error message, each in quotes, with dots if there are more."""
    return ", ".join([*map(quoted, names[:most]), *(["..."] if len(names) > most else [])])


def show_cycle(labels: Sequence[str]) -> str:
    """A cycle of labels for an error message, shortened if it is long."""
    shown = [quoted(label) for label in labels[:QUOTED_NAMES]]
    if len(labels) > QUOTED_NAMES:
        shown.append(f"... ({len(labels) - QUOTED_NAMES} more)")
    return " -> ".join([*shown, quoted(labels[0])])


def _index_of(labels: Sequence[str]) -> dict[str, int]:
    """The node of each label, all of them checked."""
    if not labels:
        raise HierarchyError("labels are empty; a hierarchy needs at least one node")
    number: dict[str, int] = {}
    for node, label in enumerate(labels):
        if not isinstance(label, str):
            raise TypeError(f"labels must be text, got {label!r} for node {node}")
        if not label:
            raise HierarchyError(f"the label of node {node} is empty")
        first = number.setdefault(label, node)
        if first != node:
            raise HierarchyError(
                f"nodes {first} and {node} have the same label {quoted(label)}; labels must be "
                "unique"
            )
        if "\0" in label:
            raise HierarchyError(
                f"the label of node {node}, {quoted(label)}, holds a NUL character"
            )
        _check_characters(label, node, "label")
    return number


def _checked_ranks(ranks: Sequence[str] | None, labels: Sequence[str]) -> tuple[str, ...] | None:
    """The ranks, one a node; None if there is none."""
    if ranks is None:
        return None
    if isinstance(ranks, str) or len(ranks) != len(labels):
        raise HierarchyError(
            f"ranks must be one a node, got {len(ranks)} for {len(labels)} nodes; use '' for a "
            "node without one"
        )
    for node, rank in enumerate(ranks):
        if not isinstance(rank, str):
            raise TypeError(f"ranks must be text, got {rank!r} for {quoted(labels[node])}")
        _check_characters(rank, node, "rank")
    return tuple(ranks) if any(ranks) else None


def _check_characters(text: str, node: int, what: str) -> None:
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise HierarchyError(
            f"the {what} of node {node}, {quoted(text)}, holds half a character (a lone surrogate)"
        )


def _checked_edges(edges: Tensor, labels: Sequence[str]) -> Tensor:
    """The edges as a contiguous int64 tensor on the CPU, checked but for cycles."""
    if not isinstance(edges, Tensor):
        raise TypeError(f"edges must be a tensor, got {type(edges).__name__}")
    if edges.dim() != 2 or edges.shape[1] != 2:
        raise HierarchyError(
            f"edges must have the shape (m, 2), rows (child, parent), got {tuple(edges.shape)}"
        )
    if edges.is_floating_point() or edges.is_complex() or edges.dtype == torch.bool:
        raise TypeError(f"edges must be integers, got {edges.dtype}")
    edges = edges.detach().to("cpu", torch.int64).contiguous()
    array, n = edges.numpy(), len(labels)
    for row in np.flatnonzero(((array < 0) | (array >= n)).any(axis=1))[:1]:
        raise HierarchyError(
            f"edge {row} is ({array[row, 0]}, {array[row, 1]}), but nodes are numbered 0..{n - 1}"
        )
    for row in np.flatnonzero(array[:, 0] == array[:, 1])[:1]:
        raise HierarchyError(f"edge {row}: {quoted(labels[array[row, 0]])} is its own parent")
    for row, first in zip(*dag.repeated_rows(array, n), strict=True):
        child, parent = (labels[node] for node in array[row])
        raise HierarchyError(
            f"edges {first} and {row} are the same, {quoted(child)} -> {quoted(parent)}; remove one"
        )
    return edges
