r"""Many toy models of superposition in one table: `y = ReLU(x·W·Wᵀ + b)`, loss |y − x|².

All of them are columns of one table (n, ...), whose row i has what every model knows of feature i.
So one look-up of the features that are there gives the hidden states of all models, and one update
moves them all. Samples without features are not computed: all of them give ReLU(b).

With h = x·W, y = ReLU(h·Wᵀ + b) and g = (y − x) where y > 0, else 0, the gradients of half the
squared error are

    ∂b = Σ g,    ∂W = gᵀ·h + xᵀ·(g·W).

x is sparse, so that y − x is y but for a few entries, and no product with x is a matrix product:
three remain of five. A bias is one more column of W, and of h a column of ones. Columns that fill a
model up to a width that others have are 0 and stay 0: h is 0 there, so is their gradient. Other
ways to read features (`readouts.py`) take their gradients from autograd, model by model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from beltrami.checks import check_integer, check_number, check_positive
from beltrami.models.superposition.readouts import Readout, read_out
from beltrami.models.superposition.samples import Batch

_SEEDS_APART = 1_000_003


@dataclass(frozen=True)
class Member:
    """One toy model of a stack.

    Args:
        width: m, hidden dimensions.
        gamma: of the weights. 0 or more is weight decay: features that are not worth their place
            go. Below 0 the lengths of rows are drawn to 1 instead, at the rate |gamma|.
        unit: keep all rows at length 1; gamma does nothing then.
        rate, bias_rate: learning rates, at their highest.
    """

    width: int
    gamma: float = 0.0
    unit: bool = False
    rate: float = 0.01
    bias_rate: float = 0.01

    def __post_init__(self) -> None:
        check_integer("width", self.width)
        check_number("gamma", self.gamma)
        check_positive("rate", self.rate)
        check_positive("bias_rate", self.bias_rate)


@dataclass(frozen=True)
class Block:
    """Members whose columns are equally many, side by side in the table.

    A member has its weights first, then zeros up to the block's width, and its bias last.

    Args:
        members: their numbers in the stack.
        start: their first column. columns: of each of them.
    """

    members: tuple[int, ...]
    start: int
    columns: int

    @property
    def span(self) -> slice:
        """The columns of all its members."""
        return slice(self.start, self.start + len(self.members) * self.columns)

    def by_member(self, table: Tensor) -> Tensor:
        """The block's part of (rows, columns) as (members, rows, columns of a member), a view."""
        part: Tensor = table[:, self.span].unflatten(1, (-1, self.columns)).transpose(0, 1)
        return part


class Branches:
    """Work that runs side by side where a CUDA graph is being captured, and else in turn.

    The kernels of a small model are done in microseconds and leave most of a GPU idle. Captured on
    streams of their own, those of several models run at the same time. What a branch is given must
    live until `join`, and so must what it leaves.
    """

    def __init__(self, device: torch.device) -> None:
        self._capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        self._device = device
        self._streams: list[torch.cuda.Stream] = []

    def branch(self) -> AbstractContextManager[object]:
        """A context whose work begins when all that was launched before it is done."""
        if not self._capturing:
            return nullcontext()
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        self._streams.append(stream)
        return torch.cuda.stream(stream)

    def join(self) -> None:
        """What is launched from here on begins when all branches are done."""
        for stream in self._streams:
            torch.cuda.current_stream(self._device).wait_stream(stream)
        self._streams.clear()


