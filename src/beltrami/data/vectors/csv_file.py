"""`.csv` and `.tsv` files: columns of numbers, with labels and further text beside them.

    word,x,y,kind
    dog,0.5,-1,animal
    oak,0.25,2,plant

The header is optional. A first row is one unless it holds numbers alone, or numbers where the rows
below have them; names such as 0, 1, 2 that merely count the columns are a header. A column is one
of numbers if at least half of its values are, missing ones not counted, and then all must be.
Fields may be quoted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from beltrami.data.delimited import read_records
from beltrami.data.text import is_number, quoted
from beltrami.data.vectors.arrays import ArrayVectors
from beltrami.data.vectors.columns import arrange, beside_columns, label_column
from beltrami.data.vectors.numbers import LARGEST
from beltrami.data.vectors.table import Vectors, VectorsError

DELIMITERS = {".csv": ",", ".tsv": "\t"}
MISSING = {"", "na", "n/a", "null", "none", "?", "-"}  # what stands for a missing number

Record = tuple[int, list[str]]  # the line that it begins on, and its fields


@dataclass
class _Count:
    """How many values of a column are numbers or missing, and the first that is not a number."""

    numbers: int = 0
    missing: int = 0
    other: tuple[int, str] | None = None

    def add(self, line: int, value: str) -> None:
        if _is_number(value):
            self.numbers += 1
            return
        self.missing += value.strip().casefold() in MISSING
        if self.other is None or line < self.other[0]:
            self.other = (line, value)


@dataclass
class _Survey:
    """What a first look at the file tells: its columns' names, and which hold numbers."""

    first: Record
    counts: list[_Count]
    rows: int = 0
    header: bool = False
    names: list[str] = field(default_factory=list)
    first_is_whole: bool = True  # the first column, in all rows
    first_numbers_rows: bool = False  # and it has no name before others, as pandas writes it

    def is_numeric(self, column: int) -> bool:
        """Whether at least half of a column's values, without the missing ones, are numbers."""
        count = self.counts[column]
        return count.numbers > 0 and 2 * count.numbers >= self.rows - count.missing


def open_csv(path: Path, label: str | None = None, besides: Sequence[str] = ()) -> Vectors:
    """The table in a file; its numbers are kept as float32, 4 bytes each.

    Args:
        path: of the file; its ending tells the delimiter.
        label: the column of labels; if not given, the first one that holds no numbers.
        besides: columns of numbers that are not dimensions, but extras.
    """
    survey = _survey(path)
    chosen = label_column(survey.names, label, str(path))
    beside = beside_columns(survey.names, besides, str(path))
    numeric = [survey.is_numeric(column) for column in range(len(survey.names))]
    for column, name in enumerate(survey.names):
        other = survey.counts[column].other
        if numeric[column] and other is not None and column not in (chosen, *beside):
            missing = other[1].strip().casefold() in MISSING
            hint = "write nan for a missing number" if missing else "correct it"
            raise VectorsError(
                f"{path}, line {other[0]}: {quoted(other[1])} in column {name!r} is not a number, "
                f"but {survey.counts[column].numbers} of its {survey.rows} values are; {hint}, or "
                "name the column with label= (--label) if it holds labels"
            )
    index = 0 if survey.first_numbers_rows else None
    layout = arrange(survey.names, numeric, chosen, str(path), index=index, besides=beside)
    matrix = np.empty((survey.rows, len(layout.vectors)), dtype=np.float32)
    labels: list[str] = []
    extras: dict[str, list[Any]] = {survey.names[column]: [] for column in layout.extras}
    for row, (line, fields) in enumerate(islice(_read(path), int(survey.header), None)):
        _fill(matrix[row], [fields[column] for column in layout.vectors], f"{path}, line {line}")
        if layout.label is not None:
            labels.append(fields[layout.label])
        for column in layout.extras:
            text = fields[column]
            number = float(text) if is_number(text) else math.nan
            extras[survey.names[column]].append(number if numeric[column] else text)
    vectors = ArrayVectors(
        matrix,
        path,
        labels=None if layout.label is None else labels,
        extras=extras,
        choices=[*([] if label is None else [label]), *(f"besides={name}" for name in besides)],
    )
    vectors.columns = [survey.names[column] for column in layout.vectors]
    return vectors


def _read(path: Path) -> Iterator[Record]:
    return read_records(path, DELIMITERS[path.suffix.lower()], error=VectorsError)


def _survey(path: Path) -> _Survey:
    """Read the file once, to know its columns before numbers are kept."""
    records = _read(path)
    first = next(records, None)
    if first is None:
        raise VectorsError(f"{path} is empty; it needs rows of numbers")
    columns = len(first[1])
    survey = _Survey(first, [_Count() for _ in range(columns)])
    for line, fields in records:
        if len(fields) != columns:
            raise VectorsError(
                f"{path}, line {line}: {len(fields)} columns, but line {first[0]} has {columns}; "
                f"correct it, or quote fields that hold the delimiter: {quoted(str(fields[0]))}"
            )
        _count(survey, line, fields)
    survey.header = _is_header(survey)
    if survey.header:
        blank, *named = (name.strip() for name in first[1])
        unnamed = not blank and bool(named) and all(named)
        survey.first_numbers_rows = unnamed and survey.first_is_whole
        survey.names = [
            name.strip() or f"column {place}" for place, name in enumerate(first[1], start=1)
        ]
    else:
        survey.names = [f"column {place}" for place in range(1, columns + 1)]
        _count(survey, *first)
    if not survey.rows:
        raise VectorsError(f"{path} is empty: it has a header, but no rows; add some")
    return survey


def _count(survey: _Survey, line: int, fields: Sequence[str]) -> None:
    survey.rows += 1
    survey.first_is_whole &= fields[0].strip().isdecimal()
    for count, value in zip(survey.counts, fields, strict=True):
        count.add(line, value)


def _is_header(survey: _Survey) -> bool:
    fields = survey.first[1]
    if all(map(_is_number, fields)):
        return False
    below = [
        value for column, value in enumerate(fields) if survey.is_numeric(column) or not survey.rows
    ]
    numbers = [value for value in below if _is_number(value)]
    if not numbers:
        return True
    if not all(value.strip().isdecimal() for value in numbers):
        return False
    steps = np.diff([int(value) for value in numbers])
    counting = len(numbers) > 1 or (bool(survey.rows) and len(below) > 1)
    return counting and bool((steps == 1).all())


def _fill(
    row: np.ndarray[tuple[int, ...], np.dtype[np.float32]], values: list[str], where: str
) -> None:
    numbers = [float(value) for value in values]
    with np.errstate(over="ignore"):
        row[:] = numbers
    if np.isinf(row).any():
        for value, number in zip(values, numbers, strict=True):
            # "inf" is meant; a number with digits that became infinite is not.
            if abs(number) > LARGEST and any(map(str.isdigit, value)):
                raise VectorsError(
                    f"{where}: {quoted(value)} is beyond float32 (±{LARGEST:.2g}); scale the "
                    "table down"
                )


def _is_number(value: str) -> bool:
    # "1_000" is Python's own way to write large numbers, in no other program.
    return is_number(value) and "_" not in value
