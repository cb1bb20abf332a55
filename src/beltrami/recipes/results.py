"""What a run found: results of trials, means over seeds, differences to the twins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from beltrami.analysis.intervals import Interval, mean_interval
from beltrami.recipes.recipe import Arm, Metric, Trial


@dataclass(frozen=True)
class TrialResult:
    """A finished trial.

    Args:
        trial: what was trained.
        metrics: the numbers measured; None where one is infinite.
        curves: lists of numbers for the page.
        history: logged values of the training, each with its step.
        parameters: how many numbers were trained.
        seconds: of training.
        state: the trained tensors.
        diverged: why there are no metrics, if there are none.
        texts: lists of texts for the page.
        metadata: of the file of `state`: labels and manifold of a model with an embedding.
    """

    trial: Trial[Any]
    metrics: Mapping[str, float | None]
    curves: Mapping[str, Sequence[float]]
    history: Sequence[Mapping[str, float]]
    parameters: int
    seconds: float
    state: Mapping[str, Tensor] = field(repr=False, default_factory=dict)
    diverged: str | None = None
    texts: Mapping[str, Sequence[str]] = field(repr=False, default_factory=dict)
    metadata: Mapping[str, str] = field(repr=False, default_factory=dict)

    def value(self, key: str) -> float:
        """A metric as a number; infinite where it is None, and nan where it was not measured."""
        measured = self.metrics.get(key, math.nan)
        return math.inf if measured is None else measured


@dataclass(frozen=True)
class Comparison:
    """One metric of one arm: its mean over seeds, and its difference to the twin's.

    The difference is the arm's minus the twin's, paired by seed; None for a control.
    """

    metric: Metric
    value: Interval
    difference: Interval | None

    @property
    def verdict(self) -> str:
        """ "better", "worse", "no difference", or "" where nothing can be said."""
        gap = self.difference
        if gap is None or gap.half_width is None or self.metric.better is None:
            return ""
        if abs(gap.mean) <= gap.half_width:
            return "no difference"
        return "better" if (gap.mean > 0) == (self.metric.better == "higher") else "worse"


@dataclass(frozen=True)
class ArmResult:
    """An arm at the end of a run."""

    arm: Arm[Any]
    choice: Mapping[str, Any]
    results: Sequence[TrialResult]  # one a seed
    comparisons: Sequence[Comparison]

    def comparison(self, key: str) -> Comparison:
        """The comparison by one metric."""
        return next(c for c in self.comparisons if c.metric.key == key)


@dataclass(frozen=True)
class RunResult:
    """A finished run: the results of its arms, in order."""

    arm_results: Sequence[ArmResult]
    document: Mapping[str, Any]  # metrics.json
    command: str

    def groups(self) -> dict[str, list[ArmResult]]:
        """Results of the arms by group, in order."""
        by_group: dict[str, list[ArmResult]] = {}
        for arm_result in self.arm_results:
            by_group.setdefault(arm_result.arm.group, []).append(arm_result)
        return by_group


def compare(
    results: Sequence[TrialResult], twins: Sequence[TrialResult] | None, metrics: Sequence[Metric]
) -> list[Comparison]:
    """Means over seeds, and paired differences to the twin's results of the same seeds."""
    comparisons = []
    for metric in metrics:
        values = [result.value(metric.key) for result in results]
        if any(math.isnan(value) for value in values):
            continue  # this arm has no such number
        difference = None
        if twins is not None:
            pairs = zip(results, twins, strict=True)
            gaps = [a.value(metric.key) - b.value(metric.key) for a, b in pairs]
            if all(map(math.isfinite, gaps)):
                difference = mean_interval(gaps)
        comparisons.append(Comparison(metric, mean_interval(values), difference))
    return comparisons


def interval_json(interval: Interval | None) -> dict[str, float | None] | None:
    """An interval as metrics.json has it; an infinite mean is null."""
    if interval is None:
        return None
    mean = interval.mean if math.isfinite(interval.mean) else None
    return {"mean": mean, "half_width": interval.half_width}
