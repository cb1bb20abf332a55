"""Gradients of a stack whose models read features in hyperbolic space, by autograd."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from beltrami.models.superposition.branches import Branches
from beltrami.models.superposition.members import Readout
from beltrami.models.superposition.readouts import read_out
from beltrami.models.superposition.samples import Batch
from beltrami.models.superposition.stack import ToyStack


def curved_gradient(
    stack: ToyStack,
    batches: Sequence[Batch],
    readout: Readout,
    c: float,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """As `ToyStack.gradient`, with another way to read features; losses always."""
    found = torch.zeros_like(stack.table)
    losses = []
    branches = Branches(found.device)
    for i, member in enumerate(stack.members):
        batch = batches[member.stream]
        start, columns = stack.place(i)
        with branches.branch():
            w = stack.weight(i).detach().requires_grad_()
            b = stack.bias(i).detach().requires_grad_()
            loss = _squared_error(batch, w, b, readout, c)
            to_w, to_b = torch.autograd.grad(loss, (w, b))
            by = 1 / (batch.samples * stack.n) if scale is None else scale / 2
            found[:, start : start + member.width] = by * to_w
            found[:, start + columns - 1] = by * to_b
            losses.append(loss.detach() / batch.samples)
    branches.join()
    return found, torch.stack(losses)


def _squared_error(batch: Batch, w: Tensor, b: Tensor, readout: Readout, c: float) -> Tensor:
    """Of all samples together."""
    entries = w[batch.features] * batch.values.unsqueeze(1)
    h = w.new_zeros(batch.count, w.shape[1]).index_add(0, batch.rows, entries)
    y = torch.relu(read_out(h, w, readout, c) + b)
    there = y[batch.rows, batch.features]
    change = (there - batch.values).square() - there.square()
    empty = (batch.samples - batch.count) * torch.relu(b).square().sum()
    return y.square().sum() + change.sum() + empty
