"""Splits of nodes and edges: shares, disjointness, seeds; and the generated tree."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from beltrami.data.graph_splits import (
    NodeSplit,
    sample_negatives,
    split_links,
    split_nodes,
)
from beltrami.data.graph_trees import disease_like_tree
from beltrami.data.graphs import Graph

PARTS = ("train", "validation", "test")


def pairs_of(edges: Tensor) -> set[tuple[int, int]]:
    return {tuple(pair) for pair in edges.t().tolist()}


@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    unknown=st.integers(0, 5),
    shares=st.sampled_from([(0.3, 0.1, 0.6), (0.5, 0.5, 0.0), (0.1, 0.1, 0.1), (1.0, 0.0, 0.0)]),
    seed=st.integers(0, 99),
)
def test_nodes(counts: list[int], unknown: int, shares: tuple, seed: int) -> None:
    labels = torch.tensor([i for i, n in enumerate(counts) for _ in range(n)] + [-1] * unknown)
    labels = labels[torch.randperm(len(labels))].long()
    if not any(counts):
        with pytest.raises(ValueError, match="no labelled node"):
            split_nodes(labels, seed=seed)
        return
    split = split_nodes(labels, seed=seed, shares=shares)
    parts = [getattr(split, part) for part in PARTS]
    every = torch.cat(parts)
    assert len(every.unique()) == len(every)
    assert (labels[every] >= 0).all()
    used = sum(share > 0 for share in shares)
    for part, share in zip(parts, shares, strict=True):
        for label, count in enumerate(counts):
            found = int((labels[part] == label).sum())
            if share == 0:
                assert found == 0
            elif count >= used:
                assert found >= 1
            assert abs(found - share * count) <= 2
    if sum(shares) == 1:
        assert len(every) == sum(counts)
    again = split_nodes(labels, seed=seed, shares=shares)
    assert all(torch.equal(getattr(again, part), getattr(split, part)) for part in PARTS)


def test_other_seeds_give_other_splits() -> None:
    labels = torch.arange(60) % 3
    splits = [split_nodes(labels, seed=seed).train.tolist() for seed in range(4)]
    assert len({tuple(split) for split in splits}) == 4
    assert isinstance(split_nodes(labels, seed=0), NodeSplit)
    tree = disease_like_tree(depth=3)
    assert not torch.equal(split_links(tree, seed=0).train, split_links(tree, seed=1).train)


def test_links() -> None:
    tree = disease_like_tree(depth=4)
    split = split_links(tree, seed=1)
    again = split_links(tree, seed=1)
    names = (*PARTS, "validation_negatives", "test_negatives")
    assert all(torch.equal(getattr(split, n), getattr(again, n)) for n in names)
    parts = {name: pairs_of(getattr(split, name)) for name in names}
    assert set().union(*(parts[p] for p in PARTS)) == pairs_of(tree.edges)
    assert sum(map(len, parts.values())) == len(set().union(*parts.values()))  # all disjoint
    edges = tree.edges.shape[1]
    assert [len(parts[p]) for p in PARTS] == pytest.approx(
        [0.85 * edges, 0.05 * edges, 0.1 * edges], abs=1
    )
    for part in ("validation", "test"):
        assert len(parts[part]) == len(parts[f"{part}_negatives"])
    # Messages pass along training edges, in both directions, and along no others.
    train = parts["train"]
    assert pairs_of(split.edge_index) == train | {(b, a) for a, b in train}


@given(nodes=st.integers(2, 12), share=st.floats(0, 1), wanted=st.floats(0, 1))
def test_negatives(nodes: int, share: float, wanted: float) -> None:
    every = torch.triu_indices(nodes, nodes, offset=1)
    edges = every[:, torch.rand(every.shape[1]) < share]
    free = every.shape[1] - edges.shape[1]
    count = round(wanted * free)
    generator = torch.Generator().manual_seed(0)
    drawn = sample_negatives(edges, nodes, count, generator)
    found = pairs_of(drawn)
    assert len(found) == drawn.shape[1] == count
    assert not found & pairs_of(edges)
    assert all(0 <= a < b < nodes for a, b in found)
    with pytest.raises(ValueError, match=f"the graph has {free}"):
        sample_negatives(edges, nodes, free + 1, generator)


def test_negatives_are_uniform() -> None:
    """All pairs but the edges, about equally often, by drawing and by listing."""
    edges = torch.tensor([[0, 1], [1, 2]])
    generator = torch.Generator().manual_seed(0)
    for nodes, count in ((6, 1), (6, 8)):
        seen: dict[tuple[int, int], int] = {}
        for _ in range(2600 // count):
            for pair in pairs_of(sample_negatives(edges, nodes, count, generator)):
                seen[pair] = seen.get(pair, 0) + 1
        assert len(seen) == 13
        assert min(seen.values()) > 140  # of 200 each
        assert max(seen.values()) < 260


def test_bad_shares() -> None:
    labels = torch.tensor([0, 1])
    for shares in ((0.0, 0.5, 0.5), (0.8, 0.2, 0.2), (0.5, -0.1, 0.1), (0.5, 0.5)):
        with pytest.raises(ValueError, match="shares must be three"):
            split_nodes(labels, seed=0, shares=shares)
    small = Graph("g", torch.tensor([[0], [1]]), torch.zeros(2, 1))
    with pytest.raises(ValueError, match="has 1 edges; a split needs 3"):
        split_links(small, seed=0)


def test_the_generated_tree_is_an_infection() -> None:
    tree = disease_like_tree(branching=3, depth=5, infection=0.7, seed=3)
    assert len(tree) == 364
    parent = torch.full((364,), -1)
    parent[tree.edges[1]] = tree.edges[0]
    assert (parent[1:] >= 0).all()  # a tree: one parent each
    ill = tree.labels.bool()
    assert ill[0]
    assert ill[parent[1:]][ill[1:]].all()  # who is ill has an ill parent
    passed = ill[1:][ill[parent[1:]]].double().mean()
    assert passed == pytest.approx(0.7, abs=0.1)
    assert torch.equal(
        tree.features, disease_like_tree(branching=3, depth=5, infection=0.7, seed=3).features
    )
    other = disease_like_tree(branching=3, depth=5, infection=0.7, seed=4)
    assert not torch.equal(tree.labels, other.labels)
    for options in ({"depth": 0}, {"branching": 0}, {"features": 0}, {"infection": 1.5}):
        with pytest.raises(ValueError, match=next(iter(options))):
            disease_like_tree(**options)
    with pytest.raises(ValueError, match="noise"):
        disease_like_tree(noise=-1.0)
