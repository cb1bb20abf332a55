"""The classes of a taxonomy's nodes, level by level: what a hierarchical classifier predicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.checks import check_integer
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
        ranks: of the levels, where they were chosen so.
    """

    nodes: Tensor
    targets: Tensor
    classes: tuple[Tensor, ...]
    depths: tuple[int, ...]
    ranks: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of classes at each level."""
        return tuple(len(level) for level in self.classes)


def level_labels(
    hierarchy: Hierarchy,
    *,
    levels: int | None = None,
    nodes: Tensor | None = None,
    ranks: Sequence[str] = (),
) -> LevelLabels:
    """For each node its ancestors at the upper levels, the root's own level left out.

    A node with several parents goes by its first one. A node is not a class of its own: the classes
    of a leaf are what lies strictly above it.

    Args:
        hierarchy: whose nodes.
        levels: how many, from the top; those with two classes or more if None.
        nodes: to classify; the leaves if None.
        ranks: the levels, by the ranks of their classes, such as order and family, in place of
            depths; each needs two classes. `depths` of the result count them from 1.
    """
    if levels is not None:
        check_integer("levels", levels)
    if isinstance(ranks, str) or (ranks and levels is not None):
        raise ValueError(f"ranks must be names of ranks, without levels, got {ranks!r}, {levels=}")
    chosen = hierarchy.leaves if nodes is None else nodes
    up = _ancestors(hierarchy, chosen)
    targets: list[Tensor] = []
    classes: list[Tensor] = []
    depths: list[int] = []
    for depth, ancestors in _at_ranks(hierarchy, up, ranks) if ranks else _at_depths(hierarchy, up):
        if levels is not None and len(depths) == levels:
            break
        members, target = torch.unique(ancestors[ancestors >= 0], return_inverse=True)
        if len(members) < 2 and ranks:
            raise ValueError(
                f"{hierarchy.name} has {len(members)} classes of rank {ranks[depth - 1]!r} above "
                "the nodes to classify; a level needs two, so leave that rank out"
            )
        if len(members) < 2:
            continue
        row = torch.full_like(ancestors, -1)
        row[ancestors >= 0] = target
        targets.append(row)
        classes.append(members)
        depths.append(depth)
    if not targets:
        raise ValueError(
            f"{hierarchy.name} has no level with two classes above the nodes to classify"
        )
    return LevelLabels(
        chosen, torch.stack(targets, dim=1), tuple(classes), tuple(depths), tuple(ranks)
    )


def _ancestors(hierarchy: Hierarchy, chosen: Tensor) -> Tensor:
    """The ancestors of each node, the nearest first: (n, longest + 1), ending in −1."""
    parent = hierarchy.first_parent
    chain = [parent[chosen]]
    while bool((chain[-1] >= 0).any()):
        above = chain[-1]
        chain.append(torch.where(above >= 0, parent[above], -1))
    return torch.stack(chain, dim=1)


def _at_depths(hierarchy: Hierarchy, up: Tensor) -> Iterator[tuple[int, Tensor]]:
    """(depth, ancestor of each node at it, −1 without one) from the top."""
    count = (up >= 0).sum(1)
    first = 1 if len(hierarchy.roots) == 1 else 0
    for depth in range(first, up.shape[1] - 1):
        # The ancestor at this depth is so many steps from the node's nearest one.
        step = count - 1 - depth
        ancestor = up.gather(1, torch.where(step >= 0, step, 0).unsqueeze(1)).squeeze(1)
        yield depth, torch.where(step >= 0, ancestor, -1)


def _at_ranks(
    hierarchy: Hierarchy, up: Tensor, ranks: Sequence[str]
) -> Iterator[tuple[int, Tensor]]:
    """(place from 1, nearest ancestor of each node that has the rank, −1 without one)."""
    for place, rank in enumerate(ranks, start=1):
        has_rank = torch.zeros(len(hierarchy) + 1, dtype=torch.bool)  # the last for −1
        has_rank[hierarchy.at_rank(rank)] = True
        at = has_rank[up]
        ancestor = up.gather(1, at.int().argmax(1, keepdim=True)).squeeze(1)
        yield place, torch.where(at.any(1), ancestor, -1)
