"""Filtered ranks of link prediction in knowledge graphs: MRR and Hits@k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from beltrami.analysis.checks import check_tensor, integers
from beltrami.analysis.results import Result
from beltrami.checks import check_choice, check_integer

Ties = Literal["realistic", "optimistic", "pessimistic"]
TIES: tuple[Ties, ...] = ("realistic", "optimistic", "pessimistic")


@dataclass(frozen=True)
class LinkScores(Result):
    """How high true entities stand among all.

    Args:
        mrr: mean of 1/rank; 1 is perfect.
        mean_rank: mean rank; 1 is perfect.
        hits: share of ranks at most k, by k.
    """

    mrr: float
    mean_rank: float
    hits: Mapping[int, float]

    def as_dict(self) -> dict[str, float]:
        """The numbers by name; the shares are hits@1, hits@3, ..."""
        return super().as_dict() | {f"hits@{k}": share for k, share in self.hits.items()}


def filtered_ranks(
    scores: Tensor,
    targets: Tensor,
    known: Tensor | None = None,
    *,
    ties: Ties = "realistic",
) -> Tensor:
    """Ranks (queries,), float64, of each query's true entity among all others not known to be true.

    Does not look at values, so it does not wait for the device: a row with NaN or infinite scores
    gets the rank NaN, at which `mrr_hits` raises.

    Args:
        scores: (queries, entities), higher is better.
        targets: the true entities, integers of shape (queries,).
        known: what else is true and does not count: booleans (queries, entities), or integers
            (q, 2) with rows (query, entity). The targets themselves may be among them.
        ties: where a target stands among entities of the same score: "optimistic", before them;
            "pessimistic", behind them; "realistic", the mean of both.
    """
    check_tensor("scores", scores, "queries entities", "floating point")
    check_choice("ties", ties, TIES)
    targets = integers("targets", targets, 1)
    if len(targets) != len(scores):
        raise ValueError(f"targets must have one entry a query, {len(scores)}, got {len(targets)}")
    scores, at = scores.detach(), targets.unsqueeze(1)
    rivals = torch.ones_like(scores, dtype=torch.bool) if known is None else ~_mask(known, scores)
    rivals.scatter_(1, at, False)
    true = scores.gather(1, at)
    better = ((scores > true) & rivals).sum(1)
    level = ((scores == true) & rivals).sum(1)
    share = {"optimistic": 0.0, "realistic": 0.5, "pessimistic": 1.0}[ties]
    rank = 1.0 + better.to(torch.float64) + share * level
    return torch.where(torch.isfinite(scores).all(1), rank, torch.nan)


def mrr_hits(ranks: Tensor, ks: Sequence[int] = (1, 3, 10)) -> LinkScores:
    """Mean reciprocal rank, mean rank and shares of ranks at most k, of ranks (n,)."""
    check_tensor("ranks", ranks)
    if ranks.ndim != 1 or len(ranks) == 0:
        raise ValueError(f"ranks must be a vector and not empty, got shape {tuple(ranks.shape)}")
    for k in ks:
        check_integer("ks", k)
    ranks = ranks.detach().cpu().to(torch.float64)
    wrong = ~((ranks >= 1) & torch.isfinite(ranks))
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        raise ValueError(
            f"ranks must be finite and at least 1, got {ranks[first].item()} at index {first}; "
            "filtered_ranks gives NaN where scores are NaN or infinite"
        )
    return LinkScores(
        mrr=(1 / ranks).mean().item(),
        mean_rank=ranks.mean().item(),
        hits={k: (ranks <= k).to(torch.float64).mean().item() for k in ks},
    )


def _mask(known: Tensor, scores: Tensor) -> Tensor:
    """The entities of each query that do not count, booleans (queries, entities)."""
    check_tensor("known", known)
    if known.dtype == torch.bool:
        if known.shape != scores.shape:
            raise ValueError(
                f"known must have the shape of scores, {tuple(scores.shape)}, if it is a mask, "
                f"got {tuple(known.shape)}"
            )
        return known
    known = integers("known", known, 2)
    if known.shape[1] != 2:
        raise ValueError(f"known must have rows (query, entity), got shape {tuple(known.shape)}")
    mask = torch.zeros_like(scores, dtype=torch.bool)
    true = torch.ones((), dtype=torch.bool, device=scores.device)
    return mask.index_put_((known[:, 0], known[:, 1]), true)
