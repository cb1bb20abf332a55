"""Random numbers as a function of seeds, so that any step of a training can be gone back to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_APART = 1_000_003  # a prime above the number of steps of most trainings


def mixed(seed: int, step: int) -> int:
    """One seed out of two."""
    return seed * _APART + step


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """torch's own random state set to `seed` inside, and as it was after.

    What layers draw from it, their start and their dropout, then depends on the seed alone.
    """
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def shuffled(count: int, seed: int, epoch: int) -> Tensor:
    """The order of an epoch: a permutation of 0..count − 1 that depends on seed and epoch alone."""
    generator = torch.Generator().manual_seed(mixed(seed, epoch))
    return torch.randperm(count, generator=generator)
