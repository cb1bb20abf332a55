r"""The largest gap `max_k min(a_ik, a_kj) − a_ij` of a symmetric matrix, without all its triples.

For Gromov products at a base point this is δ. Tried one by one, the triples of 10,000 points are
10¹². But row i has no entry above its maximum rᵢ, so the gap of a pair is at most
`min(rᵢ, rⱼ) − a_ij`: pairs are tried where that is more than the largest gap found so far. In flat
space few are, since a pair with a small entry has a large gap nearly always. Of trees, where many
are, a second bound leaves few: by way of any number of points instead of one (the bottleneck of the
maximum spanning tree), a pair gains no more. And a pair is tried with the largest entries of one of
its rows first, which is enough nearly always, too. Points spread over hyperbolic space are the
worst: their δ is nearly reached nearly everywhere, so that most triples are tried after all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from beltrami.kernels.pairs.row_gaps import row_gaps

BLOCK, BLOCK_ON_GPU = 1 << 22, 1 << 25  # numbers computed at once
MANY = 1 / 64  # share of pairs left, above which the second bound is worth its time
LARGEST = 64  # entries of a row that are tried first
# Share of a block's pairs left, above which all of them are tried; a GPU's kernel is worth it soon.
DENSE, DENSE_ON_GPU = 1 / 8, 1 / 64


class Gap(NamedTuple):
    """A gap and the i, j and k that have it."""

    size: float
    triple: tuple[int, int, int]


def largest_gap(
    a: Tensor, *, above: float = 0.0, tick: Callable[[int], None] = lambda rows: None
) -> Gap | None:
    """The largest gap over different i, j and k; None if none is larger than `above`.

    Args:
        a: (n, n), symmetric and finite; its diagonal does not matter, and is lost.
        above: what a gap must exceed.
        tick: called with numbers of rows that are done, n in all.
    """
    if len(a) < 3:
        tick(len(a))
        return None
    a.fill_diagonal_(-torch.inf)
    search = _Search(a, above)
    search.try_promising_pairs()
    # On a GPU the second bound, which adds point by point, takes longer than most searches by all
    # triples.
    if not a.is_cuda and search.share_left() > MANY:
        search.bottleneck = _bottlenecks(a)
    for first, last in search.blocks():
        search.try_rows(first, last)
        tick(last - first)
    return search.best


class _Search:
    def __init__(self, a: Tensor, above: float) -> None:
        self.a, self.above = a, above
        self.best: Gap | None = None
        self.reach = a.amax(1)  # the diagonal is not among them
        self.bottleneck: Tensor | None = None
        self.rows = max(1, (BLOCK_ON_GPU if a.is_cuda else BLOCK) // len(a))

    def blocks(self) -> Iterator[tuple[int, int]]:
        """First and last of the rows that are worked on at a time."""
        for first in range(0, len(self.a), self.rows):
            yield first, min(len(self.a), first + self.rows)

    def _bounds(self, first: int, last: int) -> Tensor:
        """What the gaps of these rows' pairs cannot exceed; −∞ left of the diagonal."""
        most = torch.minimum(self.reach[first:last, None], self.reach[None, first:])
        if self.bottleneck is not None:
            most = torch.minimum(most, self.bottleneck[first:last, first:])
        most -= self.a[first:last, first:]
        later = torch.ones_like(most, dtype=torch.bool).triu_(1)
        return torch.where(later, most, -torch.inf)

    def try_promising_pairs(self) -> None:
        """The pair with the largest bound of each row: the result, or not much below."""
        for first, last in self.blocks():
            bounds, column = self._bounds(first, last).max(1)
            rows = torch.arange(first, last, device=self.a.device)
            self._try(rows, first + column, bounds)

    def share_left(self) -> float:
        """Of all pairs, those that may have a larger gap."""
        n = len(self.a)
        left = sum(int((self._bounds(*block) > self.above).sum()) for block in self.blocks())
        return 2 * left / (n * (n - 1))

    def try_rows(self, first: int, last: int) -> None:
        """All pairs of these rows that may have a larger gap."""
        bounds = self._bounds(first, last)
        left = bounds > self.above
        if int(left.sum()) <= (DENSE_ON_GPU if self.a.is_cuda else DENSE) * left.numel():
            rows, columns = left.nonzero(as_tuple=True)
            self._try(first + rows, first + columns, bounds[rows, columns])
            return
        gaps = row_gaps(self.a, first, last)
        best = int(gaps.argmax())
        if float(gaps[best]) > self.above:  # which pair of the row it is
            later = torch.arange(first + best + 1, len(self.a), device=gaps.device)
            self._try_all_of(torch.full_like(later, first + best), later)

    def _try(self, rows: Tensor, columns: Tensor, bounds: Tensor) -> None:
        """Pairs, those with the largest bounds first."""
        bounds, order = bounds.sort(descending=True)
        rows, columns = rows[order], columns[order]
        at_once = max(1, self.rows * len(self.a) // LARGEST)
        for start in range(0, len(rows), at_once):
            part = slice(start, start + at_once)
            if not float(bounds[start]) > self.above:
                return
            self._try_all_of(*self._try_largest(rows[part], columns[part]))

    def _try_largest(self, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        """Pairs with the largest entries of a row; what is left of them after that."""
        values, where = self.largest
        swapped = values[j, -1] < values[i, -1]
        i, j = torch.where(swapped, j, i), torch.where(swapped, i, j)
        through, best = torch.minimum(values[i], self.a[j.unsqueeze(1), where[i]]).max(1)
        own = self.a[i, j]
        k = where[i].gather(1, best.unsqueeze(1)).squeeze(1)
        self._take(through - own, i, j, k)
        # The entries that were not tried are no larger than the last that was.
        left = (through < values[i, -1]) & (values[i, -1] - own > self.above)
        return i[left], j[left]

    def _try_all_of(self, rows: Tensor, columns: Tensor) -> None:
        """Pairs with all entries."""
        for start in range(0, len(rows), self.rows):
            i, j = rows[start : start + self.rows], columns[start : start + self.rows]
            through, k = torch.minimum(self.a[i], self.a[j]).max(1)
            self._take(through - self.a[i, j], i, j, k)

    @cached_property
    def largest(self) -> tuple[Tensor, Tensor]:
        """The largest entries of each row, and their columns."""
        largest = [rows.topk(min(LARGEST, len(self.a) - 1), 1) for rows in self.a.split(self.rows)]
        return torch.cat([t.values for t in largest]), torch.cat([t.indices for t in largest])

    def _take(self, gaps: Tensor, i: Tensor, j: Tensor, k: Tensor) -> None:
        """The largest of these gaps, if it is larger than all before."""
        if len(gaps) == 0:
            return
        where = gaps.argmax()
        size = float(gaps[where])
        if size > self.above:
            self.above = size
            triple = torch.stack([i[where], j[where], k[where]]).tolist()
            self.best = Gap(size, (triple[0], triple[1], triple[2]))


def _bottlenecks(a: Tensor) -> Tensor:
    """The largest least entry on a way from i to j, (n, n), by a maximum spanning tree (Prim)."""
    n = len(a)
    bottleneck = torch.full_like(a, torch.inf)
    order = torch.zeros(n, dtype=torch.int64, device=a.device)  # as points join the tree
    joined = torch.zeros(n, dtype=torch.bool, device=a.device)
    joined[0] = True
    widest, parent = a[0].clone(), torch.zeros_like(order)
    for step in range(1, n):
        point = torch.where(joined, -torch.inf, widest).argmax()
        known = order[:step]
        row = torch.minimum(bottleneck[parent[point], known], widest[point])
        bottleneck[point, known] = row
        bottleneck[known, point] = row
        order[step] = point
        joined[point] = True
        wider = a[point] > widest
        widest = torch.where(wider, a[point], widest)
        parent = torch.where(wider, point, parent)
    return bottleneck
