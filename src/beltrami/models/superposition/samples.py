"""Samples of sparse features, as lists of what is there: x_i = u_i·v_i, u_i of probability p_i.

Of a thousand features a sample has about one, so that drawing a number for each would take most of
the time of a training. Instead events are thrown at samples and features, λ_i = −log(1 − p_i) for
each pair on average: a feature is there where at least one fell, which has probability p_i exactly.
Frequent features, of which λ would be large, are drawn one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from beltrami.checks import check_integer

FREQUENT = 0.3  # from which on a feature is drawn for each sample
_LARGEST = 2.0  # of a value; the mean is 1
_APART, _OWN = 1_000_003, 1 << 40  # of seeds, and from those that models start with
_MOST_DRAWN = 1 << 24  # numbers for frequent features at once


@dataclass(frozen=True)
class Batch:
    """Samples of which only the features that are there are named.

    Samples without any are not among the rows: all of them are alike.

    Args:
        rows: which row each feature belongs to, (entries,), in falling order nowhere.
        features: which it is, (entries,). No pair of row and feature is there twice.
        values: what it is, (entries,).
        count: rows; some at the end may be empty.
        samples: of the batch, with those that are empty.
    """

    rows: Tensor
    features: Tensor
    values: Tensor
    count: int
    samples: int

    def dense(self, n: int) -> Tensor:
        """All samples, (samples, n), the empty ones last."""
        x = self.values.new_zeros(self.samples, n)
        x[self.rows, self.features] = self.values
        return x


class Room(NamedTuple):
    """Rows, of which at least one stays empty, and entries that batches of one size fit into."""

    rows: int
    entries: int


class FeatureSamples:
    """Batches of samples, a function of the seed and the step alone.

    Args:
        p: probabilities of the features, (n,).
        samples: of a batch.
        seed: of all draws.
        device: where they are drawn and used. Draws of a CPU and of a GPU differ.
        chunk: steps that are drawn at once, fewer where many features are frequent.
    """

    def __init__(
        self,
        p: Tensor,
        samples: int,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        chunk: int = 64,
    ) -> None:
        if p.ndim != 1 or not bool(((p > 0) & (p <= 1)).all()):
            raise ValueError("p must be probabilities (n,), above 0 and at most 1")
        check_integer("samples", samples)
        self.p, self.samples, self.seed = p.double().cpu(), samples, seed
        self.device = torch.device(device)
        frequent = self.p >= FREQUENT
        self._frequent = frequent.nonzero()[:, 0].to(self.device)
        self._share = self.p[frequent].to(self.device)
        drawn = samples * max(1, len(self._share))
        self.chunk = max(1, min(chunk, _MOST_DRAWN // drawn))
        rates = torch.where(frequent, 0.0, -torch.log1p(-torch.where(frequent, 0.0, self.p)))
        self._rate = float(rates.sum())  # of events a sample
        self._bounds = (rates.cumsum(0) / self._rate).to(self.device) if self._rate else None
        self._held: tuple[int, list[Batch]] | None = None

    def __len__(self) -> int:
        return len(self.p)

    def batch(self, step: int) -> Batch:
        """The samples of a step."""
        number, place = divmod(step, self.chunk)
        if self._held is None or self._held[0] != number:
            self._held = number, list(self._draw(number))
        return self._held[1][place]

    def room(self) -> Room:
        """What a batch fits into but for one in 10¹⁴."""
        filled = 1 - float((1 - self.p).prod())  # of samples, those with features
        entries = float(self.p.sum()) * self.samples
        spread = float((self.p * (1 - self.p)).sum()) * self.samples
        rows = filled * self.samples
        most_rows = rows + 8 * (rows * (1 - filled)) ** 0.5 + 2
        most_entries = entries + 8 * spread**0.5 + 8
        return Room(min(self.samples + 1, round(most_rows)), round(most_entries))

    def _draw(self, number: int) -> Iterator[Batch]:
        """The batches of a chunk."""
        g = torch.Generator(self.device).manual_seed(_OWN + self.seed * _APART + number)
        n, count = len(self.p), self.chunk * self.samples
        # Each feature that is there as sample·n + feature, by sample, then by feature.
        key = torch.cat([self._rare(count, n, g), self._often(count, n, g)]).sort().values
        value = _LARGEST * torch.rand(len(key), generator=g, device=self.device)
        sample, feature = key // n, key % n
        # Rows are numbered anew within each batch, those alone that have features.
        filled, row = sample.unique_consecutive(return_inverse=True)
        ends = torch.arange(self.chunk + 1, device=self.device) * self.samples
        bounds, rows = torch.stack([torch.searchsorted(s, ends) for s in (sample, filled)]).tolist()
        for i in range(self.chunk):
            entries = slice(bounds[i], bounds[i + 1])
            own = row[entries] - rows[i]
            size = rows[i + 1] - rows[i]
            yield Batch(own, feature[entries], value[entries], size, self.samples)

    def _rare(self, count: int, n: int, g: torch.Generator) -> Tensor:
        if self._bounds is None:
            return torch.empty(0, dtype=torch.int64, device=self.device)
        mean = torch.tensor(self._rate * count, dtype=torch.float64, device=self.device)
        events = int(torch.poisson(mean, generator=g))
        place = torch.rand(events, generator=g, device=self.device, dtype=torch.float64)
        # Rounding may leave the last bound a little below 1; the last feature takes what is above.
        feature = torch.searchsorted(self._bounds, place, right=True).clamp(max=n - 1)
        sample = torch.randint(count, (events,), generator=g, device=self.device)
        keys: Tensor = (sample * n + feature).unique()
        return keys

    def _often(self, count: int, n: int, g: torch.Generator) -> Tensor:
        shape = (count, len(self._frequent))
        there = torch.rand(shape, generator=g, device=self.device, dtype=torch.float64)
        sample, which = (there < self._share).nonzero(as_tuple=True)
        keys: Tensor = sample * n + self._frequent[which]
        return keys


def padded(batch: Batch, room: Room) -> Batch:
    """The same batch with the shape of a room: more entries, of value 0 in an empty row."""
    rows = batch.rows.new_empty(room.entries)
    values = batch.values.new_empty(room.entries)
    result = Batch(rows, torch.empty_like(rows), values, room.rows, batch.samples)
    refill(result, batch)
    return result


def refill(into: Batch, batch: Batch) -> None:
    """Put another batch where a padded one was."""
    entries = len(batch.rows)
    if batch.count >= into.count or entries > len(into.rows):
        raise ValueError(
            f"{batch.count} rows with {entries} entries do not fit into {into.count} with "
            f"{len(into.rows)}"
        )
    into.rows[:entries], into.rows[entries:] = batch.rows, into.count - 1
    into.features[:entries], into.features[entries:] = batch.features, 0
    into.values[:entries], into.values[entries:] = batch.values, 0.0
