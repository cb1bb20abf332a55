from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beltrami.report.ticks import (
    FLAT,
    LIMIT,
    MOST_TICKS,
    can_show,
    format_estimate,
    format_interval,
    format_number,
    format_ticks,
    linear_ticks,
    log_ticks,
)

ANY = st.floats(-LIMIT, LIMIT)
POSITIVE = st.floats(-149.0, 149.0).map(lambda e: 10.0**e)
MOST = st.integers(3, MOST_TICKS)


@given(ANY, ANY, MOST)
def test_linear_ticks_cover_any_data(a: float, b: float, most: int) -> None:
    low, high = sorted((a, b))
    ticks = linear_ticks(low, high, most)
    assert 2 <= len(ticks) <= most
    assert ticks[0] <= low <= high <= ticks[-1]
    assert all(s < t for s, t in pairwise(ticks))


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6), st.integers(-12, 12), MOST)
def test_linear_ticks_are_round_and_waste_little(n: int, span: int, power: int, most: int) -> None:
    low, high = float(f"{n}e{power}"), float(f"{n + span}e{power}")
    ticks = linear_ticks(low, high, most)
    if high - low < 2 * FLAT * max(abs(low), abs(high)):
        return  # drawn as a constant
    step = Fraction(repr(ticks[1])) - Fraction(repr(ticks[0]))
    digits = str(int(step * Fraction(10) ** 30)).rstrip("0")
    assert digits in ("1", "2", "25", "5")
    for tick in ticks:  # the float nearest to a multiple of the step
        assert tick == float(round(Fraction(tick) / step) * step)
    assert ticks[1] > low  # no tick too many at either end
    assert ticks[-2] < high


@given(POSITIVE, POSITIVE, MOST)
def test_log_ticks_cover_any_positive_data(a: float, b: float, most: int) -> None:
    low, high = sorted((a, b))
    ticks = log_ticks(low, high, most)
    assert 2 <= len(ticks) <= most
    assert 0 < ticks[0] <= low <= high <= ticks[-1] < math.inf
    assert all(s < t for s, t in pairwise(ticks))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, (0, 0.2, 0.4, 0.6, 0.8, 1)),
        (0.3, 0.946, (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)),
        (-3, 4, (-3, -2, -1, 0, 1, 2, 3, 4)),
        (0, 0, (-1, -0.5, 0, 0.5, 1)),
        (100, 100, (90, 95, 100, 105, 110)),
        (0, 600, (0, 100, 200, 300, 400, 500, 600)),
    ],
)
def test_linear_ticks_as_people_choose_them(
    low: float, high: float, expected: tuple[float, ...]
) -> None:
    assert linear_ticks(low, high) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (2, 200, (2, 5, 10, 20, 50, 100, 200)),
        (1, 1000, (1, 3, 10, 30, 100, 300, 1000)),
        (1, 1e5, (1, 10, 100, 1000, 10_000, 100_000)),
        (0.02, 4, (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)),
        (1e-8, 1e6, (1e-8, 1e-6, 1e-4, 1e-2, 1, 100, 1e4, 1e6)),
        (1, 1, (0.5, 1, 2)),
        (10, 12, (10, 10.5, 11, 11.5, 12)),
    ],
)
def test_log_ticks_as_people_choose_them(
    low: float, high: float, expected: tuple[float, ...]
) -> None:
    assert log_ticks(low, high) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: linear_ticks(math.nan, 1), "low must be a number .* got nan"),
        (lambda: linear_ticks(0, math.inf), "high must be a number .* got inf"),
        (lambda: linear_ticks(2, 1), "must not exceed high, got 2 and 1"),
        (lambda: linear_ticks(0, 1, 2), "at least 3, got 2"),
        (lambda: log_ticks(0, 1), "low must be a number from 1e-150 .* got 0"),
    ],
)
def test_bad_ranges_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("ticks", "log", "expected"),
    [
        ((0, 0.5, 1), False, ["0.0", "0.5", "1.0"]),
        ((-0.25, 0, 0.25), False, ["−0.25", "0.00", "0.25"]),
        ((0, 50_000, 100_000), False, ["0", "50,000", "100,000"]),
        ((0, 5e5, 1e6), False, ["0", "5×10⁵", "10⁶"]),
        ((0, 2e-9), False, ["0", "2×10⁻⁹"]),
        ((-2.5e12, 0), False, ["−2.5×10¹²", "0"]),
        ((0.01, 0.1, 1, 10), True, ["0.01", "0.1", "1", "10"]),
        ((1e-5, 1), True, ["10⁻⁵", "10⁰"]),
    ],
)
def test_ticks_are_written_well(ticks, log: bool, expected: list[str]) -> None:
    assert format_ticks(ticks, log=log) == expected


@given(ANY, ANY)
def test_labels_of_neighbouring_ticks_differ(a: float, b: float) -> None:
    labels = format_ticks(linear_ticks(*sorted((a, b))))
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (0.9463, "0.946"),
        (-1.2345, "−1.23"),
        (82115.0, "82,115"),
        (123.456, "123"),
        (0.99999, "1.00"),
        (1.5e-7, "1.5×10⁻⁷"),
        (999_999.7, "10⁶"),
        (2e40, "2×10⁴⁰"),
        (1.797e308, "1.8×10³⁰⁸"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "no value"),
    ],
)
def test_numbers_are_written_well(value: float, expected: str) -> None:
    assert format_number(value) == expected


@pytest.mark.parametrize(
    ("mean", "half_width", "expected"),
    [
        (0.9461, 0.0041, "0.946 ± 0.004"),
        (0.3812, 0.0123, "0.381 ± 0.012"),
        (23.41, 1.31, "23.4 ± 1.3"),
        (0.5, 3.0, "0.5 ± 3.0"),
        (82115.0, 321.0, "82,115 ± 321"),
        (0.25, 0.0, "0.250 ± 0"),
        (1e-9, 2e-10, "10⁻⁹ ± 2×10⁻¹⁰"),
        (0.9, None, "0.900"),
        (0.9, math.inf, "0.900"),
        (math.inf, 1.0, "∞"),
        (0.0, 0.02, "0.00 ± 0.02"),
        (0.5, 0.0996, "0.50 ± 0.10"),
    ],
)
def test_estimates_are_written_well(mean: float, half_width: float | None, expected: str) -> None:
    assert format_estimate(mean, half_width) == expected


def test_intervals_off_the_middle_show_both_ends() -> None:
    assert format_interval(0.5, 0.45, 0.7) == "0.500 (0.450 to 0.700)"
    assert format_interval(0.5, 0.4, 0.6) == "0.50 ± 0.10"
    assert format_interval(0.5, None, None) == "0.500"


def test_negative_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="half_width must not be negative, got -1"):
        format_estimate(1.0, -1.0)


def test_what_an_axis_can_hold() -> None:
    assert can_show(-3.0)
    assert not can_show(-3.0, log=True)
    assert not can_show(0.0, log=True)
    assert not any(can_show(v) for v in (math.nan, math.inf, -math.inf, 1e200))
