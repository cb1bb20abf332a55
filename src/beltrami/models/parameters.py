"""How many parameters a model has, and how wide its twin must be to have as many."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
from torch import nn

# How many widths beyond its own a layer may take, and how many layers, the last ones, may differ.
_WIDER = 8
_MOST_LAYERS = 2


def count_parameters(build: Callable[[], nn.Module]) -> int:
    """Numbers that the model made by `build` learns; no memory is taken for them."""
    with torch.device("meta"):
        return sum(p.numel() for p in build().parameters() if p.requires_grad)


def match_widths(
    widths: tuple[int, ...],
    target: int,
    count: Callable[[tuple[int, ...]], int],
) -> tuple[int, ...]:
    """Find hidden widths, a little above the given ones, with a parameter count near `target`.

    A hyperbolic layer has time columns, for which its Euclidean twin has no use; the twin gets
    wider hidden layers instead. Equally close widths: the narrowest.

    Args:
        widths: of the hidden layers.
        target: number of parameters to come close to.
        count: number of parameters with given widths.
    """
    fixed = max(len(widths) - _MOST_LAYERS, 0)
    ranges = (range(w, w + _WIDER + 1) for w in widths[fixed:])
    candidates = [(*widths[:fixed], *chosen) for chosen in product(*ranges)]
    return min(candidates, key=lambda c: (abs(count(c) - target), c))
