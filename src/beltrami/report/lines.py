"""Line charts: values over a common axis, with intervals, also as step curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from beltrami.report import chart_frame as frame
from beltrami.report.chart_frame import NO_NAME, Scale, colour
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
        where = f"series {self.name!r}: "
        if (self.low is None) != (self.high is None):
            given = "low" if self.high is None else "high"
            raise ValueError(f"{where}low and high go together, got only {given}")
        for field in ("x", "y", "low", "high"):
            if (values := getattr(self, field)) is not None:
                numbers = frame.as_floats(values, where + field)
                object.__setattr__(self, field, numbers)
                if len(numbers) != len(self.x):
                    raise ValueError(
                        f"{where}x and {field} must be equally long, got {len(self.x)} and "
                        f"{len(numbers)}"
                    )
        for i, value in enumerate(self.x):
            if not can_show(value):
                raise ValueError(f"{where}x[{i}] must be finite, got {value}")
            if i and value < self.x[i - 1]:
                raise ValueError(f"{where}x must not decrease, got {value} after {self.x[i - 1]}")
        for low, high in self.intervals:
            frame.check_ends(low, high, where)

    @property
    def intervals(self) -> Sequence[tuple[float, float] | tuple[None, None]]:
        """Both ends at each point, or None twice."""
        if self.low is None or self.high is None:
            return [(None, None)] * len(self.x)
        return list(zip(self.low, self.high, strict=True))


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
        title, description: for screen readers and on hover; the first and last value of each
            series are added to the description.
        x_label, y_label: names of the axes.
        x_log: x by its logarithm; every x must be above 0.
        y_log: y by its logarithm; values not above 0 leave a gap.
        step: a value holds until the next x, the last to the end of the axis, as in a
            distribution function.
        y_limits: what the vertical axis covers at least.
    """
    frame.check_names([line.name for line in series], "series")
    for line in series:
        if x_log and len(line.x) and not can_show(line.x[0], log=True):
            raise ValueError(
                f"series {line.name!r}: x must be above 0 on a log axis, got {line.x[0]}; "
                "use x_log=False or leave that point out"
            )
    shown = [y for line in series for y in line.y if can_show(y, log=y_log)]
    ends = [end for line in series for pair in line.intervals for end in pair if end is not None]
    ys = shown + [end for end in ends if can_show(end, log=y_log)] + _limits(y_limits, y_log)
    parts, top, foot = frame.head([line.name for line in series], y_label)
    if shown:
        xs = [x for line in series for x in line.x]
        vertical = frame.axis(min(ys), max(ys), foot, top, log=y_log, most=frame.MOST_Y_TICKS)
        left, right = frame.label_room(vertical), frame.WIDTH - frame.EDGE - 6
        horizontal = frame.across(min(xs), max(xs), left, right, log=x_log)
        parts += frame.y_axis(vertical, left, right)
        parts += frame.x_axis(horizontal, top, foot, x_label)
        drawn = [_draw(i, line, horizontal, vertical, step) for i, line in enumerate(series)]
        # Markers above all lines, lines above all bands.
        parts += [part for layer in zip(*drawn, strict=True) for part in layer]
    else:
        parts += frame.nothing_to_show(top, foot)
    note = frame.hidden_note(sum(len(line.y) for line in series) - len(shown), log=y_log)
    parts, height = frame.with_note(parts, foot, note)
    summaries = [_summary(line, y_log) for line in series[:SUMMARISED]]
    description = " ".join([description, *summaries, note])
    return frame.chart("lines", parts, height, title=title, description=description)


def _limits(limits: tuple[float, float] | None, log: bool) -> list[float]:
    if limits is None:
        return []
    low, high = limits
    if not (can_show(low, log=log) and can_show(high, log=log) and low <= high):
        above = " above 0" if log else ""
        raise ValueError(f"y_limits must be two finite numbers{above}, low first, got {limits}")
    return [low, high]


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
    ends: tuple[float, float] | None  # of its interval
    index: int


