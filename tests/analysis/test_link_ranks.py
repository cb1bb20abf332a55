from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.analysis import filtered_ranks, mrr_hits
from tests.gpu import no_waiting


@settings(max_examples=50)
@given(st.integers(1, 4), st.integers(1, 6), st.data())
def test_ranks_agree_with_counting(queries: int, entities: int, data: st.DataObject) -> None:
    size = queries * entities
    values = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    scores = torch.tensor(values, dtype=torch.float32).view(queries, entities)
    entity = st.integers(0, entities - 1)
    targets = torch.tensor(data.draw(st.lists(entity, min_size=queries, max_size=queries)))
    known = sorted(data.draw(st.sets(st.tuples(st.integers(0, queries - 1), entity), max_size=6)))
    mask = torch.zeros(queries, entities, dtype=torch.bool)
    for q, e in known:
        mask[q, e] = True
    before = mask.clone()
    expected = {"optimistic": [], "pessimistic": [], "realistic": []}
    for q, target in enumerate(targets.tolist()):
        rivals = [scores[q, e] for e in range(entities) if e != target and (q, e) not in known]
        first = 1 + sum(r > scores[q, target] for r in rivals)
        last = 1 + sum(r >= scores[q, target] for r in rivals)
        expected["optimistic"].append(float(first))
        expected["pessimistic"].append(float(last))
        expected["realistic"].append(float(first + last) / 2)
    for ties, ranks in expected.items():
        assert filtered_ranks(scores, targets, mask, ties=ties).tolist() == ranks
        pairs = torch.tensor(known).reshape(-1, 2).long()
        assert filtered_ranks(scores, targets, pairs, ties=ties).tolist() == ranks
    assert torch.equal(mask, before)
    nothing = torch.zeros_like(mask)
    assert torch.equal(filtered_ranks(scores, targets), filtered_ranks(scores, targets, nothing))


def test_scores_that_are_all_equal_rank_in_the_middle() -> None:
    # the mean rank of a random order, so that constant scores gain nothing
    assert filtered_ranks(torch.zeros(1, 9), torch.tensor([4])).item() == 5


def test_mrr_and_hits_by_hand() -> None:
    found = mrr_hits(torch.tensor([1.0, 2.0, 4.0, 20.0]))
    assert found.mrr == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 20) / 4)
    assert found.mean_rank == pytest.approx(27 / 4)
    assert found.hits == {1: 1 / 4, 3: 2 / 4, 10: 3 / 4}
    assert set(found.as_dict()) == {"mrr", "mean_rank", "hits@1", "hits@3", "hits@10"}
    assert mrr_hits(torch.tensor([1, 5]), ks=(5,)).as_dict()["hits@5"] == 1
    assert mrr_hits(torch.tensor([1.5])).hits[1] == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_named(value: float) -> None:
    scores = torch.rand(3, 4)
    scores[1, 2] = value
    ranks = filtered_ranks(scores, torch.tensor([0, 0, 0]))
    assert ranks.isnan().tolist() == [False, True, False]
    with pytest.raises(ValueError, match="nan at index 1; filtered_ranks gives NaN where scores"):
        mrr_hits(ranks)


def test_bad_input_is_named() -> None:
    scores, targets = torch.rand(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="scores must be floating point"):
        filtered_ranks(targets, targets)
    with pytest.raises(ValueError, match="one entry a query, 2, got 1"):
        filtered_ranks(scores, targets[:1])
    with pytest.raises(ValueError, match="known must have the shape of scores"):
        filtered_ranks(scores, targets, torch.zeros(2, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"rows \(query, entity\)"):
        filtered_ranks(scores, targets, torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="ties must be one of"):
        filtered_ranks(scores, targets, ties="best")
    with pytest.raises(ValueError, match="not empty"):
        mrr_hits(torch.empty(0))
    with pytest.raises(ValueError, match=r"at least 1, got 0\.0 at index 1"):
        mrr_hits(torch.tensor([1.0, 0.0]))
    with pytest.raises(ValueError, match="ks must be at least 1"):
        mrr_hits(torch.tensor([1.0]), ks=(0,))


@pytest.mark.gpu
def test_a_gpu_finds_the_same_and_is_not_waited_for() -> None:
    scores = torch.randint(5, (20, 30)).float()
    targets, known = torch.randint(30, (20,)), torch.stack([torch.arange(20), torch.arange(20)], 1)
    on_gpu = scores.cuda(), targets.cuda(), known.cuda()
    with no_waiting():
        ranks = filtered_ranks(*on_gpu)
    assert torch.equal(ranks.cpu(), filtered_ranks(scores, targets, known))
