"""Which arrays are tables of numbers, and their numbers as float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beltrami.data.vectors.table import VectorsError

REAL_KINDS = "fiub"  # numpy's letters of floats, integers and bool
LARGEST = float(np.finfo(np.float32).max)


def table_shape(shape: Sequence[int], where: str) -> tuple[int, int]:
    """(rows, width) of a table with at least one of each; else a `VectorsError`."""
    if len(shape) == 0:
        raise VectorsError(f"{where} is a single number; a table has two dimensions")
    if len(shape) == 1:
        raise VectorsError(
            f"{where} is a list of {shape[0]} numbers, not a table; save array.reshape(1, -1) if "
            "it is one vector, array.reshape(-1, 1) if it is one number a row"
        )
    if len(shape) > 2:
        raise VectorsError(
            f"{where} has shape {tuple(shape)}; a table has two dimensions: save "
            f"array.reshape(-1, {shape[-1]}), or a part of it"
        )
    rows, width = shape
    if not rows or not width:
        missing = "rows" if not rows else "columns"
        raise VectorsError(
            f"{where} is empty: it has no {missing} (shape {rows} x {width}); save it with some"
        )
    return rows, width


def check_real(dtype: np.dtype[Any], where: str) -> None:
    """Refuse complex numbers, text, Python objects and records by name."""
    if dtype.kind not in REAL_KINDS:
        raise VectorsError(
            f"{where} holds {dtype.name or dtype}, not real numbers; save it as float32"
        )


def narrowed(numbers: NDArray[Any], where: str, first: int = 0) -> NDArray[np.float32]:
    """A copy in float32; numbers that are beyond it raise, naming the row counted from `first`."""
    with np.errstate(over="ignore"):
        small: NDArray[np.float32] = np.array(numbers, dtype=np.float32, order="C")
    if numbers.dtype.kind == "f" and numbers.dtype.itemsize > small.itemsize:
        lost = np.argwhere(np.isinf(small) & np.isfinite(numbers))
        if len(lost):
            value = numbers[tuple(lost[0])]
            raise VectorsError(
                f"{where}, row {first + int(lost[0][0])}: {float(value)!r} is beyond float32 "
                f"(±{LARGEST:.2g}); scale the table down"
            )
    return small


def float32_tensor(numbers: NDArray[Any] | Tensor, where: str, first: int = 0) -> Tensor:
    """A copy as a float32 tensor; `first` is the number of its first row, for errors."""
    if isinstance(numbers, Tensor):
        if numbers.dtype != torch.float64:
            return numbers.to(torch.float32, copy=True)
        numbers = numbers.numpy()
    return torch.from_numpy(narrowed(numbers, where, first))
