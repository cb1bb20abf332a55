import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.data import hierarchy as module
from beltrami.data.dag import Topology
from beltrami.data.hierarchy import Hierarchy, HierarchyError, near_matches

Rows = list[tuple[int, int]]


def make(n: int, rows: Rows) -> Hierarchy:
    edges = torch.tensor(rows, dtype=torch.int64).reshape(-1, 2)
    return Hierarchy("h", tuple(f"n{i}" for i in range(n)), edges)


@st.composite
def dags(draw: st.DrawFn) -> Hierarchy:
    """Random acyclic graphs: edges go up a random order of the nodes."""
    n = draw(st.integers(1, 9))
    order = draw(st.permutations(range(n)))
    pairs = [(order[i], order[j]) for i in range(n) for j in range(i)]
    rows = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return make(n, rows)


def ancestors_by_hand(h: Hierarchy) -> set[tuple[int, int]]:
    above = {tuple(row) for row in h.edges.tolist()}
    while True:
        more = above | {(a, d) for a, b in above for c, d in above if b == c}
        if more == above:
            return above
        above = more


@given(dags())
def test_closure_is_every_pair_joined_by_a_path(h: Hierarchy) -> None:
    assert h.closure().tolist() == sorted(map(list, ancestors_by_hand(h)))


@given(dags())
def test_reduction_keeps_the_order_with_no_edge_to_spare(h: Hierarchy) -> None:
    reduced = h.reduction()
    assert torch.equal(reduced.closure(), h.closure())
    assert set(map(tuple, reduced.edges.tolist())) <= set(map(tuple, h.edges.tolist()))
    for row in range(len(reduced.edges)):
        rest = torch.cat([reduced.edges[:row], reduced.edges[row + 1 :]])
        assert len(Hierarchy("h", h.labels, rest).closure()) < len(h.closure())


@given(dags())
def test_the_closure_of_a_closure_reduces_to_the_same_edges(h: Hierarchy) -> None:
    full = Hierarchy("h", h.labels, h.closure())
    expected = sorted(h.reduction().edges.tolist())
    assert sorted(full.reduction().edges.tolist()) == expected
    assert torch.equal(full.closure(), h.closure())


@given(dags())
def test_roots_leaves_and_depth(h: Hierarchy) -> None:
    children, parents = {c for c, _ in h.edges.tolist()}, {p for _, p in h.edges.tolist()}
    assert h.roots.tolist() == [v for v in range(len(h)) if v not in children]
    assert h.leaves.tolist() == [v for v in range(len(h)) if v not in parents]
    depth = dict.fromkeys(h.roots.tolist(), 0)
    for level in range(len(h)):
        for child, parent in h.edges.tolist():
            if depth.get(parent) == level:
                depth.setdefault(child, level + 1)
    assert h.depth.tolist() == [depth[v] for v in range(len(h))]


@given(dags(), st.data())
def test_hops_are_shortest_undirected_paths(h: Hierarchy, data: st.DataObject) -> None:
    n = len(h)
    far = torch.full((n, n), float("inf"))
    far.fill_diagonal_(0)
    for a, b in h.edges.tolist():
        far[a, b] = far[b, a] = 1
    for k in range(n):  # Floyd and Warshall
        far = torch.minimum(far, far[:, k : k + 1] + far[k : k + 1])
    sources = torch.tensor(data.draw(st.lists(st.integers(0, n - 1))), dtype=torch.int64)
    expected = far.where(far.isfinite(), torch.tensor(-1.0)).to(torch.int32)
    assert torch.equal(h.hops(sources), expected[sources])


def test_hops_of_more_sources_than_are_done_at_a_time() -> None:
    h = make(40, [(i + 1, i) for i in range(39)])
    nodes = torch.arange(40)
    assert torch.equal(h.hops(nodes), (nodes[:, None] - nodes).abs().int())


