"""A generated graph with labels, for tests and first runs: an infection that goes down a tree."""

from __future__ import annotations

import torch

from beltrami.checks import check_integer, check_number
from beltrami.data.graphs import Graph


def disease_like_tree(
    *,
    branching: int = 4,
    depth: int = 5,
    features: int = 8,
    infection: float = 0.8,
    noise: float = 0.3,
    seed: int = 0,
) -> Graph:
    """A balanced tree whose root is ill, after the disease trees of HGCN (Chami et al. 2019).

    Each node has a hidden susceptibility u ~ N(0, 1). An ill parent makes its child ill if
    `Φ(u) < infection`, so on average with that probability, and a healthy one does not. Features
    are noisy linear readings of u, so that a node's own features say whether it *can* fall ill, and
    only its ancestors whether it does. Labels are "healthy" and "ill".

    Args:
        branching: children of each inner node. depth: of the leaves.
        features: number of features. infection: chance of passing it on.
        noise: standard deviation of what is added to features.
        seed: of the draw; equal seeds give equal graphs.
    """
    for name, value in (("branching", branching), ("depth", depth), ("features", features)):
        check_integer(name, value)
    check_number("infection", infection, low=0, high=1)
    check_number("noise", noise, low=0)
    generator = torch.Generator().manual_seed(seed)
    nodes = sum(branching**level for level in range(depth + 1))
    child = torch.arange(1, nodes)
    parent = (child - 1) // branching
    hidden = torch.randn(nodes, generator=generator, dtype=torch.float64)
    catches = torch.special.ndtr(hidden) < infection
    ill = torch.zeros(nodes, dtype=torch.bool)
    ill[0] = True
    first = 1
    for level in range(1, depth + 1):  # a level at a time, below one that is done
        last = first + branching**level
        ill[first:last] = catches[first:last] & ill[parent[first - 1 : last - 1]]
        first = last
    reading = torch.randn(features, generator=generator, dtype=torch.float64)
    added = torch.randn(nodes, features, generator=generator, dtype=torch.float64)
    return Graph(
        f"disease-like tree {branching}^{depth}",
        torch.stack([parent, child]),
        (hidden.unsqueeze(1) * reading + noise * added).float(),
        ill.long(),
        ("healthy", "ill"),
    )
