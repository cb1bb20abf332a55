"""All scores at once: against the distances pair by pair, in value, gradient and error bound."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.geometry import lorentz
from beltrami.models.knowledge_graph import scoring
from beltrami.models.knowledge_graph.scoring import SCORE_ERROR

B, N, D = 7, 11, 4


def inputs(
    relations: int, *, radius: float = 1.0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(query, c, relation, entity, bias); the first query is the first entity's point."""
    c = torch.rand(relations, 1, dtype=dtype) * 2 + 0.3
    relation = torch.randint(relations, (B,))
    entity = F.normalize(torch.randn(N, D, dtype=dtype), dim=-1)
    entity = entity * radius * torch.rand(N, 1, dtype=dtype) / c.max().sqrt()
    start = torch.cat([entity[:1], torch.randn(B - 1, D, dtype=dtype) * radius / 4])
    query = lorentz.exp0(start, c[relation])
    return query, c, relation, entity, torch.randn(N, dtype=dtype)


def reference(query: Tensor, c: Tensor, relation: Tensor, entity: Tensor, bias: Tensor) -> Tensor:
    """b_v − d², pair by pair."""
    of_query = c[relation].unsqueeze(1)
    return bias - lorentz.dist_sq(query.unsqueeze(1), lorentz.exp0(entity, of_query), of_query)


# One table a relation, and (more relations than queries) one a query.
@pytest.mark.parametrize("relations", [3, 20])
def test_scores_are_biased_squared_distances(relations: int) -> None:
    args = inputs(relations)
    terms, rows = scoring.score_terms(*args)
    assert (rows is None) == (relations > B)
    torch.testing.assert_close(scoring.all_scores(terms, rows), reference(*args))


@pytest.mark.parametrize("relations", [3, 20])
@pytest.mark.parametrize("block", [None, 2 * N])
def test_gradients(relations: int, block: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if block:
        monkeypatch.setattr(scoring, "_CPU_ELEMENTS", block)
    query, c, relation, entity, bias = inputs(relations)
    # Not at d = 0, where the reference's own gradient is a limit.
    query = query + 0.1
    leaves = [t.requires_grad_() for t in (query, c, entity, bias)]
    g = torch.randn(B, N, dtype=torch.float64)
    ours = scoring.all_scores(*scoring.score_terms(query, c, relation, entity, bias))
    theirs = reference(query, c, relation, entity, bias)
    for a, b in zip(
        torch.autograd.grad(ours, leaves, g), torch.autograd.grad(theirs, leaves, g), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("relations", [3, 20])
@pytest.mark.parametrize("block", [None, 2 * N])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_softmax_loss_is_cross_entropy(
    relations: int, block: int | None, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if block:
        monkeypatch.setattr(scoring, "_CPU_ELEMENTS", block)
    query, c, relation, entity, bias = inputs(relations)
    leaves = [t.requires_grad_() for t in (query, c, entity, bias)]
    target = torch.randint(N, (B,))
    terms, rows = scoring.score_terms(query, c, relation, entity, bias)
    ours = scoring.softmax_loss(terms, rows, target, smoothing=smoothing)
    scores = reference(query, c, relation, entity, bias)
    theirs = F.cross_entropy(scores, target, label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(
        torch.autograd.grad(3 * ours, leaves), torch.autograd.grad(3 * theirs, leaves), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("radius", [1e-3, 0.1, 1.0, 3.0, 6.0])
def test_float32_keeps_the_stated_error_bound(radius: float) -> None:
    """Against float64 from the same float32 numbers, near pairs included."""
    for _ in range(20):
        query, c, relation, entity, bias = inputs(3, radius=radius, dtype=torch.float32)
        bias = torch.zeros_like(bias)
        wide = [t.double() for t in (query, c, entity, bias)]
        exact = reference(wide[0], wide[1], relation, wide[2], wide[3])
        ours = scoring.all_scores(*scoring.score_terms(query, c, relation, entity, bias))
        of_query = wide[1][relation]
        far_query = of_query.sqrt() * lorentz.time(wide[0], of_query, keepdim=True)
        far_entity = torch.cosh(of_query.sqrt() * wide[2].norm(dim=-1))
        bound = SCORE_ERROR * torch.finfo(torch.float32).eps * far_query * far_entity / of_query
        assert bool(((ours - exact).abs() <= bound).all())


def test_tiny_vectors_keep_relative_digits() -> None:
    """At the start of training, with vectors of 1e-3, scores are 1e-6 and still mean something."""
    query, c, relation, entity, bias = inputs(3, radius=1e-3, dtype=torch.float32)
    bias = torch.zeros_like(bias)
    exact = reference(query.double(), c.double(), relation, entity.double(), bias.double())
    ours = scoring.all_scores(*scoring.score_terms(query, c, relation, entity, bias))
    assert float((ours - exact).abs().max() / exact.abs().max()) < 1e-5


def test_coincident_points_and_the_origin_have_finite_gradients() -> None:
    entity = torch.zeros(2, D, requires_grad=True)
    c = torch.ones(2, 1, requires_grad=True)
    query = torch.zeros(3, D, requires_grad=True)
    terms, rows = scoring.score_terms(
        query, c, torch.tensor([0, 1, 1]), entity, torch.zeros(2, requires_grad=True)
    )
    scoring.softmax_loss(terms, rows, torch.tensor([0, 1, 0])).backward()
    for leaf in (entity, c, query):
        assert bool(torch.isfinite(leaf.grad).all())
    ahead = torch.ones(3, D)
    terms, rows = scoring.score_terms(ahead, c, torch.tensor([0, 1, 1]), entity, torch.zeros(2))
    entity.grad = None
    scoring.all_scores(terms, rows).sum().backward()
    assert float(entity.grad.min()) > 0  # an entity at the origin is drawn to the query
