"""Heat maps: a cell for each number, and what cannot be shown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.report.charts import heat_map
from tests.report.svg import NASTY, SVG, assert_drawn_inside, read, texts

WORDS = {"title": "T", "description": "D.", "x_label": "γ", "y_label": "Width"}


def draw(values, rows, columns, **options):  # type: ignore[no-untyped-def]
    return read(heat_map(values, rows=rows, columns=columns, **{**WORDS, **options}))


def cells(element):  # type: ignore[no-untyped-def]
    return list(element.iter(f"{SVG}rect"))


def test_larger_numbers_are_stronger() -> None:
    element = draw([[0.1, 0.9], [0.5, 0.5]], ["a", "b"], ["x", "y"])
    found = [float(e.get("fill-opacity", 0)) for e in cells(element)]
    assert found[0] < found[2] == found[3] < found[1]
    assert [e.findtext(f"{SVG}title") for e in cells(element)][1] == "a, y: 0.900"
    assert {"0.10", "0.90", "0.50"} <= set(texts(element))
    assert_drawn_inside(element)
    assert "a: x 0.100, y 0.900." in (element.findtext(f"{SVG}desc") or "")


def test_given_limits_and_equal_numbers() -> None:
    low, high = cells(draw([[-5.0, 7.0]], ["a"], ["x", "y"], limits=(0.0, 1.0)))
    assert float(low.get("fill-opacity")) < 0.1 < 0.6 < float(high.get("fill-opacity"))
    same = cells(draw([[2.0, 2.0]], ["a"], ["x", "y"]))
    assert same[0].get("fill-opacity") == same[1].get("fill-opacity")


def test_what_is_not_finite_is_counted() -> None:
    rows = [[1.0, math.nan], [math.inf, 2.0]]
    element = draw(rows, ["a", "b"], ["x", "y"])
    assert len(cells(element)) == 2
    assert "2 values not shown: not finite." in texts(element, "note")
    nothing = draw([[math.nan]], ["a"], ["x"])
    assert cells(nothing) == []


def test_many_columns_have_some_names() -> None:
    columns = [f"{i / 100:.2f}" for i in range(40)]
    element = draw([[0.5] * 40], ["a"], columns)
    shown = [t for t in texts(element, "tick") if t in columns]
    assert 2 <= len(shown) < 40
    assert "0.50" not in texts(element)  # no room in the cells


@settings(max_examples=30)
@given(st.sampled_from(NASTY), st.lists(st.floats(), min_size=1, max_size=12))
def test_anything_may_be_drawn(name: str, values: list[float]) -> None:
    columns = [name] * len(values)
    draw([values], [name], columns, title=name)


def test_bad_tables() -> None:
    with pytest.raises(ValueError, match="1 for 2 names"):
        draw([[1.0]], ["a", "b"], ["x"])
    with pytest.raises(ValueError, match="row 'a' has 2 values for 1"):
        draw([[1.0, 2.0]], ["a"], ["x"])
    with pytest.raises(ValueError, match="in order"):
        draw([[1.0]], ["a"], ["x"], limits=(1.0, 0.0))
