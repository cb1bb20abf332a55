"""Is this pair an edge? Measures of scores for yes and no, higher meaning yes.

For link prediction by distance (score −d) and for entailment cones (score −angle). A pair is called
an edge if its score is at least the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from beltrami.analysis.checks import check_same_length, check_tensor, numbers
from beltrami.analysis.results import Result


@dataclass(frozen=True)
class EdgeScores(Result):
    """How well scores tell edges from other pairs; all but the threshold are 1 when perfect.

    Args:
        threshold: the least score that was called an edge.
        precision: share of right answers among pairs called edges; 0 if none was.
        recall: share of the edges that were called so.
        f1: 2·precision·recall/(precision + recall), 0 if both are 0.
        accuracy: share of right answers.
        average_precision: see the function of that name.
        roc_auc: see the function of that name.
    """

    threshold: float
    precision: float
    recall: float
    f1: float
    accuracy: float
    average_precision: float
    roc_auc: float


def classify_edges(
    validation_scores: Tensor, validation_labels: Tensor, scores: Tensor, labels: Tensor
) -> EdgeScores:
    """Measures of test scores, at the threshold that has the best F1 on validation scores.

    Args:
        validation_scores: (m,), to choose the threshold by. validation_labels: whether each is an
            edge, booleans or 0 and 1. At least one must be.
        scores: (n,), to judge. labels: whether each is an edge; both answers must occur.
    """
    threshold = best_threshold(validation_scores, validation_labels)
    return edge_scores(scores, labels, threshold)


def edge_scores(scores: Tensor, labels: Tensor, threshold: float) -> EdgeScores:
    """Measures of scores (n,) for a given threshold; both labels must occur."""
    values, truth = _checked(scores, labels)
    called = values >= threshold
    hits = int((called & truth).sum())
    edges, answers = int(truth.sum()), int(called.sum())
    return EdgeScores(
        threshold=threshold,
        precision=hits / answers if answers else 0.0,
        recall=hits / edges,
        f1=2 * hits / (edges + answers),
        accuracy=int((called == truth).sum()) / len(truth),
        average_precision=average_precision(scores, labels),
        roc_auc=roc_auc(scores, labels),
    )


def best_threshold(scores: Tensor, labels: Tensor) -> float:
    """The score that, as a threshold, has the best F1; the highest of them if there are several."""
    values, truth = _checked(scores, labels, both=False)
    steps = _steps(values, truth)
    f1 = 2 * steps.hits / (steps.hits[-1] + steps.called)
    return steps.threshold[torch.argmax(f1)].item()


def average_precision(scores: Tensor, labels: Tensor) -> float:
    """Area under precision over recall, Σ (recall_i − recall_{i−1})·precision_i.

    The sum is over the distinct scores from the highest down; equal scores are one step, neither
    for nor against the scores. (`reconstruction` counts ties against them.)
    """
    steps = _steps(*_checked(scores, labels, both=False))
    gained = steps.hits.diff(prepend=steps.hits.new_zeros(1))
    return (gained * steps.hits / steps.called).sum().item() / steps.hits[-1].item()


def roc_auc(scores: Tensor, labels: Tensor) -> float:
    """The chance that an edge scores higher than another pair; equal scores count half."""
    steps = _steps(*_checked(scores, labels))
    hits, wrong = (pad(count, (1, 0)) for count in (steps.hits, steps.called - steps.hits))
    return (torch.trapezoid(hits, wrong) / (hits[-1] * wrong[-1])).item()


class _Steps(NamedTuple):
    """The distinct scores from the highest down, and how many pairs score at least as much."""

    threshold: Tensor
    called: Tensor
    hits: Tensor  # those that are edges


def _steps(values: Tensor, truth: Tensor) -> _Steps:
    distinct, which = (-values).unique(return_inverse=True)
    called = torch.bincount(which, minlength=len(distinct)).cumsum(0)
    hits = torch.bincount(which[truth], minlength=len(distinct)).cumsum(0)
    return _Steps(-distinct, called.to(torch.float64), hits.to(torch.float64))


def _checked(scores: Tensor, labels: Tensor, *, both: bool = True) -> tuple[Tensor, Tensor]:
    values = numbers("scores", scores).cpu()
    check_tensor("labels", labels)
    truth = labels.detach().cpu()
    if truth.dtype != torch.bool:
        if not bool(((truth == 0) | (truth == 1)).all()):
            raise ValueError("labels must be booleans, or 0 and 1")
        truth = truth == 1
    check_same_length("scores", values, "labels", truth)
    edges = int(truth.sum())
    if edges == 0 or (both and edges == len(truth)):
        answer = "no edge" if edges == 0 else "nothing but edges"
        raise ValueError(f"labels has {answer}: the measure needs both answers to occur")
    return values, truth
