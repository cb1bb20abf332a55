"""Ranks of a model in both directions, by brute force, and the metrics made of them."""

from __future__ import annotations

import pytest
import torch

from beltrami.models.knowledge_graph import (
    evaluate,
    rank_triples,
    relation_metrics,
)
from tests.models.knowledge_graph.graphs import random_model, tree_graph


@pytest.mark.parametrize("variant", ["RotE", "AttH"])
def test_both_directions_are_filtered_by_all_splits(variant: str) -> None:
    graph = tree_graph(4)
    model = random_model(variant, entities=len(graph.entities), relations=1)
    ranks = rank_triples(model, graph.test, graph.known_tails, batch_size=3)
    truth = {tuple(row) for s in ("train", "valid", "test") for row in graph.split(s).tolist()}
    for (h, r, t), found in zip(graph.test.tolist(), ranks.tolist(), strict=True):
        for direction, own in ((0, t), (1, h)):
            start = torch.tensor([(h, t)[direction]])
            scores = model.scores(start, torch.tensor([r + direction]))[0]
            rivals = [
                e
                for e in range(len(graph.entities))
                if e != own and ((h, r, e) if direction == 0 else (e, r, t)) not in truth
            ]
            better = sum(bool(scores[e] > scores[own]) for e in rivals)
            assert found[direction] == 1 + better
    metrics = evaluate(model, graph.test, graph.known_tails)
    assert metrics["mrr"] == pytest.approx(float(ranks.reciprocal().mean()))
    assert metrics["tail_mrr"] == pytest.approx(float(ranks[:, 0].reciprocal().mean()))
    by_relation = relation_metrics(model, graph.test, graph.known_tails)
    assert by_relation[0]["mrr"] == pytest.approx(metrics["mrr"])


def test_evaluation_leaves_the_mode_alone() -> None:
    graph = tree_graph(4)
    model = random_model("RotH", entities=len(graph.entities), relations=1, dropout=0.5)
    evaluate(model, graph.test, graph.known_tails)
    assert model.training
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        rank_triples(model, graph.test, graph.known_tails, batch_size=0)


def test_a_model_that_knows_nothing_gets_no_credit_for_ties() -> None:
    graph = tree_graph(4)
    model = random_model("RotH", entities=len(graph.entities), relations=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert evaluate(model, graph.test, graph.known_tails)["hits@1"] == 0


def test_not_a_number_is_an_error_and_not_a_first_place() -> None:
    graph = tree_graph(4)
    model = random_model("RotE", entities=len(graph.entities), relations=1)
    with torch.no_grad():
        model.bias[3] = torch.nan
    with pytest.raises(ValueError, match="ranks must be finite"):
        evaluate(model, graph.test, graph.known_tails)
