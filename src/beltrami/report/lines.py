"""Line charts: values over a common axis, with intervals, also as step curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from beltrami.report.chart_frame import (
    CAP,
    EDGE,
    NO_NAME,
    PLOT_HEIGHT,
    WIDTH,
    Scale,
    across,
    as_floats,
    check_names,
    colour,
    head,
    hidden_note,
    label_room,
    marker,
    nothing_to_show,
    path,
    picture,
    stroke,
    upward,
    with_note,
    x_axis,
    y_axis,
)
from beltrami.report.ticks import can_show, format_interval, format_number

MARK_ALL = 24  # a series of at most so many points has a marker on each
SPARSE_MARKERS = 6  # a longer one has about so many along its line
COLUMN = 1.0  # points of a long series that share so narrow a column are thinned out
THIN_FROM = 800  # points
MARKER = 4.0  # points between gaps that are closer than this share a marker
SUMMARISED = 12  # the description for screen readers tells at most so many series


@dataclass(frozen=True)
class Series:
    """A line: its name, its points, and, where given, an interval around each of them.

    Args:
        name: for the legend; any text.
        x: finite numbers that do not decrease.
        y: one an x; those that are not finite leave a gap.
        low: lower ends of the intervals, or None.
        high: upper ends of the intervals, or None.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            given = "low" if self.high is None else "high"
            raise ValueError(f"series {self.name!r}: low and high go together, got only {given}")
        for field in ("x", "y", "low", "high"):
            values = getattr(self, field)
            if values is not None:
                numbers = as_floats(values, f"series {self.name!r}: {field}")
                object.__setattr__(self, field, numbers)
                if len(numbers) != len(self.x):
                    raise ValueError(
                        f"series {self.name!r}: x and {field} must be equally long, "
                        f"got {len(self.x)} and {len(numbers)}"
                    )
        self._check_x()
        if self.low is not None and self.high is not None:
            for low, high in zip(self.low, self.high, strict=True):
                if low > high:
                    raise ValueError(
                        f"series {self.name!r}: low must not exceed high, got {low} and {high}"
                    )

    def _check_x(self) -> None:
        for i, value in enumerate(self.x):
            if not can_show(value):
                raise ValueError(f"series {self.name!r}: x[{i}] must be finite, got {value}")
            if i and value < self.x[i - 1]:
                raise ValueError(
                    f"series {self.name!r}: x must not decrease, got {value} after {self.x[i - 1]}"
                )


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    x_log: bool = False,
    y_log: bool = False,
    step: bool = False,
    y_limits: tuple[float, float] | None = None,
) -> str:
    """Lines over a common axis, with intervals where they are given.

    Args:
        series: at least one, with different names; they get colour, dashes and marker in turn.
        title: what the chart is called, for screen readers and on hover.
        description: a sentence on what it shows, for screen readers; the first and last value of
            each series are added.
        x_label: what x is.
        y_label: what y is; it stands above the axis.
        x_log: x by its logarithm; every x must be above 0.
        y_log: y by its logarithm; values not above 0 leave a gap.
        step: a value holds until the next x, the last to the end of the axis, as in a
            distribution function.
        y_limits: what the vertical axis covers at least.
    """
    _check_series(series, x_log)
    xs = [x for line in series for x in line.x]
    ys = _shown_values(series, y_log) + _limits(y_limits, y_log)
    hidden = sum(not can_show(y, log=y_log) for line in series for y in line.y)

    parts, top = head([line.name for line in series], y_label)
    foot = top + PLOT_HEIGHT
    if any(can_show(y, log=y_log) for line in series for y in line.y):
        vertical = upward(min(ys), max(ys), foot, top, log=y_log)
        left, right = label_room(vertical), WIDTH - EDGE - 6
        horizontal = across(min(xs), max(xs), left, right, log=x_log)
        parts += y_axis(vertical, left, right) + x_axis(horizontal, top, foot, x_label)
        drawn = [_draw(i, line, horizontal, vertical, step) for i, line in enumerate(series)]
        # Markers above all lines, lines above all bands.
        parts += [part for layer in zip(*drawn, strict=True) for part in layer]
    else:
        parts.append(nothing_to_show(top, foot))
    note = hidden_note(hidden, log=y_log)
    parts, height = with_note(parts, foot, note)
    summary = " ".join(
        [description, *(_summary(line, y_log) for line in series[:SUMMARISED]), note]
    )
    return picture("lines", parts, height, title=title, description=summary.strip())


def _limits(limits: tuple[float, float] | None, log: bool) -> list[float]:
    if limits is None:
        return []
    low, high = limits
    if not (can_show(low, log=log) and can_show(high, log=log) and low <= high):
        above = " above 0" if log else ""
        raise ValueError(f"y_limits must be two finite numbers{above}, low first, got {limits}")
    return [low, high]


def _check_series(series: Sequence[Series], x_log: bool) -> None:
    if not series:
        raise ValueError("series must not be empty")
    check_names([line.name for line in series], "series")
    for line in series:
        if x_log and len(line.x) and not can_show(line.x[0], log=True):
            raise ValueError(
                f"series {line.name!r}: x must be above 0 on a log axis, got {line.x[0]}; "
                "use x_log=False or leave that point out"
            )


def _shown_values(series: Sequence[Series], log: bool) -> list[float]:
    return [
        value
        for line in series
        for values in (line.y, line.low, line.high)
        for value in (() if values is None else values)
        if can_show(value, log=log)
    ]


