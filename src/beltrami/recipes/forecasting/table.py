"""Widths and losses out of a user's table: CSV, TSV, JSON or JSON lines, whatever it calls them."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beltrami.diagnosis.text_files import read_text

ENDINGS = (".csv", ".tsv", ".txt", ".json", ".jsonl")
# What people call them, the plainest first, as `_plain` writes it.
KNOWN = {
    "width": (
        "width", "widths", "m", "dmodel", "modelwidth", "hiddensize", "hidden", "hiddendim",
        "nembd", "dim", "dims", "dimension", "dimensions",
    ),
    "loss": (
        "loss", "losses", "testloss", "valloss", "validationloss", "evalloss", "finalloss",
        "crossentropy", "nll", "l",
    ),
}  # fmt: skip
FEWEST = 3  # different widths

Record = tuple[str, dict[str, Any]]
"""How errors call a row, and its cells by column."""


@dataclass(frozen=True)
class LossTable:
    """Widths and losses, pair by pair, and the columns that they come from."""

    widths: list[float]
    losses: list[float]
    width_column: str
    loss_column: str


def read_losses(path: Path, *, width: str = "", loss: str = "") -> LossTable:
    """The table of a file; a `ValueError` names the row and the remedy.

    Args:
        path: of the file.
        width, loss: the columns, where their names do not tell.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not a file; give a table with the columns width and loss")
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{path}: expected a file that ends in {' '.join(ENDINGS)}")
    text = read_text(path, "the table")
    records = _of_json(path, text) if ending.startswith(".json") else _of_csv(path, text)
    if not records:
        raise ValueError(f"{path} has no rows; give one a model, with its width and loss")
    # A key that only some rows of a JSON file have is a column, too.
    columns = list(dict.fromkeys(name for _, cells in records for name in cells))
    by_width = _column(path, columns, width, "width")
    by_loss = _column(path, columns, loss, "loss")
    if by_width == by_loss:
        raise ValueError(f"{path}: --width and --loss both name {by_width!r}; give two columns")
    widths = [_positive(record, by_width) for record in records]
    losses = [_positive(record, by_loss) for record in records]
    distinct = sorted(set(widths))
    if len(distinct) < FEWEST:
        raise ValueError(
            f"{path}: its {len(records)} rows have {len(distinct)} different widths "
            f"({', '.join(f'{w:g}' for w in distinct)}); a forecast needs {FEWEST}: add models of "
            "other widths"
        )
    return LossTable(widths, losses, by_width, by_loss)


def _of_csv(path: Path, text: str) -> list[Record]:
    first = next((line for line in text.splitlines() if line.strip()), "")
    tabs = path.suffix.lower() == ".tsv"
    delimiter = "\t" if tabs else next((d for d in "\t;," if d in first), ",")
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        rows = [(lines.line_num, [field.strip() for field in fields]) for fields in lines]
    except csv.Error as error:
        raise ValueError(f"{path}, line {lines.line_num} is not valid CSV: {error}") from error
    rows = [(line, fields) for line, fields in rows if any(fields)]
    if not rows:
        return []
    header = _header(path, rows[0][1])
    records: list[Record] = []
    for line, fields in rows[1:]:
        if len(fields) > len(header):
            raise ValueError(
                f"{path}, line {line} has {len(fields)} fields, and the first line names "
                f"{len(header)}; quote what holds a delimiter"
            )
        records.append((f"{path}, line {line}", dict(zip(header, fields, strict=False))))
    return records


def _header(path: Path, fields: Sequence[str]) -> list[str]:
    named = [field for field in fields if field]
    if all(_number(field) is not None for field in named):
        raise ValueError(f"{path}: the first line has numbers; name the columns there: width,loss")
    if twice := [name for name in named if named.count(name) > 1]:
        raise ValueError(f"{path}: two columns are called {twice[0]!r}; rename one")
    return [field or f"column {place}" for place, field in enumerate(fields, 1)]


def _of_json(path: Path, text: str) -> list[Record]:
    """Of JSON lines, of a list of objects, or of one object of lists."""
    if path.suffix.lower() == ".jsonl":
        lines = [(f"{path}, line {i}", line) for i, line in enumerate(text.split("\n"), 1)]
        records = [(where, _parsed(where, line)) for where, line in lines if line.strip()]
    else:
        content = _parsed(str(path), text)
        if isinstance(content, dict):
            lists = {name: values for name, values in content.items() if isinstance(values, list)}
            if len({len(values) for values in lists.values()}) > 1:
                lengths = ", ".join(f"{name} {len(values)}" for name, values in lists.items())
                raise ValueError(f"{path}: its lists are not equally long ({lengths})")
            rows = zip(*lists.values(), strict=True)
            content = [dict(zip(lists, row, strict=True)) for row in rows]
        if not isinstance(content, list):
            raise ValueError(
                f'{path}: expected a list of objects such as {{"width": 512, "loss": 3.2}}, or '
                'one object of lists, {"width": [...], "loss": [...]}'
            )
        records = [(f"{path}, row {number}", record) for number, record in enumerate(content, 1)]
    for where, record in records:
        if not isinstance(record, dict):
            raise ValueError(f"{where}: expected an object with width and loss, got {record!r:.60}")
    return records


def _parsed(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not valid JSON: {error}") from error


def _column(path: Path, columns: Sequence[str], option: str, what: str) -> str:
    """The column that an option names, or the one whose name says what it is."""
    listed = ", ".join(columns)
    plain = {column: _plain(column) for column in columns}
    if option:
        matches = (
            [option] if option in columns else [c for c in columns if _plain(option) == plain[c]]
        )
        if len(matches) != 1:
            raise ValueError(f"{path} has no column {option!r} (--{what}); it has {listed}")
        return matches[0]
    plainest = [column for column in columns if plain[column] == what]  # needs no choice
    matches = plainest[:1] or [column for column in columns if plain[column] in KNOWN[what]]
    if len(matches) == 1:
        return matches[0]
    several = f"several columns for {what} ({', '.join(matches)})"
    problem = several if matches else f"no column {what!r}"
    raise ValueError(f"{path} has {problem}; name one with --{what}: it has {listed}")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _number(cell: Any) -> float | None:
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        return None
    try:
        return float(cell)
    except (ValueError, OverflowError):
        return None


def _positive(record: Record, column: str) -> float:
    where, cells = record
    cell = cells.get(column)
    if cell is None or cell == "":
        raise ValueError(f"{where} has no {column}; fill it in, or delete the row")
    value = _number(cell)
    if value is None:
        raise ValueError(f"{where}: {column} is {cell!r:.60}, no number; correct it")
    if not 0 < value < math.inf:  # false for nan, too
        raise ValueError(
            f"{where}: {column} is {value:g}; widths and losses are finite and above 0: "
            "correct it, or delete the row"
        )
    return value
