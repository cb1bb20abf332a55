"""Tables of a run in the terminal, however narrow it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from beltrami.cli.runs import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from beltrami.report.page import Cell, Row, Table

# Characters of a metric's name and hint, where there is no room for more, and the fewest.
NARROW_NAMES, NARROWEST_NAMES = 28, 14


def print_tables(console: Console, tables: Iterable[Table]) -> None:
    """A recipe's tables, one below the other."""
    for content in tables:
        for table in rich_tables(content, console):
            console.print(table)


def rich_tables(content: Table, console: Console) -> list[RichTable]:
    """One table with a column for each model, its difference to the twin below its value.

    In a narrow terminal, one table below another with as many columns as fit.
    """
    models = _models(content.columns)
    whole = _rich_table(content, models, content.caption)
    if _width(whole, console) <= console.width:
        return [whole]
    parts: list[list[list[int]]] = []
    for model in models:
        wider = [*parts[-1], model] if parts else [model]
        if parts and _names_width(content, wider, console) >= NARROWEST_NAMES:
            parts[-1] = wider
        else:
            parts.append([model])
    names = min(NARROW_NAMES, *(_names_width(content, part, console) for part in parts))
    captions = [content.caption, *("" for _ in parts[1:])]
    return [
        _rich_table(content, part, caption, names_up_to=max(names, NARROWEST_NAMES))
        for part, caption in zip(parts, captions, strict=True)
    ]


def _width(table: RichTable, console: Console) -> int:
    """What a table would take where there is room for everything."""
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _names_width(content: Table, models: Sequence[Sequence[int]], console: Console) -> int:
    """Characters that are left for names beside the columns of some models."""
    one_character = _rich_table(content, models, "", names_up_to=1)
    return console.width - _width(one_character, console) + 1


def _models(columns: Sequence[str]) -> list[list[int]]:
    """Columns that belong together: a model's, and its difference to the twin."""
    models: list[list[int]] = []
    for i, column in enumerate(columns):
        if models and column.startswith(f"{columns[models[-1][0]]} − "):
            models[-1].append(i)
        else:
            models.append([i])
    return models


def _rich_table(
    content: Table,
    models: Sequence[Sequence[int]],
    caption: str,
    names_up_to: int | None = None,
) -> RichTable:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=visible(caption) if caption else None, title_justify="left")
    table.add_column("", max_width=names_up_to)
    for first, *differences in models:
        name = content.columns[first]
        below = [content.columns[i].removeprefix(name).strip() for i in differences]
        header = _lines([name, *below, *[" "] * (max(map(len, models)) - 1 - len(below))])
        table.add_column(header, justify="right", no_wrap=True)
    for row in content.rows:
        title = Text.assemble(visible(row.name))
        if row.hint:
            title.append(f"\n{row.hint}", "dim")
        table.add_row(title, *(_cell(row, places) for places in models))
    return table


def _cell(row: Row, places: Sequence[int]) -> Text:
    """A value, and below it the difference to the twin and the verdict."""
    lines: list[str] = []
    for i in places:
        value: str | Cell = row.values[i]
        lines += [value] if isinstance(value, str) else [value.text, value.verdict or ""]
    return _lines(lines)


def _lines(lines: Sequence[str]) -> Text:
    from rich.text import Text

    return Text("\n").join(visible(line) for line in lines if line)
