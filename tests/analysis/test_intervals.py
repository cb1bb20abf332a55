from __future__ import annotations

import math
import random

import pytest

from beltrami.analysis.intervals import Interval, mean_interval, t975


@pytest.mark.parametrize(
    ("degrees", "quantile"),  # from published tables of Student's t
    [(1, 12.706), (2, 4.303), (9, 2.262), (11, 2.201), (15, 2.131), (30, 2.042), (120, 1.980)],
)
def test_quantiles(degrees: int, quantile: float) -> None:
    assert t975(degrees) == pytest.approx(quantile, abs=6e-4)


def test_the_expansion_is_as_accurate_as_it_says() -> None:
    for degrees, quantile in ((11, 2.2009851601), (12, 2.1788128297), (20, 2.0859634473)):
        assert t975(degrees) == pytest.approx(quantile, abs=1.2e-4)


def test_three_values() -> None:
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval.mean == 2
    assert interval.half_width == pytest.approx(4.3027 / math.sqrt(3))


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    source, hits, trials = random.Random(0), 0, 2000
    for _ in range(trials):
        interval = mean_interval([source.gauss(0, 1) for _ in range(3)])
        assert interval.half_width is not None
        hits += abs(interval.mean) <= interval.half_width
    assert hits / trials == pytest.approx(0.95, abs=0.02)


def test_no_interval_without_spread_of_seeds() -> None:
    assert mean_interval([0.25]) == Interval(0.25, None)
    assert mean_interval([math.inf, 1.0]) == Interval(math.inf, None)
    assert mean_interval([0.25, 0.25]).half_width == 0


def test_text() -> None:
    assert Interval(-0.1954, 0.0031).format() == "−0.195 ± 0.003"
    assert Interval(0.25, None).format() == "0.250"
    assert Interval(-1e-9, None).format() == "0.000"
    assert Interval(0.25, 0.0001).format() == "0.250 ± <0.001"  # not zero, and not claimed to be


@pytest.mark.parametrize("bad", [[], ()])
def test_no_values(bad) -> None:
    with pytest.raises(ValueError, match="empty"):
        mean_interval(bad)
    with pytest.raises(ValueError, match="at least 1"):
        t975(0)
