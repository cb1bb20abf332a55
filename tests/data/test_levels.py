"""Classes of nodes level by level, against climbing one parent at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from beltrami.data.hierarchy import Hierarchy
from beltrami.data.levels import level_labels


def hierarchy(*edges: tuple[str, str]) -> Hierarchy:
    labels = tuple(dict.fromkeys(name for edge in edges for name in edge))
    index = {label: i for i, label in enumerate(labels)}
    rows = [[index[child], index[parent]] for child, parent in edges]
    return Hierarchy("test", labels, torch.tensor(rows))


def test_a_small_taxonomy() -> None:
    animals = hierarchy(
        ("mammal", "animal"),
        ("bird", "animal"),
        ("cat", "mammal"),
        ("dog", "mammal"),
        ("lion", "cat"),
        ("tiger", "cat"),
        ("pug", "dog"),
        ("owl", "bird"),
    )
    found = level_labels(animals)
    names = [[animals.labels[i] for i in level.tolist()] for level in found.classes]
    assert names == [["mammal", "bird"], ["cat", "dog"]]
    assert found.depths == (1, 2)
    assert found.sizes == (2, 2)
    told = {
        animals.labels[node]: [None if t < 0 else names[level][t] for level, t in enumerate(row)]
        for node, row in zip(found.nodes.tolist(), found.targets.tolist(), strict=True)
    }
    assert told == {
        "lion": ["mammal", "cat"],
        "tiger": ["mammal", "cat"],
        "pug": ["mammal", "dog"],
        "owl": ["bird", None],
    }
    assert level_labels(animals, levels=1).targets.shape == (4, 1)
    inner = level_labels(animals, nodes=torch.tensor([animals.index("cat"), animals.index("owl")]))
    assert inner.targets.tolist() == [[0], [1]]


def test_several_roots_and_parents() -> None:
    """Roots are classes where there are several; the first of two parents counts."""
    found = level_labels(hierarchy(("x", "a"), ("x", "b"), ("y", "b")))
    assert found.depths == (0,)
    assert found.targets.tolist() == [[0], [1]]


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=40))
def test_against_climbing(draws: list[int]) -> None:
    parent = {i + 1: draw % (i + 1) for i, draw in enumerate(draws)}  # a random tree, root 0
    tree = Hierarchy(
        "random",
        tuple(f"n{i}" for i in range(len(draws) + 1)),
        torch.tensor([[child, above] for child, above in parent.items()]),
    )

    def path(node: int) -> list[int]:
        above = []
        while node in parent:
            node = parent[node]
            above.insert(0, node)
        return above

    paths = {leaf: path(leaf) for leaf in tree.leaves.tolist()}
    depths = [
        d
        for d in range(1, max(map(len, paths.values())))
        if len({p[d] for p in paths.values() if len(p) > d}) > 1
    ]
    if not depths:
        with pytest.raises(ValueError, match="no level with two classes"):
            level_labels(tree)
        return
    found = level_labels(tree)
    assert list(found.depths) == depths
    for leaf, row in zip(found.nodes.tolist(), found.targets.tolist(), strict=True):
        for level, target in enumerate(row):
            above = paths[leaf]
            expected = above[depths[level]] if len(above) > depths[level] else None
            got = None if target < 0 else int(found.classes[level][target])
            assert got == expected


def test_bad_levels() -> None:
    with pytest.raises(ValueError, match="levels must be at least 1, got 0"):
        level_labels(hierarchy(("a", "b")), levels=0)


def test_levels_by_rank() -> None:
    """A species without a family has its genus at the depth of families."""
    labels = (
        "Mammalia",
        "Felidae",
        "Felis",
        "catus",
        "Canidae",
        "Canis",
        "lupus",
        "Orphan",
        "solus",
    )
    parent = (-1, 0, 1, 2, 0, 4, 5, 0, 7)
    ranks = (
        "class",
        "family",
        "genus",
        "species",
        "family",
        "genus",
        "species",
        "genus",
        "species",
    )
    edges = torch.tensor([[node, above] for node, above in enumerate(parent) if above >= 0])
    mammals = Hierarchy("mammals", labels, edges, ranks)
    by_rank = level_labels(mammals, ranks=("family", "genus"))
    assert [[labels[node] for node in level.tolist()] for level in by_rank.classes] == [
        ["Felidae", "Canidae"],
        ["Felis", "Canis", "Orphan"],
    ]
    assert by_rank.targets.tolist() == [[0, 0], [1, 1], [-1, 2]]
    assert (by_rank.depths, by_rank.ranks) == ((1, 2), ("family", "genus"))
    assert level_labels(mammals).sizes == (3, 2)
    with pytest.raises(ValueError, match="has no rank 'tribe'; its ranks are 'class', 'family'"):
        level_labels(mammals, ranks=("tribe",))
    with pytest.raises(ValueError, match=r"1 classes of rank 'class' .* leave that rank out"):
        level_labels(mammals, ranks=("class", "family"))
    with pytest.raises(ValueError, match="without levels, got"):
        level_labels(mammals, ranks=("family",), levels=2)
