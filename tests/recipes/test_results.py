from __future__ import annotations

import math

import pytest

from beltrami.analysis.intervals import Interval
from beltrami.recipes.recipe import Metric, Trial
from beltrami.recipes.results import Comparison, TrialResult, compare, interval_json

HIGHER = Metric("map", "MAP", "1 is perfect", "higher")
LOWER = Metric("rank", "Rank", "1 is perfect", "lower")


def results(key: str, *values: float | None) -> list[TrialResult]:
    return [
        TrialResult(Trial("m", "g", seed, {}), {key: value}, {}, [], 1, 1.0)
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("metric", "gap", "verdict"),
    [
        (HIGHER, Interval(0.2, 0.1), "better"),
        (HIGHER, Interval(-0.2, 0.1), "worse"),
        (LOWER, Interval(-0.2, 0.1), "better"),
        (LOWER, Interval(0.2, 0.1), "worse"),
        (LOWER, Interval(0.1, 0.1), "no difference"),
        (LOWER, Interval(0.2, None), ""),
        (LOWER, None, ""),
        (Metric("loss", "Loss", "", None), Interval(0.2, 0.1), ""),
    ],
)
def test_verdicts(metric: Metric, gap: Interval | None, verdict: str) -> None:
    assert Comparison(metric, Interval(1.0, 0.1), gap).verdict == verdict


def test_values_and_paired_differences() -> None:
    (found,) = compare(results("map", 0.5, 0.7), results("map", 0.4, 0.4), [HIGHER, LOWER])
    assert found.value.mean == pytest.approx(0.6)
    assert found.difference is not None
    assert found.difference.mean == pytest.approx(0.2)
    assert found.difference.half_width == pytest.approx(12.7062 * 0.1)  # gaps 0.1 and 0.3


def test_an_infinite_value_has_no_difference() -> None:
    (found,) = compare(results("rank", 2.0, None), results("rank", 2.0, 3.0), [LOWER])
    assert math.isinf(found.value.mean)
    assert found.difference is None
    (found,) = compare(results("rank", None, None), results("rank", None, None), [LOWER])
    assert found.difference is None
    assert interval_json(found.value) == {"mean": None, "half_width": None}


def test_a_twin_that_lacks_the_metric_gives_no_difference() -> None:
    (found,) = compare(results("map", 0.5), results("rank", 1.0), [HIGHER])
    assert found.difference is None
