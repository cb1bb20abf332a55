"""Trees to embed, and a hierarchy that is none."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from beltrami.data import Tree
from beltrami.data.hierarchy import Hierarchy


def tree_of(*parents: int) -> Tree:
    """The tree in which node i + 1 has the i-th of these parents."""
    return Tree("test", tuple(f"n{i}" for i in range(len(parents) + 1)), (-1, *parents))


def path(edges: int) -> Tree:
    return tree_of(*range(edges))


def star(leaves: int) -> Tree:
    return tree_of(*[0] * leaves)


def binary(depth: int) -> Tree:
    return tree_of(*[(node - 1) // 2 for node in range(1, 2 ** (depth + 1) - 1)])


def comb(depth: int) -> Tree:
    """A path with a second child at each of its nodes."""
    return tree_of(*[parent for node in range(depth) for parent in (max(2 * node - 1, 0),) * 2])


@st.composite
def trees(draw: st.DrawFn, most: int = 25) -> Tree:
    n = draw(st.integers(1, most - 1))
    return tree_of(*[draw(st.integers(0, node)) for node in range(n)])


def diamonds() -> Hierarchy:
    """Four levels; each node has two parents but for the top ones."""
    edges, labels = [], ["top"]
    above = [0]
    for level in range(4):
        here = list(range(len(labels), len(labels) + 6))
        labels += [f"{level}.{i}" for i in range(6)]
        for i, node in enumerate(here):
            edges += [(node, above[i % len(above)])]
            if len(above) > 1:
                edges += [(node, above[(i + 1) % len(above)])]
        above = here
    return Hierarchy("diamonds", tuple(labels), torch.tensor(edges))
