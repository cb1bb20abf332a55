from __future__ import annotations

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.report.chart_frame import PLOT_HEIGHT, WIDTH
from beltrami.report.charts import Series, line_chart
from tests.report.svg import (
    NASTY,
    SVG,
    assert_drawn_inside,
    assert_texts_fit,
    hovers,
    read,
    texts,
)

DIMENSIONS = [2, 5, 10, 20, 50]
CURVED = Series(
    "Hyperbolic",
    DIMENSIONS,
    [0.72, 0.946, 0.95, 0.955, 0.956],
    [0.70, 0.942, 0.945, 0.95, 0.953],
    [0.74, 0.95, 0.955, 0.96, 0.959],
)
FLAT = Series("Euclidean twin", DIMENSIONS, [0.21, 0.38, 0.51, 0.66, 0.81])


def draw(*series: Series, **options):
    given = {"title": "T", "description": "D.", "x_label": "x", "y_label": "y"} | options
    return read(line_chart(series, **given))


def lines(element) -> list[list[tuple[float, float]]]:
    """The corners of the series' lines, without the legend's samples."""
    found = [e.get("d", "") for e in element.iter(f"{SVG}path") if "line" in e.get("class", "")]
    corners = [re.findall(r"[ML]([-\d.]+) ([-\d.]+)", d) for d in found if "h26" not in d]
    return [[(float(x), float(y)) for x, y in line] for line in corners]


def of_kind(element, kind: str) -> list:
    return [e for e in element.iter(f"{SVG}path") if kind in e.get("class", "").split()]


def test_typical_chart_is_complete() -> None:
    element = draw(CURVED, FLAT, x_log=True, x_label="Dimension", y_label="MAP", y_limits=(0, 1))
    assert_texts_fit(element)
    assert_drawn_inside(element)
    assert len(lines(element)) == 2
    assert len(of_kind(element, "whisker")) == 5
    assert texts(element, "tick")[:6] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert texts(element, "tick")[6:] == ["2", "5", "10", "20", "50"]
    assert {"Hyperbolic", "Euclidean twin", "Dimension", "MAP"} <= set(texts(element))
    assert "Hyperbolic, 5: 0.946 ± 0.004" in hovers(element)
    assert "Euclidean twin, 50: 0.810" in hovers(element)
    described = element.findtext(f"{SVG}desc") or ""
    assert described.startswith("D. Hyperbolic: from 0.720 at 2 to 0.956 at 50.")


def test_values_stand_where_the_axis_says() -> None:
    element = draw(Series("a", [0, 1, 2], [0, 0.5, 1]))
    (line,) = lines(element)
    assert line[1][0] == pytest.approx((line[0][0] + line[2][0]) / 2, abs=0.1)
    assert line[0][1] - line[2][1] == pytest.approx(PLOT_HEIGHT, abs=0.1)
    assert line[1][1] == pytest.approx((line[0][1] + line[2][1]) / 2, abs=0.1)


def test_log_axes_space_equal_factors_equally() -> None:
    element = draw(Series("a", [1, 10, 100], [0.01, 1, 100]), x_log=True, y_log=True)
    (line,) = lines(element)
    for axis in (0, 1):
        a, b, c = (point[axis] for point in line)
        assert b - a == pytest.approx(c - b, abs=0.2)


def test_series_differ_by_more_than_colour() -> None:
    element = draw(*(Series(f"model {i}", [0, 1], [i, i + 1]) for i in range(20)))
    marks, strokes = of_kind(element, "mark"), of_kind(element, "line")
    signs = {
        (line.get("class", "").split()[-1], mark.get("d"))
        for line, mark in zip(strokes[:20], marks[:20], strict=True)
    }
    assert len(signs) == 20  # dashes and shape alone tell 20 series apart
    assert_texts_fit(element)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
def test_values_that_cannot_be_shown_leave_a_gap_and_a_note(bad: float) -> None:
    element = draw(Series("a", range(6), [0, 1, bad, 3, 4, 5]))
    assert [len(line) for line in lines(element)] == [2, 3]
    assert texts(element, "note") == ["1 value not shown: not finite."]
    assert "1 value not shown" in (element.findtext(f"{SVG}desc") or "")


def test_a_log_axis_skips_what_is_not_positive() -> None:
    element = draw(Series("a", range(4), [1.0, 0.0, -1.0, 10.0]), y_log=True)
    assert lines(element) == []
    assert len(of_kind(element, "mark")) == 2  # points between gaps are still seen
    assert texts(element, "note") == ["2 values not shown: not finite or not above 0."]


def test_intervals_that_leave_a_log_axis_end_at_it() -> None:
    element = draw(Series("a", [1, 2], [1.0, 2.0], [-5.0, 1.0], [3.0, 4.0]), y_log=True)
    assert_drawn_inside(element)
    assert len(of_kind(element, "whisker")) == 2


@pytest.mark.parametrize("values", [[], [math.nan, math.inf]])
def test_nothing_to_show_is_said(values: list[float]) -> None:
    element = draw(Series("a", range(len(values)), values))
    assert "No values to show" in texts(element)
    assert "a: no values." in (element.findtext(f"{SVG}desc") or "")


