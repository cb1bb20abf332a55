"""What all charts share: the SVG element, axes, legends, markers, and texts that fit.

A chart is drawn 440 units wide with letters of 15, so that it can still be read when a phone shows
it at two thirds of that. Series differ in colour, dashes and markers at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from beltrami.report.picture import svg_element
from beltrami.report.text import markup, shorten, text_width
from beltrami.report.ticks import FEWEST_TICKS, MOST_TICKS, format_ticks, linear_ticks, log_ticks

Numbers = Sequence[float] | Tensor

WIDTH = 440.0
FONT = 15.0
LINE = 22.0  # from one line of text to the next
EDGE = 6.0  # between the contents and the border of the picture
FULL = WIDTH - 2 * EDGE
PLOT_HEIGHT = 220.0
GAP = 10.0  # between neighbouring tick labels
SAMPLE = 34.0  # a legend entry's piece of line, and the space after it
COLOURS, DASHES = 8, 5  # charts.css defines as many; with 6 markers, no two of 120 series agree
MOST_Y_TICKS = 6
CAP = 3.5  # half the width of a whisker's end
NO_NAME = "(no name)"
_MARKERS = (
    "M-4.2 0A4.2 4.2 0 1 0 4.2 0A4.2 4.2 0 1 0 -4.2 0Z",  # circle
    "M-3.8 -3.8H3.8V3.8H-3.8Z",  # square
    "M0 -5.2L4.9 3.6H-4.9Z",  # triangle
    "M0 -5.4L5.4 0L0 5.4L-5.4 0Z",  # diamond
    "M-1.6 -5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5V-1.6H-1.6Z",  # plus
    "M0 5.2L4.9 -3.6H-4.9Z",  # triangle upside down
)


@dataclass(frozen=True)
class Scale:
    """How values become places between `start` and `end`, linearly or by their logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: tuple[float, ...]

    @property
    def labels(self) -> list[str]:
        """The ticks as texts."""
        return format_ticks(self.ticks, log=self.log)

    def place(self, value: float) -> float:
        """Where a value stands; values outside the axis are moved to its end."""
        if self.log:
            value = max(value, self.low)  # an interval may reach below 0
            low, high = math.log(self.low), math.log(self.high)  # their quotient may overflow
            share = (math.log(value) - low) / (high - low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def axis(
    low: float, high: float, start: float, end: float, *, log: bool = False, most: int = MOST_TICKS
) -> Scale:
    """An axis that covers low to high with round ends; a vertical one starts at its foot."""
    ticks = (log_ticks if log else linear_ticks)(low, high, most)
    return Scale(ticks[0], ticks[-1], start, end, log, ticks)


def across(low: float, high: float, start: float, end: float, *, log: bool = False) -> Scale:
    """A horizontal axis, with as many ticks as their labels leave room for."""
    for most in range(MOST_TICKS, FEWEST_TICKS - 1, -1):
        scale = axis(low, high, start, end, log=log, most=most)
        spans = [(x - half, x + half) for _, _, x, half in _tick_labels(scale)]
        if all(right + GAP <= left for (_, right), (left, _) in pairwise(spans)):
            break
    return scale


def text(
    x: float,
    y: float,
    content: str,
    *,
    anchor: str = "start",
    kind: str = "",
    room: float | None = None,
) -> str:
    """One line of text; where it must be cut to `room`, it shows the whole on hover."""
    shown = content if room is None else shorten(content, room, FONT) or NO_NAME
    whole = "" if room is None or not shown.endswith("…") else f"<title>{markup(content)}</title>"
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{markup(shown)}{whole}</text>"
    )


def marker(index: int, x: float, y: float, hover: str = "") -> str:
    """The sign of the series with that index."""
    title = f"<title>{markup(hover)}</title>" if hover else ""
    shape = _MARKERS[index % len(_MARKERS)]
    return (
        f'<path class="mark {colour(index)}" transform="translate({x:.1f} {y:.1f})" '
        f'd="{shape}">{title}</path>'
    )


def colour(index: int) -> str:
    """The class that colours the series with that index."""
    return f"s{index % COLOURS}"


def stroke(index: int) -> str:
    """The classes of the line of the series with that index."""
    return f"line {colour(index)} dash{index % DASHES}"


def legend(names: Sequence[str], top: float, *, lines: bool) -> tuple[list[str], float]:
    """Signs and names from `top` downwards, in as many rows as they need; returns their height."""
    parts: list[str] = []
    x, y = EDGE, top + LINE / 2
    for index, name in enumerate(names):
        room = FULL - SAMPLE
        width = SAMPLE + min(room, text_width(" ".join(name.split()) or NO_NAME, FONT))
        if x > EDGE and x + width > WIDTH - EDGE:
            x, y = EDGE, y + LINE
        if lines:
            parts.append(f'<path class="{stroke(index)}" d="M{x:.1f} {y:.1f}h26"/>')
        parts.append(marker(index, x + 13, y))
        parts.append(text(x + SAMPLE, y + 0.35 * FONT, name, room=room))
        x += width + 18
    return parts, y + LINE / 2 - top


