"""`.parquet` files: columns of numbers, or one column of lists, read batch by batch.

Columns of text are labels and extras by the rules of CSV files. Where a column of lists holds the
vectors, other columns of numbers are extras. Nulls are NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beltrami.data.vectors.columns import Layout, arrange, beside_columns, label_column
from beltrami.data.vectors.library import first_line, library
from beltrami.data.vectors.numbers import narrowed, table_shape
from beltrami.data.vectors.table import BLOCK_ROWS, Vectors, VectorsError

PANDAS_INDEX = "__index_level_"  # how pandas names the index's columns; they are not vectors


class ParquetVectors(Vectors):
    """Columns of a parquet file."""

    def __init__(
        self, file: Any, path: Path, width: int, columns: Sequence[str], **details: Any
    ) -> None:
        """The vectors in `columns` of an opened file; one column of lists, if it is one."""
        super().__init__(path, table_shape((file.metadata.num_rows, width), str(path)), **details)
        self._file, self.columns = file, list(columns)
        self._lists = _is_list(file.schema_arrow.field(self.columns[0]).type)

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[tuple[int, Tensor]]:
        """(first row, float32 block of at most `rows` rows), in order, until all were given."""
        if rows < 1:
            raise ValueError(f"rows must be at least 1, got {rows}")
        yield from self._batches(rows, range(self._file.num_row_groups), 0)

    def _read(self, first: int, last: int) -> Tensor:
        return self._pick(torch.arange(first, last))

    def _pick(self, ascending: Tensor) -> Tensor:
        out = torch.empty(len(ascending), self.width)
        end = 0
        for group in range(self._file.num_row_groups):
            start, end = end, end + self._file.metadata.row_group(group).num_rows
            if not len(_between(ascending, start, end)):
                continue
            for first, block in self._batches(BLOCK_ROWS, [group], start):
                wanted = _between(ascending, first, first + len(block))
                out[wanted] = block[ascending[wanted] - first]
        return out

    def _batches(
        self, rows: int, groups: Sequence[int], first: int
    ) -> Iterator[tuple[int, Tensor]]:
        for batch in self._file.iter_batches(rows, row_groups=groups, columns=self.columns):
            if not batch.num_rows:
                continue
            if self._lists:
                block = self._list_block(batch.column(self.columns[0]), first)
            else:
                block = np.empty((batch.num_rows, self.width), dtype=np.float32)
                for place, name in enumerate(self.columns):
                    where = f"{self.path}, column {name!r}"
                    block[:, place] = narrowed(_numbers(batch.column(name)), where, first)
            yield first, torch.from_numpy(block)
            first += batch.num_rows

    def _list_block(self, column: Any, first: int) -> NDArray[np.float32]:
        where = f"{self.path}, column {self.columns[0]!r}"
        lengths = np.array([-1 if size is None else size for size in _lengths(column)])
        wrong = np.flatnonzero(lengths != self.width)
        if len(wrong):
            size = lengths[wrong[0]]
            cell = "null" if size < 0 else f"a list of {size} numbers"
            raise VectorsError(
                f"{where}, row {first + int(wrong[0])}: {cell}, where {self.width} numbers are "
                "expected, as in row 0; all lists must be equally long"
            )
        numbers = _numbers(column.flatten()).reshape(len(column), self.width)
        return narrowed(numbers, where, first)


def open_parquet(
    path: Path,
    tensor: str | None = None,
    label: str | None = None,
    besides: Sequence[str] = (),
) -> Vectors:
    """The table in a file.

    Args:
        path: of the file.
        tensor: the column of lists, where there are several.
        label: the column of labels; if not given, the first one of text.
        besides: columns of numbers that are not dimensions, but extras.
    """
    parquet = library("pyarrow.parquet", extra="parquet", needs=f"{path.name}, a parquet file,")
    try:
        file = parquet.ParquetFile(path)
    except (OSError, ValueError) as error:  # pyarrow's own errors are one or the other
        raise VectorsError(
            f"{path} is not a parquet file that can be read: {first_line(error)}"
        ) from error
    fields = list(file.schema_arrow)
    names = [str(field.name) for field in fields]
    numeric = [
        _is_number(field.type) and not name.startswith(PANDAS_INDEX)
        for field, name in zip(fields, names, strict=True)
    ]
    lists = [place for place, field in enumerate(fields) if _is_list(field.type)]
    chosen = label_column(names, label, str(path))
    beside = beside_columns(names, besides, str(path))
    vectors = _list_column(names, lists, tensor, path)
    if vectors is None:
        layout = arrange(names, numeric, chosen, str(path), besides=beside)
        width = len(layout.vectors)
    elif chosen == vectors:
        raise VectorsError(f"{path}: {names[vectors]!r} holds the vectors, not labels")
    else:
        rest = [place for place in range(len(names)) if place not in lists]
        if chosen is None:
            chosen = next((place for place in rest if not numeric[place]), None)
        layout = Layout((vectors,), chosen, tuple(place for place in rest if place != chosen))
        width = _first_length(file, names[vectors])
    named = [("tensor", tensor), ("label", label), *(("besides", name) for name in besides)]
    return ParquetVectors(
        file,
        path,
        width,
        [names[place] for place in layout.vectors],
        labels=None if layout.label is None else _texts(file, names[layout.label]),
        extras={
            names[place]: (_floats if numeric[place] else _texts)(file, names[place])
            for place in layout.extras
        },
        tensor=tensor,
        choices=[f"{key}={value}" for key, value in named if value],
    )


def _arrow(module: str = "pyarrow") -> Any:
    return library(module, extra="parquet", needs="a parquet file")


def _is_number(kind: Any) -> bool:
    types = _arrow("pyarrow.types")
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


def _is_list(kind: Any) -> bool:
    types = _arrow("pyarrow.types")
    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(test(kind) for test in tests) and _is_number(kind.value_type)


def _list_column(
    names: Sequence[str], lists: Sequence[int], tensor: str | None, path: Path
) -> int | None:
    """The place of the column of lists that are the vectors, if there is one."""
    listed = ", ".join(names[place] for place in lists) or "no such column"
    wanted = [place for place in lists if tensor in (None, names[place])]
    if tensor is not None and not wanted:
        raise VectorsError(
            f"{path} has no column {tensor!r} of lists for tensor= (--tensor); it has {listed}"
        )
    if tensor is None and len(wanted) > 1:
        raise VectorsError(
            f"{path} has {len(lists)} columns of lists; name one with tensor= (--tensor): {listed}"
        )
    return wanted[0] if wanted else None


def _between(ascending: Tensor, first: int, last: int) -> Tensor:
    """The places of the rows from first to last - 1."""
    ends = torch.searchsorted(ascending, torch.tensor([first, last]))
    return torch.arange(int(ends[0]), int(ends[1]))


def _numbers(column: Any) -> NDArray[Any]:
    """A column as numpy's numbers, NaN for null."""
    pyarrow = _arrow()
    if pyarrow.types.is_boolean(column.type):
        column = column.cast(pyarrow.int8())
    elif pyarrow.types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    array: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def _lengths(column: Any) -> list[int | None]:
    compute = _arrow("pyarrow.compute")
    lengths: list[int | None] = compute.list_value_length(column).to_pylist()
    return lengths


def _first_length(file: Any, name: str) -> int:
    for batch in file.iter_batches(1, columns=[name]):
        if batch.num_rows:
            return _lengths(batch.column(name))[0] or 0
    return 0


def _floats(file: Any, name: str) -> list[float]:
    columns = (_numbers(b.column(name)) for b in file.iter_batches(BLOCK_ROWS, columns=[name]))
    return [float(value) for column in columns for value in column]


def _texts(file: Any, name: str) -> list[str]:
    """A column as text; null is the empty one."""
    values = file.read(columns=[name]).column(name).to_pylist()
    return ["" if value is None else str(value) for value in values]
