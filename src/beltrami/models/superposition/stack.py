r"""Many toy models of superposition trained at once: `y = ReLU(x·W·Wᵀ + b)`, loss |y − x|².

All of them are columns of one table (n, ...), whose row i has what every model knows of feature i.
So one look-up of the features that are there gives the hidden states of all models, and one update
moves them all. Samples without features are not computed: all of them give ReLU(b).

With h = x·W, y = ReLU(h·Wᵀ + b) and g = (y − x) where y > 0, else 0, the gradients of half the
squared error are

    ∂b = Σ g,    ∂W = gᵀ·h + xᵀ·(g·W).

x is sparse, so that y − x is y but for a few entries, and no product with x is a matrix product:
three remain of five. A bias is one more column of W, and of h a column of ones. Columns that fill a
model up to a width that others have are 0 and stay 0: h is 0 there, so is their gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

from beltrami.models.superposition.branches import Branches
from beltrami.models.superposition.members import Block, Member, blocks_of
from beltrami.models.superposition.samples import Batch

_SEEDS_APART = 1_000_003


class ToyStack(nn.Module):
    """Toy models side by side.

    Args:
        n: features.
        members: the models.
        seed: of the start. Models of one width start alike, whatever else they are told.
        multiple: of which numbers of columns are; models whose columns are equally many are
            multiplied at once.
    """

    def __init__(
        self, n: int, members: Sequence[Member], *, seed: int = 0, multiple: int = 4
    ) -> None:
        super().__init__()
        if n < 1 or not members:
            raise ValueError(f"a stack needs features and members, got {n} and {len(members)}")
        if multiple < 1:
            raise ValueError(f"multiple must be at least 1, got {multiple}")
        self.n, self.members = n, tuple(members)
        self.blocks = blocks_of(members, multiple)
        self.table = nn.Parameter(torch.zeros(n, self.blocks[-1].stop))
        self._start(seed)
        columns = [b.start + (i + 1) * b.columns - 1 for b in self.blocks for i in range(_in(b))]
        self.register_buffer("bias_columns", torch.tensor(columns), persistent=False)
        places = torch.tensor([i for block in self.blocks for i in block.members]).argsort()
        self.register_buffer("place_of", places, persistent=False)
        self.bias_columns: Tensor
        self.place_of: Tensor  # of each member among the blocks' members

    @torch.no_grad()
    def _start(self, seed: int) -> None:
        """W of variance 1/m, of length 1 where it is to stay so; b of variance 1."""
        for block in self.blocks:
            for place, number in enumerate(block.members):
                width = self.members[number].width
                g = torch.Generator().manual_seed(seed * _SEEDS_APART + width)
                start = block.start + place * block.columns
                weight = torch.randn(self.n, width, generator=g) / width**0.5
                if self.members[number].unit:
                    weight = torch.nn.functional.normalize(weight, dim=1)
                self.table[:, start : start + width] = weight
                bias = start + block.columns - 1
                self.table[:, bias] = torch.randn(self.n, generator=g)

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
        self, batches: Sequence[Batch], *, scale: float | None = None, losses: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The gradient of the mean squared error in the table, and the losses where asked for.

        Args:
            batches: one a stream.
            scale: of the gradient; None is that of the mean over samples and features.
            losses: whether to return them.

        Returns:
            the gradient, (n, columns), and squared errors of a sample, (members,), or None.
        """
        found = torch.empty_like(self.table)
        sums: list[Tensor] = []
        branches = Branches(self.table.device)
        for stream, some in groupby(self.blocks, key=lambda b: b.stream):
            blocks, batch = list(some), batches[stream]
            first, last = blocks[0].start, blocks[-1].stop
            part = self.table[:, first:last]
            hidden = _hidden(batch, part, self._bias_columns(blocks))
            back = torch.empty_like(hidden)
            for block in blocks:
                here = slice(block.start - first, block.stop - first)
                into = slice(block.start, block.stop)
                with branches.branch():
                    squares = _block_gradient(
                        batch,
                        block,
                        part[:, here],
                        hidden[:, here],
                        found[:, into],
                        back[:, here],
                        losses=losses,
                    )
                    if squares is not None:
                        sums.append(squares / batch.samples)
            branches.join()
            # By way of the hidden states, once for each feature that is there.
            found[:, first:last].index_add_(
                0, batch.features, back[batch.rows] * batch.values.unsqueeze(1)
            )
            found[:, first:last] *= 2 / (batch.samples * self.n) if scale is None else scale
        return found, torch.cat(sums)[self.place_of] if losses else None

    def _bias_columns(self, blocks: Sequence[Block]) -> Tensor:
        """Of a stream's blocks, from the first of its columns on."""
        before = sum(_in(block) for block in self.blocks if block.stop <= blocks[0].start)
        count = sum(map(_in, blocks))
        return self.bias_columns[before : before + count] - blocks[0].start

    @torch.no_grad()
    def losses(self, batches: Sequence[Batch]) -> Tensor:
        """Squared errors of a sample, (members,)."""
        _, found = self.gradient(batches, losses=True)
        assert found is not None
        return found

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.n} features, {len(self.members)} members, {self.table.shape[1]} columns"


def _hidden(batch: Batch, table: Tensor, bias_columns: Tensor) -> Tensor:
    """h of all models, (rows, columns), with 1 where a bias is multiplied."""
    found = table.new_zeros(batch.count, table.shape[1])
    found.index_add_(0, batch.rows, table[batch.features] * batch.values.unsqueeze(1))
    return found.index_fill_(1, bias_columns, 1.0)


def _block_gradient(
    batch: Batch,
    block: Block,
    table: Tensor,
    hidden: Tensor,
    gradient: Tensor,
    back: Tensor,
    *,
    losses: bool,
) -> Tensor | None:
    """Writes gᵀ·h and g·W of a block's models; returns sums of squared errors where asked for."""
    w, h = _by_member(table, block), _by_member(hidden, block)  # (members, n or rows, columns)
    y = torch.bmm(h, w.mT).relu_()  # (members, rows, n)
    there = y[:, batch.rows, batch.features]
    missed = there - batch.values
    empty = w[..., -1].relu()  # what a sample without features gives
    squares = None
    if losses:
        squares = torch.linalg.vector_norm(y, dim=(1, 2)).square()
        squares += (missed.square() - there.square()).sum(1)
        squares += (batch.samples - batch.count) * empty.square().sum(1)
    y[:, batch.rows, batch.features] = torch.where(there > 0, missed, 0.0)
    own = torch.bmm(y.mT, h)
    own[..., -1] += (batch.samples - batch.count) * empty
    _by_member(gradient, block).copy_(own)
    to_hidden = _by_member(back, block)
    to_hidden.copy_(torch.bmm(y, w))
    to_hidden[..., -1] = 0.0
    return squares


def _by_member(columns: Tensor, block: Block) -> Tensor:
    """(rows, columns of a block) as (members, rows, columns of a member), a view."""
    found: Tensor = columns.unflatten(1, (_in(block), block.columns)).transpose(0, 1)
    return found


def _in(block: Block) -> int:
    return len(block.members)
