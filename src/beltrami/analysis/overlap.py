"""Precision, recall and F1 of predicted sets against true ones.

The sets hold whatever a prediction implies: a class with its ancestors, or one label a level. Then
precision = common/predicted and recall = common/true, and averages are taken in two ways: over
samples (each sample its own precision, recall and F1), and micro (of the summed sizes, so that
samples with large sets weigh more).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.checks import check_same_length, check_tensor, integers
from beltrami.analysis.results import Result


@dataclass(frozen=True)
class SetScores(Result):
    """How predicted sets agree with true ones; 1 is perfect.

    Args:
        precision: mean share of the predicted set that is right. An empty predicted set has
            precision 1 if the true set is empty too, else 0; recall and Jaccard likewise.
        recall: mean share of the true set that was predicted.
        f1: mean of 2·precision·recall/(precision + recall), 0 where both are 0.
        jaccard: mean of common/united.
        micro_precision: common over predicted, of sizes summed over samples.
        micro_recall: common over true, of sizes summed over samples.
        micro_f1: of these two.
    """

    precision: float
    recall: float
    f1: float
    jaccard: float
    micro_precision: float
    micro_recall: float
    micro_f1: float


@dataclass(frozen=True)
class LevelScores(SetScores):
    """Predictions with one label a level; the sets are those of (level, label).

    Hierarchical F1 is `micro_f1`. The predicted set has the labels predicted at all levels, also
    at those below the true ones, where they count against precision.

    Args:
        accuracy: share of right labels at each level, over samples that have one there; NaN for a
            level at which none has.
        exact: share of samples that are right at all their levels.
    """

    accuracy: tuple[float, ...]
    exact: float

    def as_dict(self) -> dict[str, float]:
        """The numbers by name; the accuracies are accuracy_level_0, accuracy_level_1, ..."""
        levels = {f"accuracy_level_{i}": value for i, value in enumerate(self.accuracy)}
        return super().as_dict() | levels


def set_scores(predicted: Tensor, target: Tensor) -> SetScores:
    """Scores of predicted sets, booleans (samples, elements), against true ones of that shape."""
    check_tensor("predicted", predicted, "samples elements", "booleans")
    check_tensor("target", target, "samples elements", "booleans")
    check_same_length("predicted", predicted, "target", target)
    common = (predicted & target).sum(1)
    return SetScores(**overlap_scores(common, predicted.sum(1), target.sum(1)))


def level_scores(predicted: Tensor, target: Tensor) -> LevelScores:
    """Scores of labels (samples, levels), integers; negative ones stand for no label.

    A sample's predicted set has a pair (level, label) for every level with a prediction, its true
    set one for every level with a target, and precision, recall, F1 and Jaccard compare the two. A
    prediction where the target has no label is wrong: it lowers precision, not recall. `accuracy`
    and `exact` are over levels with a target alone, so they do not see it.
    """
    predicted, target = integers("predicted", predicted, 2), integers("target", target, 2)
    check_same_length("predicted", predicted, "target", target)
    labelled = target >= 0
    right = labelled & (predicted == target)
    per_level = right.sum(0) / labelled.sum(0).to(torch.float64)
    return LevelScores(
        **overlap_scores(right.sum(1), (predicted >= 0).sum(1), labelled.sum(1)),
        accuracy=tuple(per_level.tolist()),
        exact=(right == labelled).all(1).to(torch.float64).mean().item(),
    )


def accuracy_per_level(predicted: Tensor, target: Tensor) -> tuple[float, ...]:
    """Share of right labels at each level, of labels (samples, levels); see `level_scores`."""
    return level_scores(predicted, target).accuracy


def overlap_scores(
    common: Tensor, predicted: Tensor, target: Tensor, weight: Tensor | None = None
) -> dict[str, float]:
    """The fields of `SetScores` from the sizes (samples,) of common, predicted and true sets.

    Args:
        common: sizes of the intersections. predicted, target: sizes of the sets.
        weight: of each sample, (samples,), for all the scores; by default all count alike.
    """
    common, predicted, target = (size.to(torch.float64) for size in (common, predicted, target))
    precision, recall = _share(common, predicted, target), _share(common, target, predicted)
    f1 = harmonic(precision, recall)
    jaccard = _share(common, predicted + target - common, target)
    weights = torch.ones_like(common) if weight is None else weight
    of_all = [weights @ size for size in (common, predicted, target)]
    micro = _share(of_all[0], of_all[1], of_all[2]), _share(of_all[0], of_all[2], of_all[1])
    return {
        "precision": weighted_mean(precision, weights),
        "recall": weighted_mean(recall, weights),
        "f1": weighted_mean(f1, weights),
        "jaccard": weighted_mean(jaccard, weights),
        "micro_precision": micro[0].item(),
        "micro_recall": micro[1].item(),
        "micro_f1": harmonic(*micro).item(),
    }


def weighted_mean(values: Tensor, weight: Tensor) -> float:
    """Σ weight·value / Σ weight, both (samples,)."""
    return ((weight @ values.to(weight.dtype)) / weight.sum()).item()


def harmonic(a: Tensor, b: Tensor) -> Tensor:
    """2ab/(a + b), and 0 where both are 0."""
    return torch.where(a + b > 0, 2 * a * b / torch.where(a + b > 0, a + b, 1), 0)


def _share(part: Tensor, whole: Tensor, other: Tensor) -> Tensor:
    """part/whole; where the whole is empty, 1 if the other set is empty too, else 0."""
    empty = (other == 0).to(part.dtype)
    return torch.where(whole > 0, part / torch.where(whole > 0, whole, 1), empty)