class ToyStack(nn.Module):
    """Toy models side by side, all of which see the same samples.

    Args:
        n: features.
        members: the models.
        readout, c: how features are read of a hidden state; see `readouts`.
        seed: of the start. Models of one width start alike, whatever else they are given.
        multiple: of which numbers of columns are; models whose columns are equally many are
            multiplied at once.
    """

    def __init__(
        self,
        n: int,
        members: Sequence[Member],
        *,
        readout: Readout = "linear",
        c: float = 1.0,
        seed: int = 0,
        multiple: int = 4,
    ) -> None:
        super().__init__()
        if n < 1 or not members:
            raise ValueError(f"a stack needs features and members, got {n} and {len(members)}")
        check_integer("multiple", multiple)
        self.n, self.members, self.readout, self.c = n, tuple(members), readout, c
        self.blocks = _blocks(self.members, multiple)
        self.table = nn.Parameter(torch.zeros(n, self.blocks[-1].span.stop))
        self._start(seed)
        order = torch.tensor([i for block in self.blocks for i in block.members])
        biases = torch.tensor([sum(self.place(int(i))) - 1 for i in order])
        self.register_buffer("bias_columns", biases, persistent=False)
        self.register_buffer("place_of", order.argsort(), persistent=False)
        self.bias_columns: Tensor
        self.place_of: Tensor  # of each member among the blocks' members

    @torch.no_grad()
    def _start(self, seed: int) -> None:
        """W of variance 1/m, of length 1 where it is to stay so; b of variance 1."""
        for i, member in enumerate(self.members):
            g = torch.Generator().manual_seed(seed * _SEEDS_APART + member.width)
            weight = torch.randn(self.n, member.width, generator=g) / member.width**0.5
            self.weight(i).copy_(nn.functional.normalize(weight, dim=1) if member.unit else weight)
            self.bias(i).copy_(torch.randn(self.n, generator=g))

    def weight(self, member: int) -> Tensor:
        """W of a model, (n, m)."""
        start, _ = self.place(member)
        return self.table[:, start : start + self.members[member].width]

    def bias(self, member: int) -> Tensor:
        """b of a model, (n,)."""
        start, columns = self.place(member)
        return self.table[:, start + columns - 1]

    def place(self, member: int) -> tuple[int, int]:
        """The first column of a model, and how many it has; the last is its bias."""
        for block in self.blocks:
            if member in block.members:
                return block.start + block.members.index(member) * block.columns, block.columns
        raise IndexError(f"there are {len(self.members)} members, and no number {member}")

    @torch.no_grad()
    def gradient(
        self, batch: Batch, *, scale: float | None = None, losses: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The gradient of the mean squared error in the table, and the losses where asked for.

        Args:
            batch: the samples.
            scale: of the gradient; None is that of the mean over samples and features.
            losses: whether to return them.

        Returns:
            the gradient, (n, columns), and squared errors of a sample, (members,), or None.
        """
        scale = 2 / (batch.samples * self.n) if scale is None else scale
        by_hand = self.readout == "linear"
        gradient, squares = self._linear(batch, losses) if by_hand else self._by_autograd(batch)
        return gradient.mul_(scale), squares / batch.samples if losses else None

    def losses(self, batch: Batch) -> Tensor:
        """Squared errors of a sample, (members,)."""
        _, losses = self.gradient(batch, losses=True)
        assert losses is not None
        return losses

    def _linear(self, batch: Batch, losses: bool) -> tuple[Tensor, Tensor]:
        """The gradient of half the squared errors of all samples, and the squared errors."""
        gradient, values = torch.empty_like(self.table), batch.values.unsqueeze(1)
        hidden = self.table.new_zeros(batch.count, self.table.shape[1])
        hidden.index_add_(0, batch.rows, self.table[batch.features] * values)
        hidden.index_fill_(1, self.bias_columns, 1.0)
        back = torch.empty_like(hidden)
        squares = []
        branches = Branches(self.table.device)
        for block in self.blocks:
            with branches.branch():
                tables = (block.by_member(t) for t in (self.table, hidden, gradient, back))
                squares.append(_block_gradient(batch, *tables, losses=losses))
        branches.join()
        # By way of the hidden states, once for each feature that is there.
        gradient.index_add_(0, batch.features, back[batch.rows] * values)
        return gradient, torch.cat(squares)[self.place_of]

    def _by_autograd(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """As `_linear`, for any way to read features."""
        gradient, squares = torch.zeros_like(self.table), []
        branches = Branches(self.table.device)
        for i, member in enumerate(self.members):
            start, columns = self.place(i)
            with branches.branch(), torch.enable_grad():
                w, b = (p.detach().requires_grad_() for p in (self.weight(i), self.bias(i)))
                error = self._squared_error(batch, w, b)
                to_w, to_b = torch.autograd.grad(error / 2, (w, b))
                gradient[:, start : start + member.width] = to_w
                gradient[:, start + columns - 1] = to_b
                squares.append(error.detach())
        branches.join()
        return gradient, torch.stack(squares)

    def _squared_error(self, batch: Batch, w: Tensor, b: Tensor) -> Tensor:
        entries = w[batch.features] * batch.values.unsqueeze(1)
        h = w.new_zeros(batch.count, w.shape[1]).index_add(0, batch.rows, entries)
        y = torch.relu(read_out(h, w, self.readout, self.c) + b)
        there = y[batch.rows, batch.features]
        change = (there - batch.values).square() - there.square()
        empty = (batch.samples - batch.count) * torch.relu(b).square().sum()
        return y.square().sum() + change.sum() + empty

    def extra_repr(self) -> str:
        """Features, members and columns."""
        return f"{self.n} features, {len(self.members)} members, {self.table.shape[1]} columns"


def _blocks(members: Sequence[Member], multiple: int) -> list[Block]:
    """Members by width, each with columns up to the next multiple of a number."""
    by_columns: dict[int, list[int]] = {}
    for i, member in enumerate(members):
        by_columns.setdefault(math.ceil((member.width + 1) / multiple) * multiple, []).append(i)
    blocks: list[Block] = []
    for columns, numbers in sorted(by_columns.items()):
        start = blocks[-1].span.stop if blocks else 0
        blocks.append(Block(tuple(numbers), start, columns))
    return blocks


def _block_gradient(
    batch: Batch, w: Tensor, h: Tensor, gradient: Tensor, back: Tensor, *, losses: bool
) -> Tensor:
    """Writes gᵀ·h and g·W of a block's models; returns sums of squared errors where asked for.

    All are by member: w and gradient (members, n, columns), h and back (members, rows, columns).
    """
    y = torch.bmm(h, w.mT).relu_()  # (members, rows, n)
    there = y[:, batch.rows, batch.features]
    missed = there - batch.values
    empty = w[..., -1].relu()  # what a sample without features gives
    squares = y.new_empty(len(y))
    if losses:
        squares = torch.linalg.vector_norm(y, dim=(1, 2)).square()
        squares += (missed.square() - there.square()).sum(1)
        squares += (batch.samples - batch.count) * empty.square().sum(1)
    y[:, batch.rows, batch.features] = torch.where(there > 0, missed, 0.0)
    own = torch.bmm(y.mT, h)
    own[..., -1] += (batch.samples - batch.count) * empty
    gradient.copy_(own)
    back.copy_(torch.bmm(y, w))
    back[..., -1] = 0.0
    return squares
