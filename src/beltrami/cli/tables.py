"""Tables of a run in the terminal, however narrow it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from beltrami.cli.runs import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from beltrami.report.page import Table

NARROW_NAMES = 28  # characters of a metric's name and hint, where there is no room for more


def print_tables(console: Console, tables: Iterable[Table]) -> None:
    """A recipe's tables, one below the other."""
    for content in tables:
        for table in rich_tables(content, console):
            console.print(table)


def rich_tables(content: Table, console: Console) -> list[RichTable]:
    """One table, or in a narrow terminal one below another with as many columns as fit."""
    columns = range(len(content.columns))
    whole = _rich_table(content, columns, content.caption)
    if _width(whole, console) <= console.width:
        return [whole]
    parts: list[list[int]] = []
    for unit in _units(content.columns):
        wider = [*parts[-1], *unit] if parts else unit
        narrow = _rich_table(content, wider, "", names_up_to=NARROW_NAMES)
        if parts and _width(narrow, console) <= console.width:
            parts[-1] = wider
        else:
            parts.append(unit)
    captions = [content.caption, *("" for _ in parts[1:])]
    return [
        _rich_table(content, part, caption, names_up_to=NARROW_NAMES)
        for part, caption in zip(parts, captions, strict=True)
    ]


def _width(table: RichTable, console: Console) -> int:
    """What a table would take where there is room for everything."""
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _units(columns: Sequence[str]) -> list[list[int]]:
    """Columns that stay together: a model's, and its difference to the twin."""
    units: list[list[int]] = []
    for i, column in enumerate(columns):
        if units and column.startswith(f"{columns[units[-1][0]]} − "):
            units[-1].append(i)
        else:
            units.append([i])
    return units


def _rich_table(
    content: Table, columns: Sequence[int], caption: str, names_up_to: int | None = None
) -> RichTable:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=visible(caption) if caption else None, title_justify="left")
    table.add_column("", max_width=names_up_to)
    for i in columns:
        table.add_column(visible(content.columns[i]), justify="right")
    for row in content.rows:
        name = Text.assemble(visible(row.name))
        if row.hint:
            name.append(f"\n{row.hint}", "dim")
        table.add_row(name, *(visible(str(row.values[i])) for i in columns))
    return table
