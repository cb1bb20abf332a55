"""Random numbers as a function of seeds, so that a training can be repeated from any step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_STRIDE = 1_000_003  # a prime above the number of steps of most trainings


def mix_seeds(seed: int, step: int) -> int:
    """One seed from two numbers; different for all steps below 1,000,003."""
    return seed * _STRIDE + step


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Set torch's own random state to `seed` inside, and restore it afterwards.

    What layers draw from it, their initial values and their dropout, depends on the seed alone.
    """
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of an epoch: a permutation of 0..count − 1 that depends on seed and epoch alone."""
    generator = torch.Generator().manual_seed(mix_seeds(seed, epoch))
    return torch.randperm(count, generator=generator)