@given(dags(), st.data())
def test_subtree_is_the_node_and_what_lies_below(h: Hierarchy, data: st.DataObject) -> None:
    top = data.draw(st.integers(0, len(h) - 1))
    below = {c for c, a in ancestors_by_hand(h) if a == top} | {top}
    part = h.subtree(h.labels[top])
    assert set(part.labels) == {h.labels[v] for v in below}
    kept = {(h.labels[c], h.labels[p]) for c, p in h.edges.tolist() if {c, p} <= below}
    assert {(part.labels[c], part.labels[p]) for c, p in part.edges.tolist()} == kept
    assert [part.labels[root] for root in part.roots.tolist()] == [h.labels[top]]


@given(dags())
def test_spanning_tree_keeps_each_first_parent(h: Hierarchy) -> None:
    tree = h.spanning_tree()
    added = len(h.roots) > 1
    assert set(tree.labels) == set(h.labels) | ({"(root)"} if added else set())
    first: dict[int, int] = {}
    for child, parent in h.edges.tolist():
        first.setdefault(child, parent)
    for node in range(1, len(tree)):
        label, above = tree.labels[node], tree.labels[tree.parent[node]]
        v = h.labels.index(label)
        assert above == (h.labels[first[v]] if v in first else "(root)")


def test_the_added_root_is_no_ones_label() -> None:
    h = Hierarchy("h", ("(root)", "b"), torch.empty(0, 2, dtype=torch.int64))
    assert h.spanning_tree().labels == ("(root)'", "(root)", "b")


def test_is_tree() -> None:
    assert make(3, [(1, 0), (2, 0)]).is_tree
    assert make(1, []).is_tree
    assert not make(3, [(1, 0)]).is_tree  # two roots
    assert not make(3, [(1, 0), (2, 0), (2, 1)]).is_tree
    assert not make(4, [(1, 0), (2, 0), (2, 1)]).is_tree  # edges as many as in a tree


def test_digest_tells_labels_and_edges_apart() -> None:
    edges = torch.tensor([[1, 0]])
    base = Hierarchy("h", ("a", "b"), edges).digest()
    assert Hierarchy("other name", ("a", "b"), edges.int()).digest() == base
    others = [
        Hierarchy("h", ("b", "a"), edges),
        Hierarchy("h", ("a", "b"), edges.flip(1)),
        Hierarchy("h", ("a", "b", "c"), edges),
        Hierarchy("h", ("a1", "b"), edges),
        Hierarchy("h", ("a", "1b"), edges),
    ]
    assert len({base, *(h.digest() for h in others)}) == 6


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, 3)], r"edge 0 is \(0, 3\), but nodes are numbered 0..2"),
        ([(1, 0), (-1, 0)], r"edge 1 is \(-1, 0\)"),
        ([(1, 1)], "'n1' is its own parent"),
        ([(1, 0), (2, 0), (1, 0)], "edges 0 and 2 are the same, 'n1' -> 'n0'"),
        ([(1, 2), (2, 1)], "cycle: 'n1' -> 'n2' -> 'n1'"),
        ([(0, 1), (1, 2), (2, 1)], "cycle: 'n1' -> 'n2' -> 'n1'"),
    ],
)
def test_bad_edges_are_named(rows: Rows, message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        make(3, rows)


def test_a_long_cycle_is_shortened() -> None:
    with pytest.raises(HierarchyError, match=r"'n4' -> \.\.\. \(95 more\) -> 'n0'"):
        make(100, [(i, (i + 1) % 100) for i in range(100)])


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), unique=True))
def test_a_cycle_is_found_where_there_is_one(rows: Rows) -> None:
    rows = [row for row in rows if row[0] != row[1]]
    edges = torch.tensor(rows, dtype=torch.int64).reshape(-1, 2).numpy()
    cycle = Topology.of(edges, 8).cycle
    above = set(rows)
    for _ in range(8):
        above |= {(a, d) for a, b in above for c, d in above if b == c}
    assert (cycle is not None) == any(a == b for a, b in above)
    if cycle is not None:
        steps = [rows[row] for row in cycle]
        assert [parent for _, parent in steps] == [child for child, _ in [*steps[1:], steps[0]]]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ((), "at least one node"),
        (("a", ""), "label of node 1 is empty"),
        (("a", "b", "a"), "nodes 0 and 2 have the same label 'a'"),
        (("a", "\ud800"), "half a character"),
        (("a", "b\0"), "NUL"),
    ],
)
def test_bad_labels_are_named(labels: tuple[str, ...], message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        Hierarchy("h", labels, torch.empty(0, 2, dtype=torch.int64))


def test_wrong_kinds_of_arguments() -> None:
    with pytest.raises(TypeError, match="got 3 for node 1"):
        Hierarchy("h", ("a", 3), torch.empty(0, 2, dtype=torch.int64))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="edges must be a tensor, got list"):
        Hierarchy("h", ("a",), [])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="integers"):
        Hierarchy("h", ("a",), torch.empty(0, 2))
    with pytest.raises(HierarchyError, match=r"shape \(m, 2\)"):
        Hierarchy("h", ("a",), torch.empty(0, 3, dtype=torch.int64))
    h = make(2, [(1, 0)])
    with pytest.raises(ValueError, match=r"sources must lie in 0\.\.1, got 0\.\.2"):
        h.hops(torch.tensor([0, 2]))
    with pytest.raises(ValueError, match="vector of node numbers"):
        h.hops(torch.tensor([[0]]))


