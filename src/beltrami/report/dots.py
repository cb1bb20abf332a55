"""Dot charts: means with their intervals, model beside model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from beltrami.report import chart_frame as frame
from beltrami.report.chart_frame import CAP, EDGE, FONT, LINE, WIDTH, Scale, colour
from beltrami.report.text import text_width
from beltrami.report.ticks import can_show, format_interval, format_number

ROW = 24.0  # height of a model's line


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval; `low` and `high` are None without an interval."""

    mean: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        frame.check_ends(self.low, self.high)

    @classmethod
    def around(cls, mean: float, half_width: float | None) -> Estimate:
        """mean ± half_width; None or a width that is not finite means no interval."""
        if half_width is None or not math.isfinite(half_width):
            return cls(mean)
        if half_width < 0:
            raise ValueError(f"half_width must not be negative, got {half_width}")
        return cls(mean, mean - half_width, mean + half_width)

    def __str__(self) -> str:
        return format_interval(self.mean, self.low, self.high)


@dataclass(frozen=True)
class Group:
    """A metric, data set or size, and what each model reached there: name of model -> estimate."""

    name: str
    estimates: Mapping[str, Estimate]


def dot_chart(
    groups: Sequence[Group],
    *,
    title: str,
    description: str,
    x_label: str,
    x_log: bool = False,
) -> str:
    """Means with their intervals, the models of a group below one another, the values beside them.

    Args:
        groups: at least one, with different names.
        title, description, x_label, x_log: as for `line_chart`; all values are added to the
            description.
    """
    frame.check_names([group.name for group in groups], "groups")
    for group in groups:
        if not group.estimates:
            raise ValueError(f"group {group.name!r} has no estimates")
    models = list(dict.fromkeys(model for group in groups for model in group.estimates))
    parts, y = frame.legend(models, EDGE, lines=False) if len(models) > 1 else ([], 0.0)
    y += 2 * EDGE + (8 if parts else 0)
    written = {_value(e) for group in groups for e in group.estimates.values()}
    right = WIDTH - EDGE - 12 - max(text_width(value, FONT) for value in written)
    scale = _dot_scale(groups, EDGE + 8, right, x_log)
    top = y
    rows: list[str] = []
    for group in groups:
        title_y = y + 0.8 * FONT
        rows.append(frame.text(EDGE, title_y, group.name, kind="group", room=frame.FULL))
        y += LINE
        for index, model in enumerate(models):
            if model in group.estimates:
                rows += _dot(index, model, group, scale, y + ROW / 2)
                y += ROW
        y += 8
    if scale is not None:
        parts += frame.x_axis(scale, top + LINE, y, x_label)
        y += (2 if x_label.strip() else 1) * LINE + 18
    values = (
        f"{group.name}: " + ", ".join(f"{m} {e}" for m, e in group.estimates.items()) + "."
        for group in groups
    )
    return frame.chart(
        "dots", parts + rows, y, title=title, description=" ".join([description, *values])
    )


def _dot_scale(groups: Sequence[Group], left: float, right: float, log: bool) -> Scale | None:
    values = [
        value
        for group in groups
        for estimate in group.estimates.values()
        for value in (estimate.mean, estimate.low, estimate.high)
        if value is not None and can_show(value, log=log)
    ]
    return frame.across(min(values), max(values), left, right, log=log) if values else None


def _value(estimate: Estimate) -> str:
    """What stands beside a dot; an interval that is not symmetric would take too much room."""
    written = str(estimate)
    return format_number(estimate.mean) if written.endswith(")") else written


def _dot(index: int, model: str, group: Group, scale: Scale | None, y: float) -> list[str]:
    """A model's marker and whisker, and its value at the right."""
    estimate = group.estimates[model]
    parts = [
        frame.text(WIDTH - EDGE, y + 0.35 * FONT, _value(estimate), anchor="end", kind="value")
    ]
    if scale is None or not can_show(estimate.mean, log=scale.log):
        return parts
    bounds = [end for end in (estimate.low, estimate.high) if end is not None and can_show(end)]
    if len(bounds) == 2:
        low, high = (scale.place(bound) for bound in bounds)
        parts.append(
            f'<path class="whisker {colour(index)}" d="M{low:.1f} {y:.1f}H{high:.1f}'
            f'M{low:.1f} {y - CAP:.1f}v{2 * CAP:g}M{high:.1f} {y - CAP:.1f}v{2 * CAP:g}"/>'
        )
    hover = f"{group.name}, {model}: {estimate}"
    parts.append(frame.marker(index, scale.place(estimate.mean), y, hover))
    return parts
