"""What a knowledge-graph model is trained on, beside its `softmax_loss` over all entities."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.models.knowledge_graph.model import KnowledgeGraphModel

Corruption = Literal["tail", "both"]


def sampled_loss(
    model: KnowledgeGraphModel,
    triples: Tensor,
    *,
    negatives: int = 50,
    corrupt: Corruption = "both",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Logistic loss of true triples against random ones, as published: the mean of
    −log σ(score) over triples and −log σ(−score) over `negatives` corruptions of each.

    Args:
        model: the model.
        triples: int64 (m, 3), reciprocals among them.
        negatives: corruptions of each triple, drawn uniformly, true ones among them.
        corrupt: "tail" alone, or "both" ends at once (the published "double negatives").
        generator: of the draws, on the device of the triples.
    """
    if negatives < 1:
        raise ValueError(f"negatives must be at least 1, got {negatives}")
    if corrupt not in ("tail", "both"):
        raise ValueError(f'corrupt must be "tail" or "both", got {corrupt!r}')
    heads, relations, tails = triples.unbind(-1)
    n, shape = model.config.entities, (len(triples), negatives)
    drawn = torch.randint(n, shape, device=triples.device, generator=generator)
    if corrupt == "tail":
        scores = model.triple_scores(heads, relations, torch.cat([tails.unsqueeze(1), drawn], 1))
        positive, negative = scores[:, 0], scores[:, 1:].flatten()
    else:
        starts = torch.randint(n, shape, device=triples.device, generator=generator)
        kinds = relations.unsqueeze(1).expand(shape)
        positive = model(triples)
        negative = model(torch.stack([starts, kinds, drawn], -1).flatten(0, 1))
    return -F.logsigmoid(torch.cat([positive, -negative])).mean()


def cubic_penalty(model: KnowledgeGraphModel, triples: Tensor) -> Tensor:
    """The N3 regulariser: mean over triples of Σ|v|³ over the coordinates of head and tail."""
    ends = F.embedding(triples[:, [0, 2]], model.entity)  # (m, 2, d)
    return ends.abs().pow(3).sum((-2, -1)).mean()