@pytest.mark.parametrize("value", [0.0, 5.0, -3e-9, 1e12])
@pytest.mark.parametrize("count", [1, 2])
def test_single_points_and_constants_are_in_the_middle(value: float, count: int) -> None:
    element = draw(Series("a", range(count), [value] * count))
    assert_texts_fit(element)
    marks = of_kind(element, "mark")
    assert len(marks) == count
    ys = [float(re.findall(r"[\d.]+", m.get("transform", ""))[1]) for m in marks]
    found = (re.search(r" ([\d.]+)H", e.get("d", "")) for e in of_kind(element, "grid"))
    grid = [float(match[1]) for match in found if match]
    assert min(grid) + 40 < ys[0] < max(grid) - 40


def test_steps_hold_until_the_next_value_and_to_the_end() -> None:
    element = draw(Series("a", [0, 1, 2], [0, 1, 2]), step=True)
    (line,) = lines(element)
    assert [y for _, y in line[1::2]] == [y for _, y in line[:-1:2]]  # every other piece is flat
    assert all(line[i][0] == line[i + 1][0] for i in range(1, len(line) - 1, 2))  # or upright
    assert line[-1][0] == pytest.approx(WIDTH - 12, abs=0.1)


def test_intervals_of_long_series_are_bands() -> None:
    x = list(range(100))
    series = Series("a", x, x, [v - 5 for v in x], [v + 5 for v in x])
    for step in (False, True):
        element = draw(series, step=step)
        assert len(of_kind(element, "band")) == 1
        assert not of_kind(element, "whisker")
        assert 3 <= len(of_kind(element, "mark")) <= 10


def test_long_series_are_thinned_without_losing_extremes() -> None:
    y = [math.sin(i / 50) for i in range(30_000)]
    y[11_000], y[20_001] = 7.0, -7.0
    svg = line_chart([Series("a", range(30_000), y)], title="T", description="D", x_label="x",
                     y_label="y")  # fmt: skip
    assert len(svg) < 60_000
    (line,) = lines(read(svg))
    heights = [height for _, height in line]
    middle = (max(heights) + min(heights)) / 2
    assert sum(height < middle - 60 for height in heights) == 1
    assert sum(height > middle + 60 for height in heights) == 1


def test_many_points_between_gaps_stay_small() -> None:
    y = [math.nan if i % 2 else math.sin(i) for i in range(20_000)]
    svg = line_chart([Series("a", range(20_000), y)], title="T", description="D", x_label="x",
                     y_label="y")  # fmt: skip
    assert len(svg) < 2_000_000


@pytest.mark.parametrize("text", NASTY)
def test_any_text_may_be_a_label(text: str) -> None:
    element = draw(
        Series(text, [1, 2], [1, math.nan]),
        Series(f"{text}2", [1, 2], [3, 4], [2, 3], [4, 5]),
        title=text,
        description=text,
        x_label=text,
        y_label=text,
    )
    assert_texts_fit(element)
    assert not list(element.iter(f"{SVG}script"))
    shown = "".join(element.itertext())
    assert re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800]", "\ufffd", text) in shown


NUMBER = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=60)
@given(st.lists(st.lists(NUMBER, max_size=5), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_any_numbers_draw(rows: list[list[float]], y_log: bool, step: bool) -> None:
    series = [Series(f"series {i}", range(len(row)), row) for i, row in enumerate(rows)]
    element = draw(*series, y_log=y_log, step=step)
    assert_texts_fit(element)
    assert_drawn_inside(element)


def test_tensors_are_welcome() -> None:
    x = torch.arange(3)
    assert Series("a", x, x.float()) == Series("a", [0, 1, 2], [0, 1, 2])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Series("s", [1, 2], [1]), ValueError, "'s': x and y .* got 2 and 1"),
        (lambda: Series("s", [1], [1], [0]), ValueError, "'s': low and high .* only low"),
        (lambda: Series("s", [1], [1], None, [2]), ValueError, "only high"),
        (lambda: Series("s", [1], [1], [2], [0]), ValueError, "got 2.0 and 0.0"),
        (lambda: Series("s", [1], [1], [2], [3, 4]), ValueError, "x and high .* got 1 and 2"),
        (lambda: Series("s", [1, math.nan], [1, 2]), ValueError, r"x\[1\] .* finite, got nan"),
        (lambda: Series("s", [2, 1], [1, 2]), ValueError, "not decrease, got 1.0 after 2.0"),
        (lambda: Series("s", ["a"], [1]), TypeError, r"'s': x .* numbers, got \['a'\]"),
        (lambda: draw(), ValueError, "series must not be empty"),
        (lambda: draw(FLAT, FLAT), ValueError, "'Euclidean twin' twice"),
        (lambda: draw(Series("s", [0], [1]), x_log=True), ValueError, "above 0 .* got 0.0"),
        (lambda: draw(FLAT, y_limits=(1, 0)), ValueError, r"y_limits .* got \(1, 0\)"),
        (lambda: draw(FLAT, title=None), TypeError, "got None"),
    ],
)
def test_bad_input_is_refused(make, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
