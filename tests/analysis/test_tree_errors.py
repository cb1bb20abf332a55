"""Tree errors against sets and paths walked one by one."""

from __future__ import annotations

import importlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.analysis import TreeErrors, class_tables, set_scores, tree_errors
from beltrami.data.hierarchy import Hierarchy

#        animal
#       /      \
#     dog      cat
#    /   \       \
# husky  collie  lion
PETS = Hierarchy(
    "pets",
    ("animal", "dog", "cat", "husky", "collie", "lion"),
    torch.tensor([[1, 0], [2, 0], [3, 1], [4, 1], [5, 2]]),
)
HUSKY, COLLIE, LION = 0, 1, 2  # positions among the leaves


module = importlib.import_module("beltrami.analysis.tree_errors")  # the package has the function


def judge(predicted: list[int], target: list[int], **options) -> TreeErrors:
    tables = class_tables(PETS)
    return tree_errors(tables, torch.tensor(predicted), torch.tensor(target), **options)


def test_right_answers_are_perfect() -> None:
    for options in ({}, {"include_self": False}, {"average": "classes"}):
        found = judge([HUSKY, LION, LION], [HUSKY, LION, LION], **options)
        assert found.accuracy == found.precision == found.recall == found.f1 == found.jaccard == 1
        assert found.micro_precision == found.micro_recall == found.micro_f1 == 1
        assert found.tie == found.lca_height == found.lca_steps == 0
        assert found.lca_published == 1


def test_a_wrong_sibling_by_hand_and_as_published() -> None:
    found = judge([HUSKY], [COLLIE])
    assert (found.tie, found.lca_height, found.lca_steps) == (2, 1, 1)
    assert found.precision == found.recall == found.f1 == pytest.approx(2 / 3)
    assert found.jaccard == pytest.approx(2 / 4)
    # the published variant cannot tell it from a right answer
    without = judge([HUSKY], [COLLIE], include_self=False)
    assert without.precision == without.recall == without.f1 == without.jaccard == 1
    assert found.lca_published == without.lca_published == 1


def test_another_branch_by_hand() -> None:
    found = judge([HUSKY], [LION])
    assert (found.tie, found.lca_height, found.lca_steps, found.lca_published) == (4, 2, 2, 2)
    assert found.f1 == pytest.approx(1 / 3)
    assert judge([HUSKY], [LION], include_self=False).jaccard == pytest.approx(1 / 3)


def test_inner_classes_by_hand() -> None:
    tables = class_tables(PETS, torch.tensor([0, 1, 3]))  # animal, dog, husky
    found = tree_errors(tables, torch.tensor([1]), torch.tensor([2]))  # dog for husky
    assert (found.precision, found.recall) == (1, pytest.approx(2 / 3))
    assert (found.tie, found.lca_steps, found.lca_height) == (1, 0, 1)
    # the root alone has no ancestors: its set is empty without itself
    root = tree_errors(tables, torch.tensor([0]), torch.tensor([2]), include_self=False)
    assert (root.precision, root.recall, root.f1, root.jaccard) == (0, 0, 0, 0)
    same = tree_errors(tables, torch.tensor([0]), torch.tensor([0]), include_self=False)
    assert (same.precision, same.recall, same.f1, same.jaccard) == (1, 1, 1, 1)


def test_averages_over_samples_and_over_classes() -> None:
    predicted, target = [HUSKY, HUSKY, HUSKY, COLLIE], [HUSKY, HUSKY, HUSKY, LION]
    assert judge(predicted, target).tie == pytest.approx(4 / 4)
    by_class = judge(predicted, target, average="classes")
    assert by_class.tie == pytest.approx((0 + 4) / 2)
    assert by_class.accuracy == pytest.approx(1 / 2)
    assert by_class.f1 == pytest.approx((1 + 1 / 3) / 2)


@st.composite
def dags(draw: st.DrawFn) -> Hierarchy:
    """One root; every other node has one to three parents among those before it."""
    n = draw(st.integers(2, 9))
    edges = [
        (child, parent)
        for child in range(1, n)
        for parent in draw(st.sets(st.integers(0, child - 1), min_size=1, max_size=3))
    ]
    return Hierarchy("dag", tuple(f"n{i}" for i in range(n)), torch.tensor(edges))


