"""Positives and negatives of a batch: against sets, one pair at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from beltrami.data import load_hierarchy
from beltrami.models.hierarchy.relation import Relation


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, int, Tensor, Tensor]:
    """Pairs in any order, the number of nodes, some nodes, and a pool of different ones."""
    count = draw(st.integers(2, 9))
    node = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(node, node), min_size=1, max_size=25, unique=True))
    nodes = draw(st.lists(node, max_size=6))
    pool = draw(st.lists(node, max_size=count, unique=True))
    return (
        torch.tensor(pairs),
        count,
        torch.tensor(nodes, dtype=torch.int64),
        torch.tensor(pool, dtype=torch.int64),
    )


@given(batches())
def test_positives_and_strangers_are_those_of_the_sets(
    batch: tuple[Tensor, int, Tensor, Tensor],
) -> None:
    pairs, count, nodes, pool = batch
    known = {tuple(pair) for pair in pairs.tolist()}
    relation = Relation(pairs, count)
    rows, positives, real = relation.positives(nodes)
    assert real.all()
    found = list(zip(rows.tolist(), positives.tolist(), strict=True))
    expected = [
        (i, v) for i, u in enumerate(nodes.tolist()) for v in range(count) if (u, v) in known
    ]
    assert sorted(found) == expected  # each once, those of a node together
    assert rows.tolist() == sorted(rows.tolist())
    negatives, counts = relation.negatives(nodes, rows, positives, real, pool)
    assert counts.tolist() == negatives.sum(1).tolist()
    assert negatives.dtype == torch.bool
    assert negatives.shape == (len(nodes), len(pool))
    assert negatives.tolist() == [
        [(u, n) not in known and u != n for n in pool.tolist()] for u in nodes.tolist()
    ]
    # Nothing of one pool is left when the next one comes.
    rest = torch.tensor([n for n in range(count) if n not in pool.tolist()], dtype=torch.int64)
    again, _ = relation.negatives(nodes, rows, positives, real, rest)
    assert again.tolist() == [
        [(u, n) not in known and u != n for n in rest.tolist()] for u in nodes.tolist()
    ]


@given(batches())
def test_sources_and_degree(batch: tuple[Tensor, int, Tensor, Tensor]) -> None:
    pairs, count, _, _ = batch
    relation = Relation(pairs, count)
    assert relation.sources.tolist() == sorted({u for u, _ in pairs.tolist()})
    ends = pairs.flatten().tolist()
    assert relation.degree.tolist() == [ends.count(n) for n in range(count)]
    assert relation.degree.dtype == torch.float64
    assert sorted(map(tuple, relation.pairs.tolist())) == sorted(map(tuple, pairs.tolist()))
    assert relation.pairs[:, 0].tolist() == sorted(pairs[:, 0].tolist())


def test_a_closure() -> None:
    hierarchy = load_hierarchy("wordnet-mammals")
    relation = Relation(hierarchy.closure(), len(hierarchy))
    assert len(relation.pairs) == 6540
    root = hierarchy.roots.item()
    assert root not in relation.sources
    assert len(relation.sources) == len(hierarchy) - 1
    assert relation.degree[root] == len(hierarchy) - 1
    everyone = torch.arange(len(hierarchy))
    rows, positives, real = relation.positives(everyone)
    assert torch.equal(torch.stack([rows, positives], dim=1), hierarchy.closure())
    negatives, _ = relation.negatives(everyone, rows, positives, real, everyone)
    assert (~negatives).sum() == 6540 + len(hierarchy)


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        (torch.empty(0, 2, dtype=torch.int64), r"pairs must be of shape \(p, 2\).*\(0, 2\)"),
        (torch.tensor([0, 1]), r"pairs must be of shape.*\(2,\)"),
        (torch.tensor([[0, 1, 2]]), r"pairs must be of shape.*\(1, 3\)"),
        (torch.tensor([[0, 3]]), "nodes 0 to 2, got 3"),
        (torch.tensor([[-1, 2]]), "nodes 0 to 2, got -1"),
        (torch.tensor([[0, 1], [2, 1], [0, 1]]), "once each"),
    ],
)
def test_bad_pairs(pairs: Tensor, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Relation(pairs, 3)
