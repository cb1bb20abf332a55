"""Link prediction, judged: filtered ranks in both directions, and what is made of them."""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.analysis.link_ranks import filtered_ranks, mrr_hits
from beltrami.data.triples import KnownTails, add_reciprocals
from beltrami.models.knowledge_graph.model import KnowledgeGraphModel


@torch.no_grad()
def rank_triples(
    model: KnowledgeGraphModel, triples: Tensor, known: KnownTails, *, batch_size: int = 1000
) -> Tensor:
    """Filtered ranks of the tail and of the head of triples (m, 3): float64 (m, 2), on the CPU.

    Ties count as half of their ranks: a model that gives all the same score gets no credit.

    Args:
        model: the model; it is put in evaluation mode meanwhile.
        triples: int64, without reciprocals.
        known: `TripleSet.known_tails`, on the model's device.
        batch_size: queries scored at a time; a batch takes a few batch_size·entities numbers.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    both = add_reciprocals(triples, model.config.relations).to(model.entity.device)
    training = model.training
    model.eval()
    try:
        ranks = [_batch_ranks(model, batch, known) for batch in both.split(batch_size)]
    finally:
        model.train(training)
    return torch.cat(ranks).view(2, -1).T.cpu()


def _batch_ranks(model: KnowledgeGraphModel, batch: Tensor, known: KnownTails) -> Tensor:
    heads, relations, tails = batch.unbind(1)
    answers = torch.stack(known.pairs(heads, relations), 1)
    return filtered_ranks(model.scores(heads, relations), tails, answers)


def evaluate(
    model: KnowledgeGraphModel, triples: Tensor, known: KnownTails, *, batch_size: int = 1000
) -> dict[str, float]:
    """`mrr`, `mean_rank`, `hits@1`, `@3` and `@10` over both directions, and the `mrr` of each."""
    ranks = rank_triples(model, triples, known, batch_size=batch_size)
    each = dict(zip(("tail_mrr", "head_mrr"), ranks.reciprocal().mean(0).tolist(), strict=True))
    return mrr_hits(ranks.flatten()).as_dict() | each


def relation_metrics(
    model: KnowledgeGraphModel, triples: Tensor, known: KnownTails, *, batch_size: int = 1000
) -> dict[int, dict[str, float]]:
    """The metrics of each relation that has triples, both directions together."""
    ranks = rank_triples(model, triples, known, batch_size=batch_size)
    relation = triples[:, 1].cpu()
    return {
        index: mrr_hits(ranks[relation == index].flatten()).as_dict()
        for index in relation.unique().tolist()
    }
