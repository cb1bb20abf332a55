"""Laws of frequencies by their names; torch is loaded only where probabilities are asked for."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

FORMS = "power:EXPONENT, linear, exponential:SCALE or counts:FILE"
COUNTED = ("count", "counts", "frequency", "freq")  # names of a column, in any case
GROUPED = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")  # thousands


def law_title(text: str) -> str:
    """What to call a law on a page; a `ValueError` for a name that is not a law."""
    kind, colon, rest = text.partition(":")
    if kind == "linear" and not colon:
        return kind
    if kind == "counts" and rest:
        return f"counts of {Path(rest).name}"
    if kind in ("power", "exponential") and colon:
        return f"{'power law' if kind == 'power' else kind} {law_number(text):g}"
    raise ValueError(f"--laws must be {FORMS}, got {text!r}")


def law_number(text: str) -> float:
    """The number after the colon: an exponent, 0 or more, or a scale, above 0."""
    kind, _, digits = text.partition(":")
    value = _number(digits)
    if value is None or not (value > 0 or (value == 0 and kind == "power")) or value == math.inf:
        least = "of 0 or more" if kind == "power" else "above 0"
        raise ValueError(f"--laws {text!r} needs a number {least} after the colon")
    return value


def frequencies(text: str, n: int) -> Tensor:
    """The probabilities of n features, one of them a sample on average."""
    import torch

    from beltrami.models.superposition import empirical, exponential, linear, power_law

    kind, _, rest = text.partition(":")
    if kind == "linear":
        return linear(n)
    if kind == "counts":
        return empirical(torch.tensor(_counts(Path(rest), n), dtype=torch.float64))
    number = law_number(text)
    p = power_law(n, number) if kind == "power" else exponential(n, number)
    if not float(p.min()) > 0:
        remedy = "a smaller exponent" if kind == "power" else "a larger scale"
        raise ValueError(
            f"--laws {text} falls below what numbers can hold within {n} features; give {remedy}, "
            "or fewer --features"
        )
    return p


def _counts(path: Path, n: int) -> list[float]:
    """The largest counts of a text file: of its column of counts, or at the ends of its lines.

    Lines with tabs are split there alone, so that a count may be 1,234,567; others at commas or
    blanks. A head line may name the column; zeros are left out.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--laws counts:{path}: cannot read it ({error})") from error
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    separator, names, place = None, [""], -1
    if lines and _number(_last(lines[0][1])) is None:
        head = lines.pop(0)[1]
        separator = "\t" if "\t" in head else "," if "," in head else None
        names = [name.strip().lower() for name in _fields(head, separator)]
        place = next((i for i, name in enumerate(names) if name in COUNTED), -1)
    at_end = place in (-1, len(names) - 1)  # then lines may have more columns
    counts = []
    for number, line in lines:
        where = f"--laws counts:{path}: line {number}"
        fields = [_last(line)] if at_end else _fields(line, separator)
        if not at_end and len(fields) != len(names):
            raise ValueError(f"{where} has another number of columns than the head line")
        field = fields[-1 if at_end else place].strip()
        value = _number(field)
        if value is None:
            has = "ends with" if at_end else "has"
            raise ValueError(f"{where} {has} {field!r:.40}, which is not a count")
        if not 0 <= value < math.inf:  # false for nan, too
            raise ValueError(f"{where} has {field!r:.40}; a count is finite and not below 0")
        counts.append(value)
    positive = sorted((value for value in counts if value > 0), reverse=True)
    if len(positive) < n:
        raise ValueError(
            f"--laws counts:{path} has {len(positive)} counts above 0, and --features asks for {n}"
        )
    return positive[:n]


def _last(line: str) -> str:
    """The last field of a line that is not blank."""
    line = line.rstrip()  # also of a tab at the end
    fields = line.split("\t") if "\t" in line else line.replace(",", " ").split()
    return (fields or [""])[-1].strip()


def _number(field: str) -> float | None:
    try:
        return float(field.replace(",", "") if GROUPED.fullmatch(field) else field)
    except ValueError:
        return None


def _fields(line: str, separator: str | None) -> list[str]:
    """Commas may be inside quotes; in lists with tabs a quote is a word as any other."""
    return next(csv.reader([line])) if separator == "," else line.split(separator)
