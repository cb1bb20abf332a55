from __future__ import annotations

import pytest
import torch

from beltrami.data import Tree, load_hierarchy


@pytest.fixture(scope="module")
def carnivores() -> Tree:
    return load_hierarchy("carnivores").spanning_tree()


def test_carnivores_is_the_tree_its_documentation_promises(carnivores: Tree) -> None:
    tree = carnivores
    assert (len(tree), max(tree.depth)) == (131, 3)
    assert tree.labels[0] == "carnivore"
    assert len(set(tree.labels)) == len(tree)
    lion = tree.labels.index("lion")
    assert tree.labels[tree.parent[lion]] == "big cat"
    assert tree.leaves_below[0] == sum(1 for below in tree.descendants if below == 0)
    assert tree.descendants[0] == len(tree) - 1


def test_distances_are_path_lengths() -> None:
    #        a
    #       / \
    #      b   c
    #     / \   \
    #    d   e   f
    tree = Tree("t", tuple("abcdef"), (-1, 0, 0, 1, 1, 2))
    hops = tree.distances()
    at = {label: i for i, label in enumerate(tree.labels)}
    expected = {("a", "d"): 2, ("d", "e"): 2, ("d", "f"): 4, ("b", "c"): 2, ("b", "f"): 3}
    assert {pair: hops[at[pair[0]], at[pair[1]]].item() for pair in expected} == expected
    assert torch.equal(hops, hops.T)
    assert torch.equal(hops.diagonal(), torch.zeros(6, dtype=hops.dtype))


def test_carnivore_distances_satisfy_the_four_point_condition(carnivores: Tree) -> None:
    # Holds for tree metrics only: of the three sums of opposite pairs, the two largest are equal.
    hops = carnivores.distances()
    a, b, c, d = torch.randint(131, (4, 2000), generator=torch.Generator().manual_seed(0))
    sums = torch.stack([hops[a, b] + hops[c, d], hops[a, c] + hops[b, d], hops[a, d] + hops[b, c]])
    ordered = sums.sort(dim=0).values
    assert torch.equal(ordered[1], ordered[2])


@pytest.mark.parametrize(
    ("labels", "parent", "message"),
    [
        (("a",), (-1, 0), "equally long"),
        (("a", "b"), (0, 0), "node 0 must be the root"),
        (("a", "b", "c"), (-1, 2, 0), "parent of node 1 must be an earlier node, got 2"),
    ],
)
def test_inconsistent_trees_are_refused(
    labels: tuple[str, ...], parent: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Tree("t", labels, parent)
