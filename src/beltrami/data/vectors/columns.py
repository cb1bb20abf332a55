"""Which columns of a table are vectors, labels and extras; the same for CSV and parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from beltrami.data.hierarchy import did_you_mean, quoted_names
from beltrami.data.vectors.table import VectorsError


@dataclass(frozen=True)
class Layout:
    """The places of the columns."""

    vectors: tuple[int, ...]
    label: int | None
    extras: tuple[int, ...]


def label_column(names: Sequence[str], label: str | None, where: str) -> int | None:
    """The place of the column that the user named for labels; None where none was named."""
    return None if label is None else _place(names, label, "label= (--label)", where)


def beside_columns(names: Sequence[str], besides: Sequence[str], where: str) -> tuple[int, ...]:
    """The places of columns that the user named with besides=: not dimensions."""
    return tuple(_place(names, name, "besides= (--besides)", where) for name in besides)


def _place(names: Sequence[str], wanted: str, what: str, where: str) -> int:
    places = [place for place, name in enumerate(names) if name == wanted]
    if len(places) == 1:
        return places[0]
    if places:
        raise VectorsError(f"{where}: {len(places)} columns are called {wanted!r}; rename one")
    hint = did_you_mean(wanted, names) or f"it has {quoted_names(names)}"
    raise VectorsError(f"{where} has no column {wanted!r} for {what}; {hint}")


def arrange(
    names: Sequence[str],
    numeric: Sequence[bool],
    label: int | None,
    where: str,
    *,
    index: int | None = None,
    besides: Sequence[int] = (),
) -> Layout:
    """Columns of numbers are vectors, the first other one is the labels, the rest are extras.

    Args:
        names: of the columns. numeric: which hold numbers. where: how errors call the table.
        label: the place of the column that was named for labels, whatever it holds.
        index: the place of a column that numbers the rows: the labels if there are no others.
        besides: columns that are extras, whatever they hold.
    """
    others = [i for i, number in enumerate(numeric) if not number and i not in besides]
    if label is None:
        label = others[0] if others else index
    apart = (label, index, *besides)
    vectors = tuple(i for i, number in enumerate(numeric) if number and i not in apart)
    if not vectors:
        raise VectorsError(
            f"{where} has no column of numbers to be vectors; its columns are {quoted_names(names)}"
        )
    extras = tuple(place for place in sorted({*others, *besides}) if place != label)
    for name, count in Counter(names[place] for place in extras).items():
        if count > 1:
            raise VectorsError(f"{where}: two columns are called {name!r}; rename one")
    return Layout(vectors, label, extras)
