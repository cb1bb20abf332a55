"""The sampled loss and the penalty, against their formulas."""

from __future__ import annotations

import pytest
import torch

from beltrami.models.knowledge_graph import cubic_penalty, sampled_loss
from tests.models.knowledge_graph.graphs import random_model, random_triples


@pytest.mark.parametrize("corrupt", ["tail", "both"])
def test_the_sampled_loss_is_the_logistic_loss_of_its_draws(corrupt: str) -> None:
    model, triples = random_model("RotH"), random_triples(5)
    loss = sampled_loss(
        model,
        triples,
        negatives=4,
        corrupt=corrupt,  # type: ignore[arg-type]
        generator=torch.Generator().manual_seed(3),
    )
    draws = torch.Generator().manual_seed(3)
    tails = torch.randint(model.config.entities, (5, 4), generator=draws)
    heads = triples[:, :1].expand(5, 4)
    if corrupt == "both":
        heads = torch.randint(model.config.entities, (5, 4), generator=draws)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(5):
        total -= torch.log(torch.sigmoid(model(triples[i : i + 1]))).sum()
        for j in range(4):
            false = torch.stack([heads[i, j], triples[i, 1], tails[i, j]])
            total -= torch.log(1 - torch.sigmoid(model(false.unsqueeze(0)))).sum()
    torch.testing.assert_close(loss, total / 25)


def test_equal_generators_give_equal_losses() -> None:
    model, triples = random_model("RotH"), random_triples(5)
    a, b, c = (
        sampled_loss(model, triples, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_the_cubic_penalty() -> None:
    model, triples = random_model("RotE"), random_triples(5)
    expected = sum(
        model.entity[i].abs().pow(3).sum() for row in triples.tolist() for i in (row[0], row[2])
    )
    torch.testing.assert_close(cubic_penalty(model, triples), expected / 5)


def test_bad_arguments() -> None:
    model, triples = random_model("RotH"), random_triples(5)
    with pytest.raises(ValueError, match="negatives must be at least 1, got 0"):
        sampled_loss(model, triples, negatives=0)
    with pytest.raises(ValueError, match='corrupt must be "tail" or "both"'):
        sampled_loss(model, triples, corrupt="head")  # type: ignore[arg-type]
