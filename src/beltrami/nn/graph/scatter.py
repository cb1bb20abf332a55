"""Sums and softmaxes over the edges that end at one node. On a CPU they are deterministic."""

from __future__ import annotations

import torch
from torch import Tensor


def scatter_sum(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Sums of the numbers (..., E) that have the same index (E,): (..., size)."""
    zeros = values.new_zeros(*values.shape[:-1], size)
    return zeros.index_add(-1, index, values)


def scatter_rows(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Sums of the rows (..., E, d) that have the same index (E,): (..., size, d)."""
    zeros = values.new_zeros(*values.shape[:-2], size, values.shape[-1])
    return zeros.index_add(-2, index, values)


def rows(values: Tensor, index: Tensor) -> Tensor:
    """Rows of (..., N, d) by index (E,): (..., E, d)."""
    return values.index_select(-2, index)


def scatter_max(values: Tensor, index: Tensor, size: int) -> Tensor:
    """The largest of the numbers (..., E) with the same index: (..., size); −∞ where none is."""
    lowest = values.new_full((*values.shape[:-1], size), -torch.inf)
    return lowest.scatter_reduce(-1, index.expand_as(values), values, "amax")


def edge_softmax(scores: Tensor, weight: Tensor, target: Tensor, size: int) -> Tensor:
    """`w·exp(s)` over its sum among the edges with the same target.

    Args:
        scores: (..., E). weight: (E,), not negative; 0 means that there is no edge.
        target: (E,). size: number of nodes.

    Returns: (..., E), of sum 1 at each target that has an edge.
    """
    scores = torch.where(weight > 0, scores, -torch.inf)
    top = scatter_max(scores.detach(), target, size)
    top = torch.where(top > -torch.inf, top, 0.0)
    grown = weight * torch.exp(scores - top.index_select(-1, target))
    total = scatter_sum(grown, target, size)
    total = torch.where(total > 0, total, 1.0)
    return grown / total.index_select(-1, target)
