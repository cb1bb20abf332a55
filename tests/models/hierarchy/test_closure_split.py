"""The split of a closure: nothing is shown twice or lost, and false pairs are false."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from beltrami.data.hierarchy import Hierarchy
from beltrami.models.hierarchy import corrupt_pairs, split_closure
from tests.models.hierarchy.trees import diamonds


def binary_hierarchy(depth: int) -> Hierarchy:
    n = 2 ** (depth + 1) - 1
    edges = torch.tensor([(node, (node - 1) // 2) for node in range(1, n)])
    return Hierarchy("binary", tuple(map(str, range(n))), edges)


def as_set(pairs: Tensor) -> set[tuple[int, int]]:
    found = {(a, b) for a, b in pairs.tolist()}
    assert len(found) == len(pairs)  # none twice
    return found


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("keep_top", [False, True])
def test_split_of_a_tree(share: float, keep_top: bool) -> None:
    tree = binary_hierarchy(6)
    split = split_closure(tree, share=share, seed=3, keep_top=keep_top)
    closure, basic = as_set(tree.closure()), as_set(tree.edges)
    if not keep_top:
        closure = {pair for pair in closure if pair[1] != 0}
        basic = {pair for pair in basic if pair[1] != 0}
    train, valid, test = as_set(split.train), as_set(split.valid), as_set(split.test)
    rest = len(closure) - len(basic)
    assert basic <= train <= closure
    assert valid | test <= closure - basic
    assert not train & valid
    assert not train & test
    assert not valid & test
    assert len(valid) == len(test) == round(0.05 * rest)
    assert len(train) - len(basic) == pytest.approx(share * rest, abs=1)
    assert split.nodes == len(tree)


def test_false_pairs_beside_the_true_ones() -> None:
    tree = binary_hierarchy(6)
    split = split_closure(tree, share=0.1, seed=0)
    closure = set(map(tuple, tree.closure().tolist()))
    for true, false in ((split.valid, split.valid_false), (split.test, split.test_false)):
        assert len(false) == 10 * len(true)
        assert not closure & set(map(tuple, false.tolist()))
        assert bool((false[:, 0] != false[:, 1]).all())
        grouped = false.view(len(true), 10, 2)
        assert torch.equal(grouped[:, :5, 0], true[:, :1].expand(-1, 5))
        assert torch.equal(grouped[:, 5:, 1], true[:, 1:].expand(-1, 5))
        assert bool((false[:, 1] != 0).all())  # the top is left out here, too


def test_basic_pairs_are_those_of_the_reduction() -> None:
    """A redundant edge of the file is not a basic pair."""
    tree = binary_hierarchy(5)
    extra = torch.cat([tree.edges, torch.tensor([[60, 2], [40, 1]])])
    a = split_closure(Hierarchy("more", tree.labels, extra), share=0.0, seed=1)
    b = split_closure(tree, share=0.0, seed=1)
    assert as_set(a.train) == as_set(b.train)


def test_same_seed_same_questions() -> None:
    dag = binary_hierarchy(6)
    a, b = (split_closure(dag, share=share, seed=5) for share in (0.1, 0.5))
    for name in ("valid", "test", "valid_false", "test_false"):
        assert torch.equal(getattr(a, name), getattr(b, name))
    assert as_set(a.train) < as_set(b.train)
    other = split_closure(dag, share=0.1, seed=6)
    assert not torch.equal(a.test, other.test)


def test_graphs_with_several_parents() -> None:
    dag = diamonds()
    split = split_closure(dag, share=0.5, seed=0, held_out=0.1)
    assert as_set(split.train) >= {(a, b) for a, b in dag.reduction().edges.tolist() if b != 0}


@settings(max_examples=30)
@given(st.integers(2, 8), st.data())
def test_corruption_is_uniform_over_what_is_left(n: int, data: st.DataObject) -> None:
    """Small cases, where almost everything is known: what is drawn is false, if anything is."""
    every = [(a, b) for a in range(n) for b in range(n) if a != b]
    known = sorted(data.draw(st.sets(st.sampled_from(every), min_size=1)))
    false = set(every) - set(known)
    pair = data.draw(st.sampled_from(known))
    beside = {p for p in false if p[0] == pair[0]} | {p for p in false if p[1] == pair[1]}
    pairs, table = torch.tensor([pair]), torch.tensor(known)
    if not beside:
        with pytest.raises(ValueError, match="larger hierarchy"):
            corrupt_pairs(pairs, table, n, count=2)
        return
    drawn = corrupt_pairs(pairs, table, n, count=60)[0]
    assert set(map(tuple, drawn.tolist())) <= beside
    if len(beside) <= 3:
        assert set(map(tuple, drawn.tolist())) == beside


def test_no_pairs_to_corrupt() -> None:
    none = torch.empty(0, 2, dtype=torch.int64)
    assert corrupt_pairs(none, none, 4, count=3).shape == (0, 6, 2)


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"share": 0.95}, ValueError, "share"),
        ({"share": -0.1}, ValueError, "share"),
        ({"share": "0"}, TypeError, "share"),
        ({"held_out": 0.5}, ValueError, "held_out"),
        ({"corruptions": 0}, ValueError, "corruptions"),
    ],
)
def test_bad_input(change: dict, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        split_closure(binary_hierarchy(4), **{"share": 0.1, "seed": 0} | change)


def test_too_shallow_to_hold_anything_out() -> None:
    flat = Hierarchy("flat", ("a", "b", "c"), torch.tensor([[1, 0], [2, 0]]))
    with pytest.raises(ValueError, match="deeper"):
        split_closure(flat, share=0.0, seed=0)
