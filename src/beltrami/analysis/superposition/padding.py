r"""Rows of a vocabulary that were never trained.

Vocabularies are padded to round sizes. The rows of the padding are 0, or bitwise the same, or the
same but for rounding, and they would count as overlaps of 1 though no token ever uses them.

The rule: a row is unused if it is 0, or if it lies within `within` of a common row, as a share of
that row's length, together with at least `least` rows in all. Rounding to bfloat16 moves a row by
about 0.002 of its length; 2⁻⁷ is four times that. Rows of padding that were drawn at random and
never moved are different from each other, and are not found.
"""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.analysis.superposition.row_blocks import Rows, gathered, row_blocks, unit_rows
from beltrami.checks import check_integer

_DIRECTIONS = 16  # that rows are compared along before they are compared whole
_FIRST_ROWS = 1 << 16  # that memory is taken for
_CELL = 32  # times `within`: so wide that few groups are cut in two, so narrow that few rows share
_NEAR = 6  # standard deviations of what a difference of `within` makes along a direction
_MOST_GROUPS = 256  # padding makes one or a few; more need not be looked for


def unused_rows(x: Rows, *, least: int = 10, within: float = 2**-7) -> Tensor:
    """Which rows look like padding; see the head of this file for the rule.

    Args:
        x: (n, d), or a function that gives blocks of rows anew at each call; it is called once,
            and twice more if there may be padding.
        least: rows that a group of the same rows has at least.
        within: how far rows of a group may lie from one of them, as a share of its length.

    Returns:
        (n,) booleans on the CPU, True where a row is unused. `overlaps(x, used=~unused_rows(x))`
        leaves them out.
    """
    check_integer("least", least, 2)
    if not 0 <= within < 1:
        raise ValueError(f"within must be from 0 up to 1, got {within}")
    sketch, zero = _sketch(x)
    groups = _crowded(sketch, zero, least, within)
    if not groups:
        return zero
    reach = _NEAR * max(within, torch.finfo(torch.float32).eps)
    near = [((sketch - sketch[first]).abs() <= reach).all(-1) & ~zero for first in groups]
    unused = zero
    for members in _members(x, groups, near, within):
        if int(members.sum()) >= least:
            unused = unused | members
    return unused


def _sketch(x: Rows) -> tuple[Tensor, Tensor]:
    """Directions of rows along a few random ones, (n, 16), about 1 in size; and which rows are 0.

    Rows that are the same are the same along these, and others hardly ever are.
    """
    # Into one tensor that grows: small parts that are kept between large ones break up the memory.
    sketch, zero = torch.empty(0, _DIRECTIONS, dtype=torch.float64), torch.empty(0).bool()
    along: Tensor | None = None
    rows = 0
    for first, block in row_blocks(x):
        rows = first + len(block)
        while len(sketch) < rows:
            more = max(_FIRST_ROWS, len(sketch))
            sketch = torch.cat([sketch, sketch.new_empty(more, _DIRECTIONS)])
            zero = torch.cat([zero, zero.new_empty(more)])
        if along is None:
            g = torch.Generator().manual_seed(0)
            along = torch.randn(block.shape[1], _DIRECTIONS, generator=g, dtype=torch.float64)
        zeros = (block == 0).all(-1)
        unit = unit_rows(torch.where(zeros[:, None], 1.0, block))
        sketch[first:rows] = unit @ along.to(unit)
        zero[first:rows] = zeros
    return sketch[:rows], zero[:rows]


def _crowded(sketch: Tensor, zero: Tensor, least: int, within: float) -> list[int]:
    """A row of each cell with many rows, the fullest cells first.

    Half as many as are asked for are enough: a group may lie on the border of cells.
    """
    width = _CELL * max(within, torch.finfo(torch.float32).eps)  # a product rounds even the same
    cells = (sketch / width).floor().long()
    places = (~zero).nonzero()[:, 0]
    _, cell, counts = cells[places].unique(dim=0, return_inverse=True, return_counts=True)
    first = torch.full((len(counts),), len(sketch))
    first.scatter_reduce_(0, cell, places, "amin")
    full = counts.argsort(descending=True, stable=True)[:_MOST_GROUPS]
    return [int(first[i]) for i in full if int(counts[i]) >= max(2, least // 2)]


def _members(x: Rows, groups: list[int], near: list[Tensor], within: float) -> list[Tensor]:
    """Which of the rows near the first of a group are within reach of it, by all coordinates."""
    centres = gathered(x, torch.tensor(groups))
    members = [torch.zeros_like(candidates) for candidates in near]
    for first, block in row_blocks(x):
        for centre, candidates, group in zip(centres, near, members, strict=True):
            rows = candidates[first : first + len(block)].nonzero()[:, 0]
            if len(rows):
                away = torch.linalg.vector_norm(block[rows.to(block.device)] - centre, dim=-1)
                reach = within * torch.linalg.vector_norm(centre)
                group[first + rows] = (away <= reach).cpu()
    return members
