"""A rooted tree, small enough for all pairs of its nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tree:
    """A rooted tree whose nodes are numbered so that a parent comes before its children.

    Args:
        name: what to call the tree in reports.
        labels: one label a node.
        parent: the index of each node's parent; node 0 is the root and has parent -1.
    """

    name: str
    labels: tuple[str, ...]
    parent: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.parent):
            raise ValueError(
                f"labels and parent must be equally long, got {len(self.labels)} "
                f"and {len(self.parent)}"
            )
        if not self.parent or self.parent[0] != -1:
            raise ValueError("node 0 must be the root, with parent -1")
        for node, parent in enumerate(self.parent[1:], start=1):
            if not 0 <= parent < node:
                raise ValueError(
                    f"the parent of node {node} must be an earlier node, got {parent}; "
                    "number the nodes from the root down"
                )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def depth(self) -> tuple[int, ...]:
        """Number of edges between each node and the root."""
        depth = [0] * len(self)
        for node, parent in enumerate(self.parent[1:], start=1):
            depth[node] = depth[parent] + 1
        return tuple(depth)

    @property
    def leaves_below(self) -> tuple[int, ...]:
        """Number of leaves in each node's subtree; 1 for a leaf itself."""
        inner = set(self.parent)
        count = [0 if node in inner else 1 for node in range(len(self))]
        for node in range(len(self) - 1, 0, -1):
            count[self.parent[node]] += count[node]
        return tuple(count)

    @property
    def descendants(self) -> tuple[int, ...]:
        """Number of nodes below each node; 0 for a leaf."""
        count = [0] * len(self)
        for node in range(len(self) - 1, 0, -1):
            count[self.parent[node]] += count[node] + 1
        return tuple(count)

    def sector_angles(self) -> Tensor:
        """The middle of each node's sector, (n,): a share of its parent's, by its leaves."""
        leaves = self.leaves_below
        share = [2 * math.pi * count / leaves[0] for count in leaves]
        begin = [0.0] * len(self)  # where the next child's sector begins
        angle = [0.0] * len(self)
        for node, parent in enumerate(self.parent):
            if parent >= 0:
                begin[node] = begin[parent]
                begin[parent] += share[node]
            angle[node] = begin[node] + share[node] / 2
        return torch.tensor(angle, dtype=torch.float64)

    def distances(self) -> Tensor:
        """Numbers of edges between all pairs of nodes, float64 of shape (n, n)."""
        n = len(self)
        hops = torch.zeros(n, n, dtype=torch.float64)
        # A node reaches every earlier node through its parent, which is itself earlier.
        for node, parent in enumerate(self.parent[1:], start=1):
            hops[node, :node] = hops[parent, :node] + 1
            hops[:node, node] = hops[node, :node]
        return hops