def test_a_missing_label_suggests_others() -> None:
    h = Hierarchy("h", ("dog.n.01", "hot_dog.n.01", "cat.n.01"), torch.tensor([[1, 0]]))
    with pytest.raises(HierarchyError, match=r"no node labelled 'dog'; did you mean 'dog.n.01', "):
        h.subtree("dog")
    with pytest.raises(HierarchyError, match=r"did you mean 'cat.n.01'"):
        h.index("catt.n.01")
    with pytest.raises(HierarchyError, match=r"first labels are 'dog.n.01'"):
        h.index("xyz")
    assert h.index("cat.n.01") == 2


def test_near_matches_among_very_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEAR_MATCH_POOL", 3)
    assert near_matches("Mamalia", ["Aves", "Mammalia", "Reptilia", "Amalia"]) == ["Mammalia"]


def test_too_large_a_closure_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLOSURE_PAIRS", 3)
    assert len(make(3, [(1, 0), (2, 1)]).closure()) == 3
    with pytest.raises(HierarchyError, match="--root LABEL"):
        make(4, [(1, 0), (2, 1), (3, 2)]).closure()
    wide = make(5, [(4, 0), (4, 1), (4, 2), (4, 3)])  # its longest way up is short
    with pytest.raises(HierarchyError, match="--root LABEL"):
        wide.closure()


def test_a_reduction_has_no_edge_that_others_imply() -> None:
    rows = [(i, j) for i in range(20) for j in range(max(0, i - 3), i)]
    assert len(make(20, rows).reduction().edges) == 19


def test_many_paths_do_not_multiply_the_work() -> None:
    # 2^300 paths lead from the last node to the first.
    rows = [(i + 1, i) for i in range(300)] + [(i + 2, i) for i in range(299)]
    start = time.perf_counter()
    assert len(make(301, rows).closure()) == 301 * 300 // 2
    assert time.perf_counter() - start < 5


@settings(max_examples=20)
@given(st.permutations(range(6)))
def test_a_chain_in_any_numbering(order: list[int]) -> None:
    h = make(6, [(order[i + 1], order[i]) for i in range(5)])
    assert len(h.closure()) == 15
    assert h.depth[torch.tensor(order)].tolist() == list(range(6))


def test_a_chain_of_many_nodes_needs_no_recursion() -> None:
    n = 50_000
    h = make(n, [(i + 1, i) for i in range(n - 1)])
    assert int(h.depth.max()) == n - 1
    assert len(h.spanning_tree()) == n
    assert len(h.subtree("n10")) == n - 10


def test_errors_quote_only_the_beginning_of_labels() -> None:
    long = tuple(f"{i}{'x' * 30_000}" for i in range(9))
    cycle = torch.tensor([(i, (i + 1) % 9) for i in range(9)])
    with pytest.raises(HierarchyError, match="form a cycle") as caught:
        Hierarchy("h", long, cycle)
    assert len(str(caught.value)) < 1000
    with pytest.raises(HierarchyError, match="the first labels are") as caught:
        Hierarchy("h", long, cycle[:-1]).index("y" * 30_000)
    assert len(str(caught.value)) < 1000
