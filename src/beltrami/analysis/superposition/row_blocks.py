"""A matrix read a few rows at a time, as often as is needed, so that it need not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from beltrami.analysis.checks import check_tensor

Rows = Tensor | Callable[[], Iterable[Tensor]]
"""Rows (n, d), or a function whose result gives them in blocks (b, d), anew at each call."""

BLOCK = 1 << 22  # numbers at once


def row_blocks(x: Rows) -> Iterator[tuple[int, Tensor]]:
    """Blocks of at most 4 million numbers, each with the number of its first row.

    They are float32, or float64 where the rows are: half precision holds too few digits for sums.

    Raises:
        ValueError: for blocks that are not rows, differ in length, or have numbers that are not
            finite.
    """
    first, d = 0, -1
    for given in (x,) if isinstance(x, Tensor) else x():
        check_tensor("a block of rows", given)
        if given.ndim != 2 or not given.is_floating_point() or given.shape[1] == 0:
            raise ValueError(
                f"rows must be floating point, (n, d), got {given.dtype} of shape "
                f"{tuple(given.shape)}"
            )
        if d not in (-1, given.shape[1]):
            raise ValueError(f"rows must be equally long, got {given.shape[1]} after {d} numbers")
        d = given.shape[1]
        for block in given.detach().split(max(1, BLOCK // d)):
            if len(block) == 0:
                continue
            block = block if block.dtype == torch.float64 else block.float()
            if bool((bad := ~torch.isfinite(block)).any()):
                row, column = bad.nonzero()[0].tolist()
                raise ValueError(
                    f"rows must be finite, got {block[row, column].item()} in row {first + row}"
                )
            yield first, block
            first += len(block)
    if d == -1:
        raise ValueError("there are no rows")


def unit_rows(block: Tensor) -> Tensor:
    """Rows of length 1, of any that are not 0, however short or long."""
    scaled = block / block.abs().amax(-1, keepdim=True)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True, dtype=torch.float64)
    unit: Tensor = scaled / length.to(scaled.dtype)
    return unit


def gathered(x: Rows, which: Tensor) -> Tensor:
    """Some of the rows, in the order of their numbers in `which`, (k,) on the CPU."""
    order = which.argsort(stable=True)
    wanted = which[order]
    # Into one tensor: small parts that are kept between large ones break up the memory.
    result, count = torch.empty(0), 0
    for first, block in row_blocks(x):
        if result.ndim == 1:
            result = block.new_empty(len(which), block.shape[1])
        low, high = torch.searchsorted(wanted, torch.tensor([first, first + len(block)])).tolist()
        rows = block[(wanted[low:high] - first).to(block.device)]
        result[order[low:high].to(block.device)] = rows
        count += high - low
    if count != len(which):
        raise ValueError(f"of {len(which)} rows only {count} came when they were read again")
    return result