def _tick_labels(scale: Scale) -> list[tuple[float, str, float, float]]:
    """(tick, label, its middle, half its width) of a horizontal axis.

    The outermost labels are pulled inside the picture.
    """
    placed = []
    for tick, label in zip(scale.ticks, scale.labels, strict=True):
        half = text_width(label, FONT) / 2
        placed.append((tick, label, min(max(scale.place(tick), half + 1), WIDTH - 1 - half), half))
    return placed


def x_axis(scale: Scale, top: float, foot: float, label: str) -> list[str]:
    """Tick marks, their labels and the axis's name below a plot."""
    parts = [f'<path class="axis" d="M{scale.start:.1f} {foot:.1f}H{scale.end:.1f}"/>']
    for tick, written, middle, _ in _tick_labels(scale):
        x = scale.place(tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {top:.1f}V{foot:.1f}"/>')
        parts.append(text(middle, foot + LINE, written, anchor="middle", kind="tick"))
    if label.strip():
        half = text_width(shorten(label, FULL, FONT), FONT) / 2
        middle = (scale.start + scale.end) / 2
        x = min(max(middle, half + EDGE), WIDTH - half - EDGE) - half
        parts.append(text(x, foot + 2 * LINE, label, kind="name", room=FULL))
    return parts


def y_axis(scale: Scale, left: float, right: float) -> list[str]:
    """Grid lines and tick labels beside a plot."""
    parts = []
    for tick, written in zip(scale.ticks, scale.labels, strict=True):
        y = scale.place(tick)
        parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}H{right:.1f}"/>')
        parts.append(text(left - 8, y + 0.35 * FONT, written, anchor="end", kind="tick"))
    return parts


def label_room(scale: Scale) -> float:
    """How much room the labels of a vertical axis take, with the space around them."""
    return EDGE + 8 + max(text_width(label, FONT) for label in scale.labels)


def chart(kind: str, parts: Iterable[str], height: float, *, title: str, description: str) -> str:
    """The finished SVG element."""
    return svg_element(
        f"chart {kind}",
        "".join(parts),
        view_box=(0, 0, WIDTH, height),
        title=title,
        description=description.strip(),
        style="charts.css",
    )


def as_floats(values: Iterable[object] | Tensor, what: str) -> tuple[float, ...]:
    """A list, array or tensor as floats; `what` names it in the error."""
    listed = values.tolist() if isinstance(values, Tensor) else values
    try:
        return tuple(float(value) for value in listed)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} must be a list of numbers, got {values!r:.80}") from error


def as_tensor(values: Numbers, what: str) -> Tensor:
    """A list, array or tensor as a flat float64 tensor on the CPU."""
    if isinstance(values, Tensor):
        return values.detach().double().cpu().flatten()
    return torch.tensor(as_floats(values, what), dtype=torch.float64)


def check_names(names: Sequence[str], what: str) -> None:
    """There must be names, and names that occur twice could not be told apart."""
    if not names:
        raise ValueError(f"{what} must not be empty")
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"{what} must have different names, got {name!r} twice")


def check_ends(low: float | None, high: float | None, where: str = "") -> None:
    """An interval has two ends, in order, or none."""
    if (low is None) != (high is None):
        raise ValueError(f"{where}low and high go together, got {low} and {high}")
    if low is not None and high is not None and low > high:
        raise ValueError(f"{where}low must not exceed high, got {low} and {high}")


def hidden_note(count: int, *, log: bool = False) -> str:
    """A sentence on values that the chart cannot show; empty if there are none."""
    if not count:
        return ""
    why = "not finite or not above 0" if log else "not finite"
    return f"{count:,} value{'s' if count > 1 else ''} not shown: {why}."


def head(names: Sequence[str], y_label: str) -> tuple[list[str], float, float]:
    """Legend and name of the vertical axis; top and foot of the plot below them."""
    parts, used = legend(names, EDGE, lines=True) if len(names) > 1 else ([], 0.0)
    y = EDGE + used + (8 if used else 0)
    if y_label.strip():
        parts.append(text(EDGE, y + FONT, y_label, kind="name", room=FULL))
        y += LINE
    return parts, y + 12, y + 12 + PLOT_HEIGHT


def nothing_to_show(top: float, foot: float) -> list[str]:
    """What stands in the place of a plot without values."""
    return [text(WIDTH / 2, (top + foot) / 2, "No values to show", anchor="middle")]


def with_note(parts: list[str], foot: float, note: str) -> tuple[list[str], float]:
    """The parts with a note below the axis at `foot`, and the height of the picture."""
    height = foot + 2 * LINE + EDGE + 2
    if not note:
        return parts, height
    return [*parts, text(EDGE, height + 10, note, kind="note", room=FULL)], height + LINE


def path(corners: Sequence[tuple[float, float]]) -> str:
    """A path of straight lines."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners)
