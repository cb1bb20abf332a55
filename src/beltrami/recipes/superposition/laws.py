"""The frequencies of laws, by their names."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from beltrami.models.superposition.frequencies import empirical, exponential, linear, power_law
from beltrami.recipes.superposition.law_names import law_number

COUNTED = ("count", "counts", "frequency", "freq")  # names of a column, in any case
GROUPED = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")  # thousands


def frequencies(text: str, n: int) -> Tensor:
    """The probabilities of n features, one of them a sample on average."""
    kind, _, rest = text.partition(":")
    if kind == "linear":
        return linear(n)
    if kind == "counts":
        return empirical(_counts(Path(rest), n))
    number = law_number(text)
    found = power_law(n, number) if kind == "power" else exponential(n, number)
    if not float(found.min()) > 0:
        remedy = "a smaller exponent" if kind == "power" else "a larger scale"
        raise ValueError(
            f"--laws {text} falls below what numbers can hold within {n} features; give {remedy}, "
            "or fewer --features"
        )
    return found


def _counts(path: Path, n: int) -> Tensor:
    """The largest counts of a text file: of its column of counts, or at the ends of its lines.

    Lines with tabs are split there alone, so that a count may be 1,234,567; others at commas or
    blanks. A head line may name the column; zeros are left out.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--laws counts:{path}: cannot read it ({error})") from error
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    column = None
    if lines and _number(_last(lines[0][1])) is None:
        column = _Column.of(lines.pop(0)[1])
    found = []
    for number, line in lines:
        where = f"--laws counts:{path}: line {number}"
        told = _last(line) if column is None else column.field(line)
        if told is None:
            raise ValueError(f"{where} has another number of columns than the head line")
        value = _number(told)
        if value is None:
            has = "ends with" if column is None else "has"
            raise ValueError(f"{where} {has} {told!r:.40}, which is no count")
        if not 0 <= value < math.inf:  # false for nan, too
            raise ValueError(f"{where} has {told!r:.40}; a count is finite and not below 0")
        if value > 0:
            found.append(value)
    if len(found) < n:
        raise ValueError(
            f"--laws counts:{path} has {len(found)} counts above 0, and --features asks for {n}"
        )
    return torch.tensor(sorted(found, reverse=True)[:n], dtype=torch.float64)


def _last(line: str) -> str:
    """The last field of a line that is not blank."""
    line = line.rstrip()  # also of a tab at the end
    if "\t" in line:
        return line.split("\t")[-1].strip()
    return (line.replace(",", " ").split() or [""])[-1]


def _number(field: str) -> float | None:
    """What a field says; None of one that is no number."""
    try:
        return float(field.replace(",", "") if GROUPED.fullmatch(field) else field)
    except ValueError:
        return None


@dataclass(frozen=True)
class _Column:
    """A column that a head line names: its place, and how lines like the head line are split."""

    place: int
    columns: int
    separator: str | None

    @classmethod
    def of(cls, head: str) -> _Column | None:
        """None where the last is meant, which is found in lines with more columns, too."""
        separator = "\t" if "\t" in head else "," if "," in head else None
        names = [name.strip().lower() for name in _fields(head, separator)]
        place = next((i for i, name in enumerate(names) if name in COUNTED), len(names) - 1)
        return None if place == len(names) - 1 else cls(place, len(names), separator)

    def field(self, line: str) -> str | None:
        """None where the line has other columns."""
        fields = _fields(line, self.separator)
        return fields[self.place].strip() if len(fields) == self.columns else None


def _fields(line: str, separator: str | None) -> list[str]:
    """Commas may be inside quotes; in lists with tabs a quote is a word as any other."""
    return next(csv.reader([line])) if separator == "," else line.split(separator)
