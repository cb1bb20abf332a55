"""The classes of a taxonomy's nodes, level by level: what a hierarchical classifier predicts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.data.hierarchy import Hierarchy


@dataclass(frozen=True, eq=False)
class LevelLabels:
    """Nodes to classify and their class at each level.

    Args:
        nodes: int64 (n,), numbers in the hierarchy.
        targets: int64 (n, levels): a number below that of the level's classes, −1 where a node has
            no ancestor on the level.
        classes: for each level the nodes that are its classes, int64, ascending.
        depths: of the levels, in edges from the root.
    """

    nodes: Tensor
    targets: Tensor
    classes: tuple[Tensor, ...]
    depths: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of classes at each level."""
        return tuple(len(level) for level in self.classes)


def level_labels(
    hierarchy: Hierarchy, *, levels: int | None = None, nodes: Tensor | None = None
) -> LevelLabels:
    """For each node its ancestors at the upper levels, the root's own level left out.

    A node with several parents goes by its first one. A node is no class of its own: the classes
    of a leaf are what lies strictly above it.

    Args:
        hierarchy: whose nodes.
        levels: how many, from the top; those with two classes or more if None.
        nodes: to classify; the leaves if None.
    """
    if levels is not None and levels < 1:
        raise ValueError(f"levels must be at least 1, got {levels}")
    chosen = hierarchy.leaves if nodes is None else nodes
    parent = hierarchy.first_parent
    chain = [parent[chosen]]  # ancestors, the nearest first
    while bool((chain[-1] >= 0).any()):
        above = chain[-1]
        chain.append(torch.where(above >= 0, parent[above], -1))
    up = torch.stack(chain, dim=1)  # (n, longest + 1), ending in -1
    count = (up >= 0).sum(1)
    targets: list[Tensor] = []
    classes: list[Tensor] = []
    depths: list[int] = []
    first = 1 if len(hierarchy.roots) == 1 else 0
    for depth in range(first, up.shape[1] - 1):
        if levels is not None and len(depths) == levels:
            break
        # The ancestor at this depth is so many steps from the node's nearest one.
        step = count - 1 - depth
        found = up.gather(1, torch.where(step >= 0, step, 0).unsqueeze(1)).squeeze(1)
        found = torch.where(step >= 0, found, -1)
        members, target = torch.unique(found[found >= 0], return_inverse=True)
        if len(members) < 2:
            continue
        row = torch.full_like(found, -1)
        row[found >= 0] = target
        targets.append(row)
        classes.append(members)
        depths.append(depth)
    if not targets:
        raise ValueError(
            f"{hierarchy.name} has no level with two classes above the nodes to classify"
        )
    return LevelLabels(chosen, torch.stack(targets, dim=1), tuple(classes), tuple(depths))