def _summary(line: Series, log: bool) -> str:
    name = line.name or NO_NAME
    shown = [(x, y) for x, y in zip(line.x, line.y, strict=True) if can_show(y, log=log)]
    if not shown:
        return f"{name}: no values."
    first, last = (f"{format_number(y)} at {format_number(x)}" for x, y in (shown[0], shown[-1]))
    return f"{name}: {first}." if len(shown) == 1 else f"{name}: from {first} to {last}."


@dataclass(frozen=True)
class _Point:
    """A point of a series as drawn, in the picture's coordinates, with its place in the series."""

    x: float
    y: float
    low: float | None
    high: float | None
    index: int


def _draw(
    index: int, line: Series, horizontal: Scale, vertical: Scale, step: bool
) -> tuple[str, str, str]:
    """Bands, lines and markers of a series."""
    runs = [_thin(run) for run in _runs(line, horizontal, vertical)]
    count = sum(len(run) for run in runs)
    mark_all = count <= MARK_ALL and not step
    bands: list[str] = []
    lines: list[str] = []
    marks: list[str] = []
    taken: set[tuple[int, int]] = set()
    for run in runs:
        corners = _corners([(p.x, p.y) for p in run], step)
        if step and run is runs[-1] and can_show(line.y[-1], log=vertical.log):
            corners.append((horizontal.end, run[-1].y))
        if len(corners) > 1:
            lines.append(f'<path class="{stroke(index)}" d="{path(corners)}"/>')
        if not mark_all:
            bands += _band(index, run, step)
        alone = len(run) == 1  # between two gaps, where no line shows it
        for i, point in enumerate(run):
            cell = round(point.x / MARKER), round(point.y / MARKER)
            if mark_all or (alone and cell not in taken) or _is_sparse(i, index, count):
                taken.add(cell)
                marks += _whisker(index, point) if mark_all or alone else []
                marks.append(marker(index, point.x, point.y, _hover(line, point.index)))
    return "".join(bands), "".join(lines), "".join(marks)


def _is_sparse(i: int, index: int, count: int) -> bool:
    """Whether the i-th point of a run has a marker; series have theirs at different places."""
    every = max(1, count // SPARSE_MARKERS)
    return i > 0 and i % every == (every // 2 + index * every // 4) % every


def _hover(line: Series, i: int) -> str:
    low, high = (None if ends is None else ends[i] for ends in (line.low, line.high))
    value = format_interval(line.y[i], low, high)
    return f"{line.name or NO_NAME}, {format_number(line.x[i])}: {value}"


def _runs(line: Series, horizontal: Scale, vertical: Scale) -> list[list[_Point]]:
    """The stretches of a series between its gaps."""
    runs: list[list[_Point]] = [[]]
    for i, (x, y) in enumerate(zip(line.x, line.y, strict=True)):
        if not can_show(y, log=vertical.log):
            runs.append([])
            continue
        low = high = None
        if line.low is not None and line.high is not None:
            bounds = line.low[i], line.high[i]
            if all(can_show(bound) for bound in bounds):
                low, high = (vertical.place(bound) for bound in bounds)
        runs[-1].append(_Point(horizontal.place(x), vertical.place(y), low, high, i))
    return [run for run in runs if run]


def _thin(run: list[_Point]) -> list[_Point]:
    """A long run with the first, last, lowest and highest point of each narrow column kept."""
    if len(run) <= THIN_FROM:
        return run
    columns: dict[int, list[int]] = {}
    for i, point in enumerate(run):
        columns.setdefault(int(point.x / COLUMN), []).append(i)
    shown: set[int] = set()
    for column in columns.values():
        shown |= {column[0], column[-1]}
        shown |= {min(column, key=lambda i: run[i].y), max(column, key=lambda i: run[i].y)}
        if run[column[0]].low is not None:
            shown.add(max(column, key=lambda i: run[i].low or -math.inf))
            shown.add(min(column, key=lambda i: run[i].high or math.inf))
    return [run[i] for i in sorted(shown)]


def _corners(places: Sequence[tuple[float, float]], step: bool) -> list[tuple[float, float]]:
    if not step:
        return list(places)
    corners = [places[0]]
    for (_, before), (x, y) in pairwise(places):
        corners += [(x, before), (x, y)]
    return corners


def _band(index: int, run: Sequence[_Point], step: bool) -> list[str]:
    """The area between the intervals' ends, where there are intervals."""
    upper = [(p.x, p.high) for p in run if p.low is not None and p.high is not None]
    lower = [(p.x, p.low) for p in run if p.low is not None and p.high is not None]
    if len(upper) < 2:
        return []
    around = _corners(upper, step) + _corners(lower, step)[::-1]
    return [f'<path class="band {colour(index)}" d="{path(around)}Z"/>']


def _whisker(index: int, point: _Point) -> list[str]:
    if point.low is None or point.high is None or abs(point.low - point.high) < 1:
        return []
    x, low, high = point.x, point.low, point.high
    return [
        f'<path class="whisker {colour(index)}" d="M{x:.1f} {low:.1f}V{high:.1f}'
        f'M{x - CAP:.1f} {low:.1f}h{2 * CAP:g}M{x - CAP:.1f} {high:.1f}h{2 * CAP:g}"/>'
    ]
