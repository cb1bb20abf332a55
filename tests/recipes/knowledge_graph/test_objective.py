"""A pool of all entities gives the expected loss of sampling, exactly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.models.knowledge_graph import (
    VARIANTS,
    KnowledgeGraphConfig,
    KnowledgeGraphModel,
    sampled_loss,
)
from beltrami.recipes.knowledge_graph.objective import pooled_losses

N, R = 9, 3


@pytest.fixture(params=sorted(VARIANTS))
def model(request: pytest.FixtureRequest) -> KnowledgeGraphModel:
    torch.manual_seed(0)
    config = KnowledgeGraphConfig(N, R, variant=request.param, dim=4, init_scale=0.5)
    model = KnowledgeGraphModel(config).double()
    torch.nn.init.normal_(model.bias)
    return model


def batch(size: int = 6) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(1)
    ends = torch.randint(N, (size, 3), generator=draws)
    relations = torch.randint(2 * R, (size,), generator=draws)
    return torch.stack([ends[:, 0], relations, ends[:, 1]], 1), ends[:, 2]


def plain(model: KnowledgeGraphModel, triples: Tensor, heads: Tensor, negatives: float) -> Tensor:
    """The same pair by pair."""
    everything = torch.arange(N).expand(len(triples), N)
    wrong = model.triple_scores(heads, triples[:, 1], everything)
    right = model.triple_scores(triples[:, 0], triples[:, 1], triples[:, 2:])
    return F.softplus(-right[:, 0]) + negatives * F.softplus(wrong).mean(1)


@pytest.mark.parametrize("own", [True, False], ids=["tails", "pairs"])
def test_values_and_gradients(model: KnowledgeGraphModel, own: bool) -> None:
    triples, heads = batch()
    starts = triples[:, 0] if own else heads
    found = pooled_losses(model, triples, None if own else heads, torch.arange(N), negatives=7.0)
    expected = plain(model, triples, starts, 7.0)
    torch.testing.assert_close(found, expected)
    parameters = list(model.parameters())
    for one, other in zip(
        torch.autograd.grad(found.sum(), parameters),
        torch.autograd.grad(expected.sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_it_is_what_sampling_gives_on_average(model: KnowledgeGraphModel) -> None:
    triples, _ = batch(2)
    draws = torch.Generator().manual_seed(2)
    sampled = sampled_loss(model, triples, negatives=20_000, corrupt="tail", generator=draws)
    pooled = pooled_losses(model, triples, None, torch.arange(N), negatives=20_000.0).mean()
    # The published loss is a mean over true and random triples.
    torch.testing.assert_close(pooled / 20_001, sampled, rtol=0.03, atol=0)


def test_processes_may_share_a_batch(model: KnowledgeGraphModel) -> None:
    triples, heads = batch(5)
    pool = torch.arange(4)
    whole = pooled_losses(model, triples, heads, pool, negatives=3.0)
    for rank in range(2):
        part = pooled_losses(model, triples[rank::2], heads[rank::2], pool, negatives=3.0)
        torch.testing.assert_close(part, whole[rank::2])
