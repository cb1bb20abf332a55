"""A graph in the disk: its breadth-first tree, the radius by depth, subtrees in sectors."""

from __future__ import annotations

import torch

from beltrami.data.graphs import Graph
from beltrami.data.tree import Tree
from beltrami.report.explorer import Cloud

EDGE = 1.2  # hyperbolic length of an edge
FARTHEST = 14.0  # radius of the deepest node: beyond, doubles cannot tell points from the rim


def graph_cloud(network: Graph) -> Cloud:
    """All nodes of a connected graph, with all its edges."""
    tree, order = breadth_first_tree(network)
    place = torch.empty(len(order), dtype=torch.long)
    place[torch.tensor(order)] = torch.arange(len(order))
    depth = torch.tensor(tree.depth, dtype=torch.float64)
    radius = min(EDGE, FARTHEST / max(1, max(tree.depth))) * depth
    angle = tree.sector_angles()
    disk = torch.tanh(radius / 2).unsqueeze(1) * torch.stack([angle.cos(), angle.sin()], 1)
    degrees = network.degrees[torch.tensor(order)]
    return Cloud(
        points=disk,
        labels=tree.labels,
        columns={
            "depth": [float(d) for d in tree.depth],
            "family": families(tree),
            "neighbours": [float(d) for d in degrees.tolist()],
        },
        edges=[(a, b) for a, b in place[network.edges].t().tolist()],
        directed=network.directed,
    )


def breadth_first_tree(network: Graph) -> tuple[Tree, list[int]]:
    """The tree by which a walk from the root reaches all nodes, and which node each of its is.

    The root is the node without a parent that has most neighbours; without directions, of all.
    """
    degrees = network.degrees.clone()
    if network.directed and network.edges.numel():
        has_parent = torch.zeros(len(network), dtype=torch.bool)
        has_parent[network.edges[0]] = True
        if not bool(has_parent.all()):
            degrees[has_parent] = -1
    near: list[list[int]] = [[] for _ in range(len(network))]
    for left, right in network.edges.t().tolist():
        near[right].append(left)
        near[left].append(right)
    root = int(degrees.argmax())
    order, place, parent = [root], {root: 0}, [-1]
    for node in order:  # grows while it is walked
        for other in near[node]:
            if other not in place:
                place[other] = len(order)
                order.append(other)
                parent.append(place[node])
    if len(order) < len(network):
        raise ValueError(f"{network.name} is not connected: {len(order)} of {len(network)} reached")
    names = network.names
    labels = tuple(names[node] for node in order)
    return Tree(network.name, labels, tuple(parent)), order


def families(tree: Tree) -> list[str]:
    """The child of the root that each node is or is below of; the root is its own."""
    names: list[str] = []
    for node, parent in enumerate(tree.parent):
        names.append(tree.labels[node] if parent <= 0 else names[parent])
    return names
