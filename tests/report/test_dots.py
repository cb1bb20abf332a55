from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.report.charts import Estimate, Group, dot_chart
from tests.report.svg import (
    NASTY,
    SVG,
    assert_drawn_inside,
    assert_texts_fit,
    hovers,
    read,
    texts,
)

TWINS = [
    Group(
        "MAP",
        {
            "Hyperbolic": Estimate.around(0.946, 0.004),
            "Euclidean twin": Estimate.around(0.381, 0.012),
        },
    ),
    Group(
        "Mean rank",
        {
            "Hyperbolic": Estimate.around(1.173, 0.02),
            "Euclidean twin": Estimate.around(23.4, 1.3),
        },
    ),
]


def draw(groups=TWINS, **options):
    told = {"title": "T", "description": "D.", "x_label": "Value"} | options
    return read(dot_chart(groups, **told))


def marks(element) -> dict[str, float]:
    """Hover text -> horizontal place."""
    found = [e for e in element.iter(f"{SVG}path") if "mark" in e.get("class", "") and len(e)]
    return {
        e.findtext(f"{SVG}title") or "": float(re.findall(r"[\d.]+", e.get("transform", ""))[0])
        for e in found
    }


def test_typical_chart_is_complete() -> None:
    element = draw()
    assert_texts_fit(element)
    assert_drawn_inside(element)
    assert texts(element, "group") == ["MAP", "Mean rank"]
    values = ["0.946 ± 0.004", "0.381 ± 0.012", "1.17 ± 0.02", "23.4 ± 1.3"]
    assert texts(element, "value") == values
    assert "MAP, Hyperbolic: 0.946 ± 0.004" in hovers(element)
    described = element.findtext(f"{SVG}desc") or ""
    assert "MAP: Hyperbolic 0.946 ± 0.004, Euclidean twin 0.381 ± 0.012." in described
    assert texts(element).count("Value") == 1


def test_dots_stand_in_order_of_their_values_on_a_shared_axis() -> None:
    means = [0.4, 0.1, 0.9, 0.5]
    groups = [Group(f"g{i}", {"model": Estimate(mean)}) for i, mean in enumerate(means)]
    places = [place for _, place in sorted(marks(draw(groups)).items())]
    span = (places[2] - places[1]) / (0.9 - 0.1)
    for mean, place in zip(means, places, strict=True):
        assert place == pytest.approx(places[1] + span * (mean - 0.1), abs=0.2)


def test_models_differ_by_shape_and_keep_it_in_every_group() -> None:
    one, other = Estimate(1.0), Estimate(2.0)
    element = draw([Group("g", {"a": one, "b": other}), Group("h", {"b": other})])
    found = [e for e in element.iter(f"{SVG}path") if "mark" in e.get("class", "") and len(e)]
    shapes = {e.findtext(f"{SVG}title"): e.get("d") for e in found}
    assert shapes["g, a: 1"] != shapes["g, b: 2"]
    assert shapes["g, b: 2"] == shapes["h, b: 2"]


def test_means_that_are_not_finite_are_written_but_not_drawn() -> None:
    groups = [Group("g", {"a": Estimate(math.inf), "b": Estimate(math.nan), "c": Estimate(1.0)})]
    element = draw(groups)
    assert texts(element, "value") == ["∞", "no value", "1"]
    assert len(marks(element)) == 1
    nothing = draw([Group("g", {"a": Estimate(math.inf)})])
    assert texts(nothing, "value") == ["∞"]


def test_a_log_axis_skips_what_is_not_positive() -> None:
    groups = [Group("g", {"a": Estimate(0.0), "b": Estimate(5.0, -1.0, 9.0)})]
    element = draw(groups, x_log=True)
    assert len(marks(element)) == 1
    assert_drawn_inside(element)


def test_an_interval_off_the_middle_is_drawn_and_told_on_hover() -> None:
    element = draw([Group("g", {"a": Estimate(0.5, 0.45, 0.7)})])
    assert texts(element, "value") == ["0.500"]
    assert hovers(element) == ["g, a: 0.500 (0.450 to 0.700)"]


@pytest.mark.parametrize("text", NASTY)
def test_any_text_may_be_a_label(text: str) -> None:
    groups = [Group(text, {text: Estimate(1.0), f"{text}2": Estimate.around(2.0, 0.5)})]
    element = draw(groups, title=text, description=text, x_label=text)
    assert_texts_fit(element)
    assert not list(element.iter(f"{SVG}script"))


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.floats(), min_size=1, max_size=3), min_size=1, max_size=3),
    st.booleans(),
)
def test_any_numbers_draw(rows: list[list[float]], log: bool) -> None:
    groups = [
        Group(f"group {i}", {f"model {k}": Estimate(mean) for k, mean in enumerate(row)})
        for i, row in enumerate(rows)
    ]
    element = draw(groups, x_log=log)
    assert_texts_fit(element)
    assert_drawn_inside(element)


def test_estimates_without_a_width_have_no_interval() -> None:
    assert Estimate.around(1.0, None) == Estimate(1.0)
    assert Estimate.around(1.0, math.inf) == Estimate(1.0)
    assert Estimate.around(1.0, 0.5) == Estimate(1.0, 0.5, 1.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Estimate(1.0, 0.0), "go together, got 0.0 and None"),
        (lambda: Estimate(1.0, 2.0, 0.0), "must not exceed high, got 2.0 and 0.0"),
        (lambda: Estimate.around(1.0, -2.0), "not be negative, got -2.0"),
        (lambda: draw([]), "groups must not be empty"),
        (lambda: draw([Group("g", {})]), "'g' has no estimates"),
        (lambda: draw([TWINS[0], TWINS[0]]), "different names, got 'MAP' twice"),
    ],
)
def test_bad_input_is_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
