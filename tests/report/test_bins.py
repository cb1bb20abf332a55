from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.report.bins import bin_edges
from beltrami.report.charts import histogram
from tests.report.svg import NASTY, SVG, assert_drawn_inside, assert_texts_fit, read, texts


def draw(samples, **options):
    told = {"title": "T", "description": "D.", "x_label": "Value"} | options
    return read(histogram(samples, **told))


def bars(element) -> list[tuple[str, float]]:
    found = element.iter(f"{SVG}rect")
    return [(e.findtext(f"{SVG}title") or "", float(e.get("height", 0))) for e in found]


def test_whole_numbers_have_a_bin_each() -> None:
    element = draw({"nodes": [0, 1, 1, 2, 2, 2, 2, 4]}, x_label="Depth", y_label="Nodes")
    assert_texts_fit(element)
    found = bars(element)
    assert [title for title, _ in found] == ["0: 1", "1: 2", "2: 4", "4: 1"]
    heights = [height for _, height in found]
    assert heights == pytest.approx([heights[0] * count for count in (1, 2, 4, 1)], abs=0.1)
    assert texts(element, "tick")[-5:] == ["0", "1", "2", "3", "4"]
    assert "8 values from 0 to 4, mean 1.75" in (element.findtext(f"{SVG}desc") or "")


def test_every_value_is_counted_once() -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    counts = [int(title.rsplit(": ", 1)[1]) for title, _ in bars(draw({"a": values}))]
    assert sum(counts) == 1000
    assert 10 <= len(counts) <= 40


@given(
    st.lists(st.floats(-1e15, 1e15, allow_subnormal=False), min_size=1, max_size=30),
    st.integers(2, 40),
)
def test_edges_cover_the_data_and_are_even(values: list[float], most: int) -> None:
    data = torch.tensor(values, dtype=torch.float64)
    edges = bin_edges(data, most)
    assert 1 <= len(edges) - 1 <= most
    assert edges[0] <= min(values)
    assert max(values) <= edges[-1]
    widths = [b - a for a, b in pairwise(edges)]
    size = max(abs(edge) for edge in edges)
    assert min(widths) > 0
    assert max(widths) - min(widths) <= 1e-12 * size + 1e-9 * widths[0]


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=30), st.integers(2, 40))
def test_bins_of_whole_numbers_hold_equally_many_of_them(values: list[int], most: int) -> None:
    edges = bin_edges(torch.tensor(values, dtype=torch.float64), most)
    assert all(edge - math.floor(edge) == 0.5 for edge in edges)


def test_several_samples_are_outlines_that_differ_by_dashes() -> None:
    generator = torch.Generator().manual_seed(0)
    samples = {
        name: torch.randn(500, generator=generator) + i for i, name in enumerate(("one", "other"))
    }
    element = draw(samples, share=True, y_label="Share")
    assert_texts_fit(element)
    assert_drawn_inside(element)
    assert not bars(element)
    assert {"one", "other"} <= set(texts(element))
    classes = [e.get("class", "") for e in element.iter(f"{SVG}path")]
    assert len({c for c in classes if c.startswith("line ")}) == 2


def test_values_that_cannot_be_shown_are_counted_in_a_note() -> None:
    element = draw({"a": [1.5, math.nan, math.inf, 2.5]})
    assert texts(element, "note") == ["2 values not shown: not finite."]


@pytest.mark.parametrize("values", [[], [math.nan]])
def test_nothing_to_show_is_said(values: list[float]) -> None:
    assert "No values to show" in texts(draw({"a": values}))


@pytest.mark.parametrize("value", [0.0, 0.1, -2.5e-9, 1e12 + 0.5])
def test_constant_values_are_one_bar(value: float) -> None:
    element = draw({"a": [value] * 3})
    assert_texts_fit(element)
    assert len(bars(element)) == 1


@settings(max_examples=50)
@given(st.lists(st.lists(st.floats(), max_size=8), min_size=1, max_size=3), st.booleans())
def test_any_numbers_draw(rows: list[list[float]], share: bool) -> None:
    element = draw({f"sample {i}": row for i, row in enumerate(rows)}, share=share)
    assert_texts_fit(element)
    assert_drawn_inside(element)


@pytest.mark.parametrize("text", NASTY)
def test_any_text_may_be_a_label(text: str) -> None:
    samples = {text: [1, 2, 3], f"{text}2": [2, 3, 4]}
    element = draw(samples, title=text, description=text, x_label=text, y_label=text)
    assert_texts_fit(element)
    assert not list(element.iter(f"{SVG}script"))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: draw({}), ValueError, "samples must not be empty"),
        (lambda: draw({"a": ["x"]}), TypeError, r"sample 'a' .* numbers, got \['x'\]"),
    ],
)
def test_bad_input_is_refused(make, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