def ancestors(graph: Hierarchy, node: int) -> set[int]:
    parents = [p for c, p in graph.edges.tolist() if c == node]
    return set(parents).union(*(ancestors(graph, p) for p in parents))


def height(graph: Hierarchy, node: int) -> int:
    return max((1 + height(graph, c) for c, p in graph.edges.tolist() if p == node), default=0)


def shortest(graph: Hierarchy, a: int, b: int) -> int:
    seen, steps = {a}, 0
    while b not in seen:
        near = [e for e in graph.edges.tolist() if set(e) & seen]
        seen = seen.union(*near)
        steps += 1
    return steps


@settings(max_examples=50)
@given(dags(), st.data())
def test_graphs_agree_with_walking_them(graph: Hierarchy, data: st.DataObject) -> None:
    n = len(graph)
    classes = data.draw(st.permutations(range(n)).map(lambda p: p[: max(2, n // 2)]))
    tables = class_tables(graph, torch.tensor(classes))
    position = st.integers(0, len(classes) - 1)
    samples = data.draw(st.lists(st.tuples(position, position), min_size=1, max_size=5))
    p, t = torch.tensor(samples).t()
    for include_self in (True, False):
        found = tree_errors(tables, p, t, include_self=include_self)
        sets = [
            [ancestors(graph, classes[i]) | ({classes[i]} if include_self else set()) for i in side]
            for side in (p.tolist(), t.tolist())
        ]
        rows = torch.zeros(2, len(samples), n, dtype=torch.bool)
        for side, members in enumerate(sets):
            for i, nodes in enumerate(members):
                rows[side, i, list(nodes)] = True
        for name, value in set_scores(rows[0], rows[1]).as_dict().items():
            assert getattr(found, name) == pytest.approx(value, abs=1e-12), name
        if not include_self:
            published = [len(a) - len(a & b) + 1 for a, b in zip(*sets, strict=True)]
            assert found.lca_published == pytest.approx(sum(published) / len(samples))
            continue
        lowest = [min(height(graph, w) for w in a & b) for a, b in zip(*sets, strict=True)]
        assert found.lca_height == pytest.approx(sum(lowest) / len(samples))
        steps = [len(a) - len(a & b) for a, b in zip(*sets, strict=True)]
        assert found.lca_steps == pytest.approx(sum(steps) / len(samples))
        ties = [shortest(graph, classes[i], classes[j]) for i, j in samples]
        assert found.tie == pytest.approx(sum(ties) / len(samples))


def test_blocks_of_nodes_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = class_tables(PETS, torch.arange(6))
    monkeypatch.setattr(module, "_NODES_AT_ONCE", 2)
    after = class_tables(PETS, torch.arange(6))
    for name in ("hops", "common", "lca_height", "above"):
        assert torch.equal(getattr(before, name), getattr(after, name)), name


def test_all_fields_are_in_the_dict() -> None:
    assert set(judge([0], [1]).as_dict()) == {
        "accuracy", "tie", "lca_height", "lca_steps", "lca_published", "precision", "recall", "f1",
        "jaccard", "micro_precision", "micro_recall", "micro_f1",
    }  # fmt: skip


def test_bad_input_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="predicted must number classes from 0 to 2, got 3"):
        judge([3], [0])
    with pytest.raises(ValueError, match="predicted and target must have the same shape"):
        judge([1, 2], [0])
    with pytest.raises(ValueError, match="are empty"):
        tree_errors(class_tables(PETS), torch.tensor([]).long(), torch.tensor([]).long())
    with pytest.raises(ValueError, match=r"average must be one of .*; got 'macro'"):
        judge([1], [0], average="macro")
    with pytest.raises(ValueError, match="a node more than once"):
        class_tables(PETS, torch.tensor([1, 1]))
    with pytest.raises(ValueError, match="classes must number nodes from 0 to 5, got 6"):
        class_tables(PETS, torch.tensor([6]))
    two = Hierarchy("two", ("a", "b", "c", "d"), torch.tensor([[2, 0], [3, 1]]))
    with pytest.raises(ValueError, match="'c' and 'd' of two have no common ancestor"):
        class_tables(two)
    monkeypatch.setattr(module, "MAX_CLASSES", 2)
    with pytest.raises(ValueError, match="classes must be 1 to 2 nodes, got 3"):
        class_tables(PETS)
