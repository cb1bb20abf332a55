"""How much the rows of a model's output table overlap, beside random directions.

A model with more tokens than dimensions has to let their directions overlap. Random directions have
a mean squared cosine of 1/m in m dimensions, and no more than about that is needed. A common part
of all rows adds to it without being about tokens: hence the same number about the rows' mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor

from beltrami.analysis.superposition import Overlaps, overlaps, unused_rows
from beltrami.data.vectors import Unembedding
from beltrami.diagnosis.numbers import finite, norm_summary, significant
from beltrami.diagnosis.source import Tick

PAIRS = 200_000  # for the picture, and for means of |cos| of large tables
QUANTILES = 201  # of the norms, for their picture
NUMBERS_AT_ONCE = 1 << 24  # that are read, 64 MiB: so large that the system takes them back
ABOUT = 1.5  # times 1/m, which still is about 1/m
FEWEST = 2  # rows that can be compared
# Dimensions of the random projections that tell rows apart: they keep distances to about an eighth,
# and rows that repeat each other, as padding does, are much nearer than all others.
SKETCH = 32
_PASSES = 4  # over the rows: one here, three for the overlaps


def superposition(
    table: Unembedding, tick: Tick, *, pairs: int = PAIRS, seed: int = 0
) -> dict[str, Any]:
    """Overlaps and norms of the rows that are used.

    Returns what is missing under "missing" where there is nothing to compare.
    """
    rows = _Rows(table, tick)
    norms, sketch = rows.first_look()
    finite_rows = torch.isfinite(norms)
    tokenless = torch.zeros(len(norms), dtype=torch.bool)
    tokenless[torch.tensor(table.vectors.tokenless, dtype=torch.long)] = True
    zero = finite_rows & (norms == 0)
    like_padding = unused_rows(sketch) & finite_rows & ~zero
    used = finite_rows & ~zero & ~tokenless & ~like_padding
    result: dict[str, Any] = {
        "table": table.role,
        "tensor": table.vectors.tensor,
        "rows": len(norms),
        "compared": int(used.sum()),
        "width": table.vectors.width,
        "hidden_width": table.hidden,
        "left_out": {
            "rows_that_are_not_finite": int((~finite_rows).sum()),
            "rows_of_zeros": int(zero.sum()),
            "rows_without_a_token": int((tokenless & finite_rows & ~zero).sum()),
            "rows_that_repeat_each_other": int((like_padding & ~tokenless).sum()),
        },
    }
    if result["compared"] < FEWEST:
        tick(1.0)
        left = left_out(result)
        why = f" once {left} are left out" if left else ""
        return {**result, "missing": f"{result['compared']} rows are too few to compare{why}"}
    measured = overlaps(rows, used=used, pairs=pairs, seed=seed)
    tick(1.0)
    result["overlaps"] = _written(measured)
    result["ratio"] = measured.mean_squared / measured.random
    result["ratio_centred"] = finite(measured.mean_squared_centred / measured.random)
    result["norms"] = norm_summary(norms[used].sort().values, QUANTILES)
    result["norms"]["deviation"] = float(norms[used].std())
    result["reading"] = reading(result)
    return result


def left_out(result: dict[str, Any]) -> str:
    """Which rows are not compared, in words; empty if all are."""
    counts = result["left_out"].items()
    return ", ".join(f"{n:,} {what.replace('_', ' ')}" for what, n in counts if n)


def as_overlaps(numbers: dict[str, Any]) -> Overlaps:
    """Rebuild the measurement from its JSON."""
    given: dict[str, Any] = {}
    for field in fields(Overlaps):
        value = math.nan if numbers[field.name] is None else numbers[field.name]
        given[field.name] = tuple(value) if isinstance(value, list) else value
    return Overlaps(**given)


def reading(result: dict[str, Any]) -> str:
    """What the overlaps say, in words."""
    measured, raw, centred = result["overlaps"], result["ratio"], result["ratio_centred"]
    if measured["rows"] <= measured["dimensions"]:
        return (
            f"There are no more rows ({measured['rows']:,}) than dimensions "
            f"({measured['dimensions']:,}): they need not overlap at all."
        )
    if raw <= ABOUT:
        return (
            f"Rows overlap {raw:.3g} times as much as random directions: {measured['rows']:,} of "
            f"them share {measured['dimensions']:,} dimensions about evenly, as in strong "
            "superposition."
        )
    if centred is None:
        return "All rows are one direction but for rounding."
    if centred <= ABOUT:
        return (
            f"Rows overlap {raw:.3g} times as much as random directions, and {centred:.3g} times "
            "once their mean is taken off: the excess is one common direction, and not "
            "superposition of features."
        )
    more = f"Rows overlap {raw:.3g} times as much as random directions"
    if centred < raw / ABOUT:
        return (
            f"{more}. Part of that is one common direction; {centred:.3g} times as much is left "
            "once it is taken off, by clusters, or by few directions that many rows use."
        )
    return (
        f"{more}, and {centred:.3g} times once their mean is taken off: no common direction does "
        "that, but clusters, or few directions that many rows use."
    )


class _Rows:
    """Blocks of rows, as often as they are asked for, with the share that is done."""

    def __init__(self, table: Unembedding, tick: Tick) -> None:
        self.vectors, self._tick = table.vectors, tick
        self._read = 0

    def __call__(self) -> Iterator[Tensor]:
        """All rows; those that are not finite as 0, so that sums stay numbers."""
        return (_mended(block) for block in self._blocks())

    def first_look(self) -> tuple[Tensor, Tensor]:
        """Norms of all rows, (n,), and the rows in few dimensions, (n, k); float64."""
        projection = _projection(self.vectors.width)
        norms, sketch = [], []
        for block in self._blocks():
            wide = block.double()
            norms.append(torch.linalg.vector_norm(wide, dim=1))
            sketch.append(_mended(wide) @ projection)
        return torch.cat(norms), torch.cat(sketch)

    def _blocks(self) -> Iterator[Tensor]:
        step = max(1, NUMBERS_AT_ONCE // self.vectors.width)
        for _, block in self.vectors.blocks(step):
            yield block
            self._read += len(block)
            self._tick(min(1.0, self._read / (_PASSES * self.vectors.rows)))


def _projection(width: int) -> Tensor:
    """(width, k), float64, that keeps lengths in the mean; narrow rows stay as they are."""
    if width <= SKETCH:
        return torch.eye(width, dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    return torch.randn(width, SKETCH, generator=g, dtype=torch.float64) / math.sqrt(SKETCH)


def _mended(block: Tensor) -> Tensor:
    lost = ~torch.isfinite(block).all(1, keepdim=True)
    return block.masked_fill(lost, 0.0) if bool(lost.any()) else block


def _written(measured: Overlaps) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for name, value in asdict(measured).items():
        if isinstance(value, tuple):
            numbers[name] = [significant(v) if isinstance(v, float) else v for v in value]
        else:
            numbers[name] = finite(value) if isinstance(value, float) else value
    return numbers
