"""Graphs without directions: edges of files, components, hops."""

from __future__ import annotations

from pathlib import Path

import networkx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.data.hierarchy import HierarchyError
from beltrami.data.network import Network, load_network

PAIRS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30)


def network(pairs: list[tuple[int, int]], nodes: int = 12) -> Network:
    once = sorted({(min(p), max(p)) for p in pairs if p[0] != p[1]})
    edges = torch.tensor(once, dtype=torch.int64).reshape(-1, 2)
    return Network("n", tuple(f"node {i}" for i in range(nodes)), edges)


@given(PAIRS)
@settings(max_examples=60, deadline=None)
def test_components_and_hops_are_those_of_networkx(pairs: list[tuple[int, int]]) -> None:
    ours = network(pairs)
    theirs = networkx.Graph(ours.edges.tolist())
    theirs.add_nodes_from(range(12))
    number = ours.components().tolist()
    found = [{i for i, k in enumerate(number) if k == c} for c in range(max(number) + 1)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, networkx.connected_components(theirs)))
    assert [len(c) for c in found] == sorted((len(c) for c in found), reverse=True)
    hops = ours.hops(torch.arange(12))
    for source, reached in networkx.all_pairs_shortest_path_length(theirs):
        assert {k: v for k, v in enumerate(hops[source].tolist()) if v >= 0} == reached


def test_a_part_keeps_labels_and_edges() -> None:
    whole = network([(0, 1), (1, 2), (4, 5)])
    part = whole.part(whole.components() == 0)
    assert part.labels == ("node 0", "node 1", "node 2")
    assert part.edges.tolist() == [[0, 1], [1, 2]]
    assert part.degrees.tolist() == [1, 2, 1]


def test_an_edge_list_may_have_cycles_and_both_directions(tmp_path: Path) -> None:
    path = tmp_path / "ring.tsv"
    path.write_text("a\tb\nb\tc\nc\ta\nb\ta\n", encoding="utf-8")
    ring = load_network(path)
    assert ring.labels == ("a", "b", "c")
    assert len(ring.edges) == 3
    assert ring.hops(torch.tensor([0])).tolist() == [[0, 1, 1]]


def test_a_hierarchy_keeps_its_direction() -> None:
    mammals = load_network("wordnet-mammals")
    assert mammals.directed
    assert len(mammals) == 1180
    assert int(mammals.components().max()) == 0


def test_the_digest_is_of_labels_and_edges() -> None:
    one, other = network([(0, 1)]), network([(0, 2)])
    assert one.digest() == network([(1, 0)]).digest()
    assert one.digest() != other.digest()


def test_a_file_without_edges_and_one_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "empty.tsv"
    path.write_text("child\tparent\n", encoding="utf-8")
    with pytest.raises(HierarchyError, match="no edges"):
        load_network(path)
    with pytest.raises(HierarchyError, match="missing"):
        load_network(tmp_path / "missing.tsv")
