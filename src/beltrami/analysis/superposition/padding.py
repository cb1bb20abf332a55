r"""Rows of a vocabulary that were never trained.

Vocabularies are padded to round sizes. The rows of the padding are 0, or bitwise the same, or the
same but for rounding, and they would count as overlaps of 1 though no token ever uses them.

The rule: a row is unused if it is 0, or if it lies within `within` of a common row, as a share of
that row's length, together with at least `least` rows in all. Rounding to bfloat16 moves a row by
about 0.002 of its length; 2⁻⁷ is four times that. Rows are compared along 64 random directions,
which keep distances to about a tenth. Rows of padding that were drawn at random and never moved are
different from each other, and are not found.
"""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.analysis.superposition.row_blocks import Rows, row_blocks, unit_rows
from beltrami.checks import check_integer

_DIRECTIONS, _OF_CELLS = 64, 16  # that rows are compared along, and that cells are made of
_CELL = 32  # times `within`: so wide that few groups are cut in two, so narrow that few rows share
_MOST_GROUPS = 256  # padding makes one or a few; more need not be looked for
_ROUNDING = 1e-6  # of a row's length, in float32: rows that are this near are the same


def unused_rows(x: Rows, *, least: int = 10, within: float = 2**-7) -> Tensor:
    """Which rows look like padding; see the head of this file for the rule.

    Args:
        x: (n, d), or a function that gives blocks of rows; it is called once.
        least: rows that a group of the same rows has at least.
        within: how far rows of a group may lie from one of them, as a share of its length.

    Returns:
        (n,) booleans on the CPU, True where a row is unused. `overlaps(x, used=~unused_rows(x))`
        leaves them out.
    """
    check_integer("least", least, 2)
    if not 0 <= within < 1:
        raise ValueError(f"within must be from 0 up to 1, got {within}")
    within = max(within, _ROUNDING)
    sketch = torch.cat([_sketch(block) for _, block in row_blocks(x)])
    unused = zero = (sketch == 0).all(-1)
    for first in _crowded(sketch, zero, least, within):
        centre = sketch[first]
        away = torch.linalg.vector_norm(sketch - centre, dim=-1)
        group = (away <= within * torch.linalg.vector_norm(centre)) & ~zero
        if int(group.sum()) >= least:
            unused = unused | group
    return unused


def _sketch(block: Tensor) -> Tensor:
    """Rows along a few random directions, (n, 64), float64; in the mean as long as they are."""
    g = torch.Generator().manual_seed(0)
    along = torch.randn(block.shape[1], _DIRECTIONS, generator=g, dtype=torch.float64)
    sketch: Tensor = block.double() @ along.to(block.device) / _DIRECTIONS**0.5
    return sketch.cpu()


def _crowded(sketch: Tensor, zero: Tensor, least: int, within: float) -> list[int]:
    """A row of each cell with many directions, the fullest cells first.

    Half as many as are asked for are enough: a group may lie on the border of cells.
    """
    places = (~zero).nonzero()[:, 0]
    unit = unit_rows(sketch[places])[:, :_OF_CELLS] * _DIRECTIONS**0.5  # numbers of about 1
    cells = (unit / (_CELL * within)).floor().long()
    _, cell, counts = cells.unique(dim=0, return_inverse=True, return_counts=True)
    first = torch.full((len(counts),), len(sketch))
    first.scatter_reduce_(0, cell, places, "amin")
    full = counts.argsort(descending=True, stable=True)[:_MOST_GROUPS]
    return [int(first[i]) for i in full if int(counts[i]) >= max(2, least // 2)]
