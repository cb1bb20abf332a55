"""Dot charts: means with their intervals, model beside model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from beltrami.report.chart_frame import (
    CAP,
    EDGE,
    FONT,
    LINE,
    WIDTH,
    Scale,
    across,
    check_names,
    colour,
    fitted,
    legend,
    marker,
    picture,
    text,
    x_axis,
)
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
        if (self.low is None) != (self.high is None):
            raise ValueError(f"low and high go together, got {self.low} and {self.high}")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low must not exceed high, got {self.low} and {self.high}")

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
    shared_axis: bool = True,
) -> str:
    """Means with their intervals, the models of a group below one another, the values beside them.

    Args:
        groups: at least one, with different names.
        title: as for `line_chart`.
        description: as for `line_chart`; all values are added.
        x_label: what is measured.
        x_log: values by their logarithm.
        shared_axis: one axis for all groups; False gives each its own, for measures of different
            size side by side.
    """
    models = _check_groups(groups)
    parts, y = legend(models, EDGE, lines=False) if len(models) > 1 else ([], 0.0)
    y += 2 * EDGE + (8 if parts else 0)
    written = {_value(e) for group in groups for e in group.estimates.values()}
    right = WIDTH - EDGE - 12 - max(text_width(value, FONT) for value in written)
    for panel in [list(groups)] if shared_axis else [[group] for group in groups]:
        scale = _dot_scale(panel, EDGE + 8, right, x_log)
        top = y
        rows: list[str] = []
        for group in panel:
            rows.append(fitted(EDGE, y + 0.8 * FONT, group.name, WIDTH - 2 * EDGE, kind="group"))
            y += LINE
            for index, model in enumerate(models):
                if model in group.estimates:
                    rows += _dot(index, model, group, scale, y + ROW / 2)
                    y += ROW
            y += 8
        if scale is not None:
            parts += x_axis(scale, top + LINE, y, x_label)
            y += (2 if x_label.strip() else 1) * LINE + 18
        parts += rows
    values = (
        f"{group.name}: " + ", ".join(f"{m} {e}" for m, e in group.estimates.items()) + "."
        for group in groups
    )
    summary = " ".join([description, *values])
    return picture("dots", parts, y, title=title, description=summary)


def _check_groups(groups: Sequence[Group]) -> list[str]:
    """The models in the order in which they appear."""
    if not groups:
        raise ValueError("groups must not be empty")
    check_names([group.name for group in groups], "groups")
    for group in groups:
        if not group.estimates:
            raise ValueError(f"group {group.name!r} has no estimates")
    return list(dict.fromkeys(model for group in groups for model in group.estimates))


def _dot_scale(panel: Sequence[Group], left: float, right: float, log: bool) -> Scale | None:
    values = [
        value
        for group in panel
        for estimate in group.estimates.values()
        for value in (estimate.mean, estimate.low, estimate.high)
        if value is not None and can_show(value, log=log)
    ]
    return across(min(values), max(values), left, right, log=log) if values else None


def _value(estimate: Estimate) -> str:
    """What stands beside a dot; an interval that is not symmetric would take too much room."""
    written = str(estimate)
    return format_number(estimate.mean) if written.endswith(")") else written


def _dot(index: int, model: str, group: Group, scale: Scale | None, y: float) -> list[str]:
    """A model's marker and whisker, and its value at the right."""
    estimate = group.estimates[model]
    hover = f"{group.name}, {model}: {estimate}"
    parts = [text(WIDTH - EDGE, y + 0.35 * FONT, _value(estimate), anchor="end", kind="value")]
    if scale is None or not can_show(estimate.mean, log=scale.log):
        return parts
    if estimate.low is not None and estimate.high is not None:
        bounds = estimate.low, estimate.high
        if all(can_show(bound) for bound in bounds):
            low, high = (scale.place(bound) for bound in bounds)
            parts.append(
                f'<path class="whisker {colour(index)}" d="M{low:.1f} {y:.1f}H{high:.1f}'
                f'M{low:.1f} {y - CAP:.1f}v{2 * CAP:g}M{high:.1f} {y - CAP:.1f}v{2 * CAP:g}"/>'
            )
    parts.append(marker(index, scale.place(estimate.mean), y, hover))
    return parts
