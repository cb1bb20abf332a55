"""Graphs: what is checked, edges of files, their directions, components, hops."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.data import dag, load_hierarchy
from beltrami.data import graphs as module
from beltrami.data.graphs import Graph, load_network, undirected_edges
from beltrami.data.hierarchy import HierarchyError
from beltrami.data.text import DataWarning

PAIRS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30)


def network(pairs: list[tuple[int, int]], nodes: int = 12) -> Graph:
    once = sorted({(min(p), max(p)) for p in pairs if p[0] != p[1]})
    edges = torch.tensor(once, dtype=torch.int64).reshape(-1, 2)
    return Graph.of_names("n", tuple(f"node {i}" for i in range(nodes)), edges.t())


@given(PAIRS)
@settings(max_examples=60, deadline=None)
def test_components_and_hops_are_those_of_networkx(pairs: list[tuple[int, int]]) -> None:
    ours = network(pairs)
    theirs = networkx.Graph(ours.edges.t().tolist())
    theirs.add_nodes_from(range(12))
    number = ours.components().tolist()
    found = [{i for i, k in enumerate(number) if k == c} for c in range(max(number) + 1)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, networkx.connected_components(theirs)))
    assert [len(c) for c in found] == sorted((len(c) for c in found), reverse=True)
    hops = ours.hops(torch.arange(12))
    for source, reached in networkx.all_pairs_shortest_path_length(theirs):
        assert {k: v for k, v in enumerate(hops[source].tolist()) if v >= 0} == reached


@given(
    PAIRS,
    st.lists(st.integers(0, 11), max_size=9),
    st.lists(st.integers(0, 11), max_size=9),
    st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_hops_to_some_are_those_of_all(
    pairs: list[tuple[int, int]], sources: list[int], targets: list[int], at_a_time: int
) -> None:
    ours = network(pairs)
    rows, columns = (torch.tensor(nodes, dtype=torch.int64) for nodes in (sources, targets))
    all_of_them = ours.hops(torch.arange(12))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SOURCES_AT_A_TIME", at_a_time)
        assert torch.equal(ours.hops(rows), all_of_them[rows])
        found = ours.hops(rows, columns)
    assert found.dtype == torch.int32
    assert torch.equal(found, all_of_them[rows][:, columns])


def star(rays: int) -> Graph:
    edges = torch.stack([torch.arange(1, rays + 1), torch.zeros(rays, dtype=torch.int64)], 1)
    return Graph("star", edges.t(), torch.empty(rays + 1, 0))


def chain(nodes: int) -> Graph:
    line = torch.arange(nodes)
    return Graph("chain", torch.stack([line[1:], line[:-1]]), torch.empty(nodes, 0))


@pytest.mark.parametrize(("graph", "far"), [(star(50_000), 2), (chain(500), 499)])
def test_hops_hold_some_sources_at_a_time(
    graph: Graph, far: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks: list[tuple[int, ...]] = []
    flood = dag.flood

    def watched(near: dag.Neighbours, sources: dag.Ints, hops: np.ndarray) -> None:
        blocks.append(hops.shape)
        flood(near, sources, hops)

    monkeypatch.setattr(dag, "flood", watched)
    monkeypatch.setattr(module, "_SOURCES_AT_A_TIME", 4)
    rows = torch.linspace(1, len(graph) - 1, 250).long()
    shares: list[float] = []
    tracemalloc.start()
    found = graph.hops(rows, torch.tensor([0, 1, len(graph) - 1]), shares.append)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.shape == (250, 3)
    assert found[0].tolist() == [1, 0, min(far, len(graph) - 2)]
    assert set(blocks) == {(4, len(graph)), (2, len(graph))}
    # All at once they are 250 × 4 bytes a node.
    assert most < max(250 * 2 * len(graph), 1 << 20)
    assert shares == sorted(shares)
    assert len(shares) == len(blocks)
    assert shares[-1] == 1


def test_large_graphs_take_fewer_sources_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    monkeypatch.setattr(module, "_PLACES_AT_A_TIME", 100)
    rows = torch.arange(4)
    assert torch.equal(
        chain(11).hops(rows, rows, shares.append), (rows[:, None] - rows).abs().int()
    )
    assert shares == [0.75, 1]  # 11 nodes and 20 ends of edges for each of three
    assert chain(200).hops(rows).shape == (4, 200)


def test_a_part_keeps_labels_and_edges() -> None:
    whole = network([(0, 1), (1, 2), (4, 5)])
    part = whole.part(whole.components() == 0)
    assert part.names == ("node 0", "node 1", "node 2")
    assert part.edges.t().tolist() == [[0, 1], [1, 2]]
    assert part.degrees.tolist() == [1, 2, 1]


def test_an_edge_list_may_have_cycles_and_both_directions(tmp_path: Path) -> None:
    path = tmp_path / "ring.tsv"
    path.write_text("a\tb\nb\tc\nc\ta\nb\ta\n", encoding="utf-8")
    ring = load_network(path)
    assert ring.names == ("a", "b", "c")
    assert ring.edges.shape == (2, 3)
    assert ring.hops(torch.tensor([0])).tolist() == [[0, 1, 1]]


TREE = "pug,dog\nhusky,dog\nbeagle,dog\ndog,mammal\ncat,mammal\nmammal,animal\n"
TURNED = "\n".join(",".join(reversed(line.split(","))) for line in TREE.splitlines())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", f"child,parent\n{TREE}"),
        ("t.csv", f"Parent,Child\n{TURNED}"),
        ("t.csv", f"id1,id2\n{TREE}"),
        ("t.csv", TREE),
        ("t.txt", TREE),
        ("t.tsv", TREE.replace(",", "\t")),
        ("t.tsv", "# by hand\n" + TREE.replace(",", "\t")),
        ("t.edges", f"child,parent\n{TREE}"),
    ],
)
def test_edges_of_child_and_parent_are_directed_as_in_the_hierarchy(
    tmp_path: Path, name: str, content: str
) -> None:
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    found, hierarchy = load_network(file), load_hierarchy(file)
    assert found.directed
    assert found.names == hierarchy.labels
    assert torch.equal(found.edges.t(), hierarchy.edges)
    assert found.part(found.components() == 0).directed


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", f"{TREE}animal,pug\n"),
        ("t.csv", f"child,parent\n{TREE}animal,pug\n"),
        ("t.csv", f"{TREE}dog,pug\n"),  # an edge both ways, of which one is kept
        ("t.csv", f"source,target\n{TURNED}"),
        ("t.csv", f"Target,Source\n{TREE}"),
        ("t.edges", TURNED),
        ("t.txt", "0 1\n0 2\n1 3\n"),
    ],
)
def test_edges_with_cycles_and_of_graphs_have_no_direction(
    tmp_path: Path, name: str, content: str
) -> None:
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    assert not load_network(file).directed


def test_an_edge_that_is_there_twice_keeps_its_direction(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(f"{TREE}pug,dog\n", encoding="utf-8")
    with pytest.warns(DataWarning, match="1 edge is repeated and used once, first on line 7"):
        found = load_network(file)
    assert found.directed
    assert found.edges.shape == (2, 6)


def test_distances_do_not_ask_for_directions(tmp_path: Path) -> None:
    taxonomy, graph = tmp_path / "t.csv", tmp_path / "g.csv"
    taxonomy.write_text(f"child,parent\n{TREE}", encoding="utf-8")
    graph.write_text(f"target,source\n{TREE}", encoding="utf-8")
    one, other = load_network(taxonomy), load_network(graph)
    assert one.directed != other.directed
    assert one.digest() == other.digest()
    assert torch.equal(one.hops(torch.arange(7)), other.hops(torch.arange(7)))


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


def test_a_graph_is_checked() -> None:
    features, edges = torch.zeros(3, 2), torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="features must be floats"):
        Graph("g", edges, torch.zeros(3))
    with pytest.raises(ValueError, match=r"edges must be int64 of shape \(2, m\)"):
        Graph("g", torch.zeros(1, 2).long(), features)
    assert Graph("g", edges.flip(0), features).degrees.tolist() == [1, 1, 0]
    for wrong in ([[0], [3]], [[-1], [0]], [[1], [1]]):
        with pytest.raises(ValueError, match="join different nodes below 3; undirected_edges"):
            Graph("g", torch.tensor(wrong), features)
    with pytest.raises(ValueError, match="must not repeat an edge; undirected_edges"):
        Graph("g", torch.tensor([[0, 1], [1, 0]]), features)
    with pytest.raises(ValueError, match="labels must have shape"):
        Graph("g", edges, features, torch.tensor([0, 1, 2]), ("a", "b"))
    with pytest.raises(ValueError, match="node_names must be 3, got 1"):
        Graph("g", edges, features, node_names=("a",))
    assert undirected_edges(torch.tensor([[1, 0, 2], [0, 1, 2]])).tolist() == [[0], [1]]
    assert undirected_edges(torch.tensor([[2], [2]])).shape == (2, 0)


def test_former_names_work_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"GraphData is beltrami\.data\.graphs\.Graph now"):
        assert module.GraphData is Graph
    with pytest.warns(DeprecationWarning, match=r"graph_files\.read_graph now"):
        assert callable(module.read_graph)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = module.nothing


def test_a_part_keeps_what_is_known_of_its_nodes() -> None:
    whole = Graph(
        "g",
        torch.tensor([[0, 2], [2, 3]]),
        torch.arange(8.0).reshape(4, 2),
        torch.tensor([1, 0, -1, 1]),
        ("a", "b"),
    )
    part = whole.part(torch.tensor([True, False, True, True]))
    assert part.edges.tolist() == [[0, 1], [1, 2]]
    assert part.features.tolist() == [[0, 1], [4, 5], [6, 7]]
    assert part.labels is not None
    assert part.labels.tolist() == [1, -1, 1]
    assert (part.label_names, part.names) == (("a", "b"), ("0", "2", "3"))
