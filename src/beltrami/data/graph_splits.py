"""Which nodes and edges of a graph are trained on, chosen on, and tested on. Equal for equal seeds.

nodes = split_nodes(graph.labels, seed=0)
links = split_links(graph, seed=0)
encoder(graph.features, links.edge_index)      # messages pass along training edges alone
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from beltrami.data.graphs import Graph, both_directions

# Of training, validation and test: HGCN's for the disease trees (Chami et al. 2019).
NODE_SHARES = (0.3, 0.1, 0.6)
LINK_SHARES = (0.85, 0.05, 0.10)


@dataclass(frozen=True, eq=False)
class NodeSplit:
    """Nodes of training, validation and test, int64, ascending; no node is in two of them."""

    train: Tensor
    validation: Tensor
    test: Tensor


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """Edges (2, ·) of training, validation and test, and as many pairs that are not edges."""

    nodes: int
    train: Tensor
    validation: Tensor
    test: Tensor
    validation_negatives: Tensor
    test_negatives: Tensor

    @cached_property
    def edge_index(self) -> Tensor:
        """The training edges in both directions: all that messages may pass along."""
        return both_directions(self.train)


def split_nodes(
    labels: Tensor, *, seed: int, shares: tuple[float, float, float] = NODE_SHARES
) -> NodeSplit:
    """Split the labelled nodes, class by class, at random.

    Args:
        labels: int64 (n,), −1 for nodes without a label, which are in no part.
        seed: of the draw.
        shares: of training, validation and test, of sum 1 or less. Every part gets a node of each
            class that has at least as many nodes as there are parts with a share.
    """
    _check_shares(shares)
    generator = torch.Generator().manual_seed(seed)
    parts: list[list[Tensor]] = [[], [], []]
    for label in range(int(labels.max()) + 1 if len(labels) else 0):
        members = (labels == label).nonzero().squeeze(1)
        members = members[torch.randperm(len(members), generator=generator)]
        counts = _counts(len(members), shares)
        for part, chosen in zip(parts, members.split(counts)[:3], strict=True):
            part.append(chosen)
    if not parts[0]:
        raise ValueError("labels has no labelled node, nothing to split")
    return NodeSplit(*(torch.cat(part).sort().values for part in parts))


def split_links(
    graph: Graph, *, seed: int, shares: tuple[float, float, float] = LINK_SHARES
) -> LinkSplit:
    """Split the edges at random, and draw as many pairs that are not edges for the two tests.

    Args:
        graph: whose edges.
        seed: of the draw.
        shares: of training, validation and test, of sum 1 or less.
    """
    _check_shares(shares)
    edges, nodes = graph.edges, len(graph)
    if edges.shape[1] < 3:
        raise ValueError(f"{graph.name} has {edges.shape[1]} edges; a split needs 3 or more")
    generator = torch.Generator().manual_seed(seed)
    shuffled = edges[:, torch.randperm(edges.shape[1], generator=generator)]
    train, validation, test, _ = shuffled.split(_counts(edges.shape[1], shares), dim=1)
    count = validation.shape[1] + test.shape[1]
    negatives = sample_negatives(edges, nodes, count, generator)
    return LinkSplit(
        nodes, train, validation, test, *negatives.split([validation.shape[1], test.shape[1]], 1)
    )


def sample_negatives(edges: Tensor, nodes: int, count: int, generator: torch.Generator) -> Tensor:
    """`count` different pairs of nodes, (2, count), none of them among the edges, at random.

    Args:
        edges: (2, m), each once. nodes: number of nodes.
        count: of pairs to draw. generator: of the draw, on the CPU.
    """
    pairs = nodes * (nodes - 1) // 2
    free = pairs - edges.shape[1]
    if count > free:
        raise ValueError(
            f"count={count} pairs without an edge were asked for, but the graph has {free}"
        )
    taken = (edges.amin(0) * nodes + edges.amax(0)).cpu()
    if 2 * count > free or pairs <= 4 * count:  # few are left: list them all
        every = torch.triu_indices(nodes, nodes, offset=1)
        codes = every[0] * nodes + every[1]
        codes = codes[~torch.isin(codes, taken)]
        codes = codes[torch.randperm(len(codes), generator=generator)[:count]]
    else:
        codes = torch.empty(0, dtype=torch.int64)
        while len(codes) < count:
            drawn = torch.randint(nodes, (2, 2 * count), generator=generator)
            low, high = drawn.amin(0), drawn.amax(0)
            new = (low * nodes + high)[low < high]
            codes = first_of_each(torch.cat([codes, new[~torch.isin(new, taken)]]))
        codes = codes[:count]
    return torch.stack([codes // nodes, codes % nodes])


def first_of_each(codes: Tensor) -> Tensor:
    """Distinct values in the order in which they first turn up."""
    _, first = np.unique(codes.numpy(), return_index=True)
    return codes[torch.from_numpy(np.sort(first))]


def _check_shares(shares: tuple[float, float, float]) -> None:
    good = len(shares) == 3 and all(0 <= s <= 1 for s in shares) and shares[0] > 0
    if not good or sum(shares) > 1 + 1e-9:
        raise ValueError(
            "shares must be three shares of training, validation and test, the first above 0 and "
            f"their sum at most 1, got {shares}"
        )


def _counts(size: int, shares: tuple[float, float, float]) -> list[int]:
    """How many of `size` go to each part, and what is left.

    The cuts are rounded, not the parts, so that shares of sum 1 leave nothing over. A part with a
    share has at least one, taken from what is left or from the largest part, while there are
    enough; training comes first.
    """
    cuts = [0, *(math.floor(size * total + 0.5) for total in accumulate(shares))]
    counts = [after - before for before, after in pairwise(cuts)]
    counts.append(size - cuts[-1])
    for part, share in enumerate(shares):
        if share == 0 or counts[part] > 0:
            continue
        giver = 3 if counts[3] else counts.index(max(counts))
        if counts[giver] > (giver != 3 and part > 0):
            counts[giver] -= 1
            counts[part] += 1
    return counts
