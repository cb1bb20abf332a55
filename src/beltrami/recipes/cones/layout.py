"""Where cones start: a tree unfolded from the origin, the same for every geometry."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from beltrami.data import Hierarchy
from beltrami.train.seeding import mix_seeds

EDGE = 0.3  # how much farther from the origin a child is than its parent, in curvature radii
TURN = 0.4  # a child of depth h turns from its parent's direction by about TURN^(h − 1) radians


def tree_layout(hierarchy: Hierarchy, dim: int, seed: int) -> Tensor:
    """Tangent vectors at the origin, float64 (n, dim), of the hierarchy's spanning tree.

    The radius is the depth, and the direction that of the parent with a random turn that gets
    smaller with depth, so that subtrees stay together. Only edges that no others imply are used,
    which every training is shown: a file may list implied pairs too, and some of them are held out.
    """
    tree = hierarchy.reduction().spanning_tree()
    generator = torch.Generator().manual_seed(mix_seeds(seed, 0))
    turns = torch.randn(len(tree), dim, generator=generator, dtype=torch.float64) / math.sqrt(dim)
    parent, depth = torch.tensor(tree.parent), torch.tensor(tree.depth)
    direction = torch.zeros_like(turns)
    for level in range(1, int(depth.max()) + 1):
        nodes = (depth == level).nonzero().squeeze(1)
        turned = direction[parent[nodes]] + TURN ** (level - 1) * turns[nodes]
        direction[nodes] = torch.nn.functional.normalize(turned, dim=-1)
    place = {label: i for i, label in enumerate(tree.labels)}
    order = torch.tensor([place[label] for label in hierarchy.labels])
    return (EDGE * depth.unsqueeze(1) * direction)[order]
