"""A table of numbers as coloured cells: heat maps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from beltrami.report import chart_frame as frame
from beltrami.report.chart_frame import EDGE, FONT, LINE, WIDTH, text
from beltrami.report.text import markup, shorten, text_width
from beltrami.report.ticks import format_number

CELL = 24.0  # its height
SMALL = 12.0  # letters inside a cell
MOST_NAME = 150.0  # of the names of rows
FAINTEST, STRONGEST = 0.04, 0.62  # of a colour behind ink that must be read
DECIMALS = 2  # of the number inside a cell
SUMMARISED = 60  # cells in the description for screen readers


def heat_map(
    values: Sequence[Sequence[float]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    limits: tuple[float, float] | None = None,
) -> str:
    """A cell for each row and column, the stronger the larger its number, which it also has.

    Args:
        values: a list of numbers a row; those that are not finite leave a cell empty.
        rows, columns: their names.
        title, description, x_label, y_label: as for `line_chart`.
        limits: the numbers of the faintest and the strongest colour; None takes those there are.
    """
    if len(values) != len(rows) or not rows or not columns:
        raise ValueError(f"values must have a list a row, got {len(values)} for {len(rows)} names")
    for name, row in zip(rows, values, strict=True):
        if len(row) != len(columns):
            raise ValueError(f"row {name!r} has {len(row)} values for {len(columns)} columns")
    shown = [v for row in values for v in row if math.isfinite(v)]
    low, high = limits or ((min(shown), max(shown)) if shown else (0.0, 1.0))
    if not low <= high:
        raise ValueError(f"limits must be in order, got {low} and {high}")
    left = EDGE + min(MOST_NAME, max(text_width(name, FONT) for name in rows)) + 8
    wide = (WIDTH - EDGE - left) / len(columns)
    top = EDGE + LINE
    foot = top + CELL * len(rows)
    parts = [text(EDGE, EDGE + FONT, y_label, kind="name", room=frame.FULL)]
    for i, (name, row) in enumerate(zip(rows, values, strict=True)):
        y = top + i * CELL
        cut = shorten(name, left - EDGE - 7, FONT)
        parts.append(text(left - 8, y + CELL / 2 + 0.35 * FONT, cut, anchor="end", kind="tick"))
        for j, value in enumerate(row):
            if math.isfinite(value):
                share = min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5
                hover = f"{name}, {columns[j]}: {format_number(value)}"
                parts += _cell(left + j * wide, y, wide, share, hover, f"{value:.{DECIMALS}f}")
    # Of column names that do not fit, every second, third, ... one.
    step = max(1, math.ceil((max(text_width(name, FONT) for name in columns) + 6) / wide))
    for j in range(0, len(columns), step):
        x = left + (j + 0.5) * wide
        parts.append(text(x, foot + LINE - 4, columns[j], anchor="middle", kind="tick"))
    parts.append(text(left, foot + 2 * LINE, x_label, kind="name", room=WIDTH - EDGE - left))
    note = frame.hidden_note(sum(map(len, values)) - len(shown))
    parts, height = frame.with_note(parts, foot, note)
    if len(rows) * len(columns) <= SUMMARISED:
        for name, row in zip(rows, values, strict=True):
            cells = (f"{c} {format_number(v)}" for c, v in zip(columns, row, strict=True))
            description += f" {name}: {', '.join(cells)}."
    return frame.chart("heat", parts, height, title=title, description=description)


def _cell(x: float, y: float, wide: float, share: float, hover: str, written: str) -> list[str]:
    """A cell with its number, where there is room for it; `share` of the strongest colour."""
    strength = FAINTEST + share * (STRONGEST - FAINTEST)
    parts = [
        f'<rect class="s0" fill="currentColor" fill-opacity="{strength:.3f}" x="{x:.1f}" '
        f'y="{y:.1f}" width="{wide:.1f}" height="{CELL:g}"><title>{markup(hover)}</title></rect>'
    ]
    written = written.replace("-", "−")
    if text_width(written, SMALL) + 2 <= wide:
        parts.append(
            f'<text style="font-size:{SMALL:g}px" x="{x + wide / 2:.1f}" '
            f'y="{y + CELL / 2 + 0.35 * SMALL:.1f}" text-anchor="middle">{written}</text>'
        )
    return parts
