"""Widths and losses out of a user's table: CSV, TSV, JSON or JSON lines, whatever it calls them."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beltrami.diagnosis.text_files import read_text

ENDINGS = (".csv", ".tsv", ".txt", ".json", ".jsonl")
# What people call them, the plainest first, as `_plain` writes it.
WIDTHS = (
    "width", "widths", "m", "dmodel", "modelwidth", "hiddensize", "hidden", "hiddendim", "nembd",
    "dim", "dims", "dimension", "dimensions",
)  # fmt: skip
LOSSES = (
    "loss", "losses", "testloss", "valloss", "validationloss", "evalloss", "finalloss",
    "crossentropy", "nll", "l",
)  # fmt: skip
FEWEST = 3  # different widths
_DELIMITERS = ("\t", ";", ",")


@dataclass(frozen=True)
class LossTable:
    """Widths and losses, pair by pair, and the columns that they come from."""

    widths: list[float]
    losses: list[float]
    width_column: str
    loss_column: str


@dataclass(frozen=True)
class _Row:
    """Cells by column, and how errors call the row."""

    where: str
    cells: Mapping[str, Any]


def read_losses(path: Path, *, width: str = "", loss: str = "") -> LossTable:
    """The table of a file; a `ValueError` names the row and the remedy.

    Args:
        path: of the file.
        width, loss: the columns, where their names do not tell.
    """
    if not path.is_file():
        raise ValueError(f"{path} is no file; give a table with the columns width and loss")
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{path}: expected a file that ends in {' '.join(ENDINGS)}")
    text = read_text(path, "the table")
    rows = _of_json(path, text, ending) if ending.startswith(".json") else _of_csv(path, text)
    if not rows:
        raise ValueError(f"{path} has no rows; give one a model, with its width and loss")
    # A key that only some rows of a JSON file have is a column, too.
    columns = list(dict.fromkeys(name for row in rows for name in row.cells))
    by_width = _column(path, columns, width, "width", WIDTHS)
    by_loss = _column(path, columns, loss, "loss", LOSSES)
    if by_width == by_loss:
        raise ValueError(f"{path}: --width and --loss both name {by_width!r}; give two columns")
    widths = [_positive(row, by_width) for row in rows]
    losses = [_positive(row, by_loss) for row in rows]
    distinct = sorted(set(widths))
    if len(distinct) < FEWEST:
        raise ValueError(
            f"{path}: its {len(rows)} rows have {len(distinct)} different widths "
            f"({', '.join(f'{w:g}' for w in distinct)}); a forecast needs {FEWEST}: add models of "
            "other widths"
        )
    return LossTable(widths, losses, by_width, by_loss)


def _of_csv(path: Path, text: str) -> list[_Row]:
    first = next((line for line in text.splitlines() if line.strip()), "")
    tabs = path.suffix.lower() == ".tsv"
    delimiter = "\t" if tabs else next((d for d in _DELIMITERS if d in first), ",")
    header: list[str] | None = None
    rows = []
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for fields in lines:
            fields = [field.strip() for field in fields]
            if not any(fields):
                continue
            if header is None:
                header = _header(path, fields)
                continue
            where = f"{path}, line {lines.line_num}"
            if len(fields) > len(header):
                raise ValueError(
                    f"{where} has {len(fields)} fields, and the first line names {len(header)}; "
                    "quote what holds a delimiter"
                )
            rows.append(_Row(where, dict(zip(header, fields, strict=False))))
    except csv.Error as error:
        raise ValueError(f"{path}, line {lines.line_num} is no CSV: {error}") from error
    return rows


def _header(path: Path, fields: Sequence[str]) -> list[str]:
    if all(_number(field) is not None for field in fields if field):
        raise ValueError(f"{path}: the first line has numbers; name the columns there: width,loss")
    named = [field for field in fields if field]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise ValueError(f"{path}: two columns are called {twice!r}; rename one")
    return [field or f"column {place}" for place, field in enumerate(fields, 1)]


def _of_json(path: Path, text: str, ending: str) -> list[_Row]:
    if ending == ".jsonl":
        told = [
            (f"{path}, line {number}", _parsed(f"{path}, line {number}", line))
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip()
        ]
    else:
        found = _parsed(str(path), text)
        if isinstance(found, dict):
            found = _rows_of_columns(path, found)
        if not isinstance(found, list):
            raise ValueError(
                f'{path}: expected a list of objects such as {{"width": 512, "loss": 3.2}}, or '
                'one object of lists, {"width": [...], "loss": [...]}'
            )
        told = [(f"{path}, row {number}", record) for number, record in enumerate(found, 1)]
    for where, record in told:
        if not isinstance(record, dict):
            raise ValueError(f"{where}: expected an object with width and loss, got {record!r:.60}")
    return [_Row(where, record) for where, record in told]


def _parsed(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is no JSON: {error}") from error


def _rows_of_columns(path: Path, columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of an object of lists; what is no list is no column."""
    lists = {name: values for name, values in columns.items() if isinstance(values, list)}
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"{path}: its lists are not equally long ({told})")
    count = next(iter(lengths.values()), 0)
    return [{name: values[i] for name, values in lists.items()} for i in range(count)]


def _column(path: Path, columns: Sequence[str], asked: str, what: str, known: Sequence[str]) -> str:
    """The column that was asked for, or the one whose name says what it is."""
    listed = ", ".join(columns)
    if asked:
        found = [c for c in columns if c == asked] or [
            c for c in columns if _plain(c) == _plain(asked)
        ]
        if len(found) != 1:
            raise ValueError(f"{path} has no column {asked!r} (--{what}); it has {listed}")
        return found[0]
    plain = {column: _plain(column) for column in columns}
    for name in known[:1]:  # the plainest name needs no choice
        if exact := [column for column in columns if plain[column] == name]:
            return exact[0]
    found = [column for column in columns if plain[column] in known]
    if len(found) == 1:
        return found[0]
    problem = f"several columns for {what} ({', '.join(found)})" if found else f"no column {what!r}"
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


def _positive(row: _Row, column: str) -> float:
    cell = row.cells.get(column)
    if cell is None or cell == "":
        raise ValueError(f"{row.where} has no {column}; fill it in, or delete the row")
    value = _number(cell)
    if value is None:
        raise ValueError(f"{row.where}: {column} is {cell!r:.60}, no number; correct it")
    if not 0 < value < math.inf:  # false for nan, too
        raise ValueError(
            f"{row.where}: {column} is {value:g}; widths and losses are finite and above 0: "
            "correct it, or delete the row"
        )
    return value