def _draw(
    index: int, line: Series, horizontal: Scale, vertical: Scale, step: bool
) -> tuple[str, str, str]:
    """Bands, lines and markers of a series."""
    intervals = line.intervals
    runs = [_thin(run) for run in _runs(line, horizontal, vertical)]
    count = sum(len(run) for run in runs)
    mark_all = count <= MARK_ALL and not step
    every = max(1, count // SPARSE_MARKERS)
    offset = (every // 2 + index * every // 4) % every  # series have theirs at different places
    bands, lines, marks = "", "", ""
    taken: set[tuple[int, int]] = set()
    for run in runs:
        corners = _corners([(p.x, p.y) for p in run], step)
        if step and run is runs[-1] and can_show(line.y[-1], log=vertical.log):
            corners.append((horizontal.end, run[-1].y))
        if len(corners) > 1:
            lines += f'<path class="{frame.stroke(index)}" d="{frame.path(corners)}"/>'
        if not mark_all:
            bands += _band(index, run, step)
        alone = len(run) == 1  # between two gaps, where no line shows it
        for i, point in enumerate(run):
            cell = round(point.x / MARKER), round(point.y / MARKER)
            sparse = i > 0 and i % every == offset
            if mark_all or sparse or (alone and cell not in taken):
                taken.add(cell)
                marks += _whisker(index, point) if mark_all or alone else ""
                value = format_interval(line.y[point.index], *intervals[point.index])
                hover = f"{line.name or NO_NAME}, {format_number(line.x[point.index])}: {value}"
                marks += frame.marker(index, point.x, point.y, hover)
    return bands, lines, marks


def _runs(line: Series, horizontal: Scale, vertical: Scale) -> list[list[_Point]]:
    """The stretches of a series between its gaps."""
    runs: list[list[_Point]] = [[]]
    for i, (x, y, (low, high)) in enumerate(zip(line.x, line.y, line.intervals, strict=True)):
        if not can_show(y, log=vertical.log):
            runs.append([])
            continue
        ends = None
        if low is not None and high is not None and can_show(low) and can_show(high):
            ends = vertical.place(low), vertical.place(high)
        runs[-1].append(_Point(horizontal.place(x), vertical.place(y), ends, i))
    return [run for run in runs if run]


def _thin(run: list[_Point]) -> list[_Point]:
    """A long run with the first, last, lowest and highest point of each narrow column kept."""
    if len(run) <= THIN_FROM:
        return run
    columns: dict[int, list[_Point]] = {}
    for point in run:
        columns.setdefault(int(point.x / COLUMN), []).append(point)
    shown: set[_Point] = set()
    for column in columns.values():
        shown |= {column[0], column[-1]}
        shown |= {min(column, key=lambda p: p.y), max(column, key=lambda p: p.y)}
        if bounded := [(p.ends, p) for p in column if p.ends is not None]:
            shown.add(max(bounded, key=lambda pair: pair[0][0])[1])
            shown.add(min(bounded, key=lambda pair: pair[0][1])[1])
    return sorted(shown, key=lambda p: p.index)


def _corners(places: Sequence[tuple[float, float]], step: bool) -> list[tuple[float, float]]:
    if not step:
        return list(places)
    corners = [places[0]]
    for (_, before), (x, y) in pairwise(places):
        corners += [(x, before), (x, y)]
    return corners


def _band(index: int, run: Sequence[_Point], step: bool) -> str:
    """The area between the intervals' ends, where there are intervals."""
    bounded = [(p.x, *p.ends) for p in run if p.ends is not None]
    if len(bounded) < 2:
        return ""
    upper = _corners([(x, high) for x, _, high in bounded], step)
    lower = _corners([(x, low) for x, low, _ in bounded], step)
    return f'<path class="band {colour(index)}" d="{frame.path(upper + lower[::-1])}Z"/>'


def _whisker(index: int, point: _Point) -> str:
    if point.ends is None or abs(point.ends[0] - point.ends[1]) < 1:
        return ""
    (low, high), cap, left = point.ends, 2 * frame.CAP, point.x - frame.CAP
    return (
        f'<path class="whisker {colour(index)}" d="M{point.x:.1f} {low:.1f}V{high:.1f}'
        f'M{left:.1f} {low:.1f}h{cap:g}M{left:.1f} {high:.1f}h{cap:g}"/>'
    )
