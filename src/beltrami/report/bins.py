"""Histograms with round bins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from beltrami.report import chart_frame as frame
from beltrami.report.chart_frame import NO_NAME, Numbers, Scale, colour
from beltrami.report.ticks import FLAT, LIMIT, format_number, linear_ticks, round_steps

MAX_BINS = 40
MIN_BINS = 5
LARGEST = 1e15  # values beyond are not shown; up to here whole numbers are exact
SUMMARISED = 12  # the description for screen readers tells at most so many samples


def histogram(
    samples: Mapping[str, Numbers],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str = "Count",
    share: bool = False,
) -> str:
    """How values are distributed: bars for one sample, outlines for several.

    Bins have round edges; whole numbers in a short range get one bin each.

    Args:
        samples: name -> values, at least one.
        title, description, x_label, y_label: as for `line_chart`; the number of values and their
            range are added to the description.
        share: the share of a sample's values instead of their number.
    """
    frame.check_names(list(samples), "samples")
    given = {name: frame.as_tensor(values, f"sample {name!r}") for name, values in samples.items()}
    shown = {name: v[torch.isfinite(v) & (v.abs() <= LARGEST)] for name, v in given.items()}
    hidden = sum(len(given[name]) - len(shown[name]) for name in given)
    everything = torch.cat(list(shown.values()))

    parts, top, foot = frame.head(list(samples), y_label)
    if len(everything):
        edges = bin_edges(everything)
        inner = torch.tensor(edges[1:-1], dtype=torch.float64)
        heights = {}
        for name, values in shown.items():
            bins_of = torch.bucketize(values, inner, right=True)
            count = torch.bincount(bins_of, minlength=len(edges) - 1).double()
            heights[name] = (count / max(1, len(values)) if share else count).tolist()
        parts += _plot(edges, heights, top, foot, x_label, share)
    else:
        parts += frame.nothing_to_show(top, foot)
    note = frame.hidden_note(hidden)
    parts, height = frame.with_note(parts, foot, note)
    ranges = (
        f"{name or NO_NAME}: {len(v):,} values from {format_number(float(v.min()))} to "
        f"{format_number(float(v.max()))}, mean {format_number(float(v.mean()))}."
        for name, v in list(shown.items())[:SUMMARISED]
        if len(v)
    )
    description = " ".join([description, *ranges, note])
    return frame.chart("histogram", parts, height, title=title, description=description)


def bin_edges(values: Tensor, most: int = MAX_BINS) -> list[float]:
    """Round edges for a histogram of finite values; `most` is at least 2.

    About as many bins as Freedman and Diaconis advise, of width 2·IQR/n^⅓. Whole numbers are in
    the middle of their bin.
    """
    low, high = float(values.min()), float(values.max())
    whole = bool((values == values.round()).all())
    if whole and high - low < most:
        return [low - 0.5 + i for i in range(int(high - low) + 2)]
    size = max(abs(low), abs(high))
    if high - low <= max(FLAT * size, 1 / LIMIT):
        room = 0.5 * size if size > 1 / LIMIT else 0.5
        return [low - room, low + room]
    # A sample is enough for the quartiles, and torch.quantile takes no more.
    quarter = values[:: max(1, len(values) // 100_000)].quantile(
        torch.tensor([0.25, 0.75], dtype=torch.float64)
    )
    advised = 2 * float(quarter[1] - quarter[0]) / len(values) ** (1 / 3)
    wanted = (high - low) / advised if advised > 0 else most
    count = min(most, max(min(MIN_BINS, most), math.ceil(min(wanted, 1e6))))
    shift = Fraction(1, 2) if whole else Fraction(0)
    for width in round_steps((high - low) / count / 10, (1, 2, 5)):
        if whole and width < 1:
            continue
        first = math.floor((Fraction(repr(low)) + shift) / width)
        last = math.floor((Fraction(repr(high)) + shift) / width) + 1
        if not whole:
            last = max(first + 1, math.ceil(Fraction(repr(high)) / width))
        if last - first <= count:
            break
    return [float(n * width - shift) for n in range(first, last + 1)]


def _plot(
    edges: Sequence[float],
    heights: Mapping[str, Sequence[float]],
    top: float,
    foot: float,
    x_label: str,
    share: bool,
) -> list[str]:
    most = max(value for values in heights.values() for value in values)
    vertical = frame.axis(0.0, most, foot, top, most=frame.MOST_Y_TICKS)
    if not share:  # there is no half a count
        vertical = replace(vertical, ticks=tuple(t for t in vertical.ticks if t == int(t)))
    left, right = frame.label_room(vertical), frame.WIDTH - frame.EDGE - 6
    horizontal = _bin_axis(edges, left, right)
    parts = frame.y_axis(vertical, left, right) + frame.x_axis(horizontal, foot, foot, x_label)
    places = [horizontal.place(edge) for edge in edges]
    for index, (name, values) in enumerate(heights.items()):
        if len(heights) == 1:
            return parts + _bars(edges, places, values, vertical)
        outline = [(places[0], foot)]
        for a, b, value in zip(places, places[1:], values, strict=False):
            outline += [(a, vertical.place(value)), (b, vertical.place(value))]
        outline.append((places[-1], foot))
        parts.append(f'<path class="band {colour(index)}" d="{frame.path(outline)}Z"/>')
        parts.append(f'<path class="{frame.stroke(index)}" d="{frame.path(outline)}"/>')
        tallest = max(range(len(values)), key=lambda i: values[i])
        middle = (places[tallest] + places[tallest + 1]) / 2
        hover = f"{name or NO_NAME}: {_bin_text(edges, tallest, values)}"
        parts.append(frame.marker(index, middle, vertical.place(values[tallest]), hover))
    return parts


def _bars(
    edges: Sequence[float], places: Sequence[float], values: Sequence[float], vertical: Scale
) -> list[str]:
    foot = vertical.place(0.0)
    bars = []
    for i, value in enumerate(values):
        if value > 0:
            a, b, y = places[i], places[i + 1], vertical.place(value)
            bars.append(
                f'<rect class="bar s0" x="{a + 0.5:.2f}" y="{y:.2f}" '
                f'width="{max(0.5, b - a - 1):.2f}" height="{foot - y:.2f}">'
                f"<title>{_bin_text(edges, i, values)}</title></rect>"
            )
    return bars


def _bin_text(edges: Sequence[float], i: int, values: Sequence[float]) -> str:
    low, high = edges[i], edges[i + 1]
    value = format_number(values[i])
    if high - low == 1 and (low + 0.5) == int(low + 0.5):
        return f"{format_number(low + 0.5)}: {value}"
    return f"{format_number(low)} to {format_number(high)}: {value}"


def _bin_axis(edges: Sequence[float], left: float, right: float) -> Scale:
    """An axis from the first bin to the last, with the round numbers between as ticks."""
    low, high = edges[0], edges[-1]
    axis = frame.across(low, high, left, right)
    half = low != int(low) and edges[1] - low >= 1
    ticks = [t for t in axis.ticks if low <= t <= high and (not half or t == int(t))]
    if not ticks:
        ticks = [t for t in linear_ticks(low, high) if low <= t <= high] or [(low + high) / 2]
    return Scale(low, high, left, right, False, tuple(ticks))
