"""Which points are compared: several samples, or all points from several base points."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def sample_rows(count: int, sample: int, repeats: int, seed: int) -> Iterator[Tensor]:
    """Numbers of points, the base point first: so many samples, which share none if they can."""
    g = torch.Generator().manual_seed(seed)
    if count >= sample * repeats:
        yield from torch.randperm(count, generator=g)[: sample * repeats].split(sample)
        return
    for _ in range(repeats):
        yield torch.randperm(count, generator=g)[:sample]
