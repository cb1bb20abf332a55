r"""How the toy models are moved: Adam, after a decay that may also draw rows to length 1.

With learning rate η, before the step of Adam,

    γ ≥ 0    W ← (1 − η·γ)·W                              weight decay
    γ < 0    Wᵢ ← Wᵢ + η·|γ|·Wᵢ·(1/|Wᵢ| − 1)             |Wᵢ| ← |Wᵢ| + η·|γ|·(1 − |Wᵢ|)

Biases do not decay. A row that is exactly 0 has no direction, and stays 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from beltrami.models.superposition.branches import Branches
from beltrami.models.superposition.stack import Member, ToyStack

BETAS = (0.9, 0.999)
EPS = 1e-8  # Adam's, and that of a row's length
_LEAST = 0.05  # of the learning rate, at the end


def schedule(step: int, steps: int, warm_up: int) -> float:
    """The learning rate as a share of its highest: a line up, then a cosine down to 5 %.

    Args:
        step: from 0. steps: in all. warm_up: steps of the line.
    """
    if step < warm_up:
        return (step + 1) / warm_up
    along = (step + 1 - warm_up) / max(1, steps - warm_up)
    return _LEAST + (1 - _LEAST) * (1 + math.cos(math.pi * along)) / 2


class StackUpdate(nn.Module):
    """Adam for a stack, all members at once; its moments are buffers.

    `move` takes what changes from step to step as a tensor of three numbers, `numbers(step)`, which
    a captured CUDA graph reads anew at each replay.
    """

    first: Tensor
    second: Tensor
    rates: Tensor  # of each column
    rate: Tensor  # these of each member, in the order of the blocks
    gamma: Tensor
    unit: Tensor

    def __init__(self, stack: ToyStack, *, steps: int, warm_up: int) -> None:
        super().__init__()
        self.steps, self.warm_up = steps, warm_up
        self._stack = (stack,)  # in a tuple, so that it is no part of this module
        table = stack.table.detach()
        self.register_buffer("first", torch.zeros_like(table))
        self.register_buffer("second", torch.zeros_like(table))
        members: list[Member] = []
        rates: list[float] = []
        for block in stack.blocks:
            for member in (stack.members[i] for i in block.members):
                members.append(member)
                rates += [member.rate] * (block.columns - 1) + [member.bias_rate]
        self.register_buffer("rates", torch.tensor(rates), persistent=False)
        for name in ("rate", "gamma", "unit"):
            values = torch.tensor([getattr(member, name) for member in members])
            self.register_buffer(name, values, persistent=False)

    def numbers(self, step: int) -> Tensor:
        """Share of the learning rates, and what Adam's moments are divided by, on the CPU."""
        b1, b2 = BETAS
        share = schedule(step, self.steps, self.warm_up)
        return torch.tensor([share, 1 - b1 ** (step + 1), math.sqrt(1 - b2 ** (step + 1))])

    @torch.no_grad()
    def move(self, gradient: Tensor, numbers: Tensor) -> None:
        """Take one step."""
        (stack,) = self._stack
        share, first_by, second_by = numbers.unbind()
        table = stack.table
        branches = Branches(table.device)
        for weights, here in self._parts(table):
            with branches.branch():
                _decay(weights, share * self.rate[here], self.gamma[here], self.unit[here])
        branches.join()
        b1, b2 = BETAS
        self.first.lerp_(gradient, 1 - b1)
        self.second.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        root = self.second.sqrt().div_(second_by).add_(EPS)
        table.sub_(self.first.div(root).mul_(self.rates * (share / first_by)))
        if any(member.unit for member in stack.members):
            for weights, here in self._parts(table):
                _to_sphere(weights, self.unit[here])

    def _parts(self, table: Tensor) -> Iterator[tuple[Tensor, slice]]:
        """Weights of each block, (members, n, columns), and which members those are."""
        before = 0
        for block in self._stack[0].blocks:
            here = slice(before, before + len(block.members))
            before = here.stop
            yield block.by_member(table)[..., :-1], here


def _decay(weights: Tensor, rate: Tensor, gamma: Tensor, unit: Tensor) -> None:
    length = torch.linalg.vector_norm(weights, dim=-1)  # (members, n)
    rate, gamma, unit = (values.unsqueeze(-1) for values in (rate, gamma, unit))
    towards_one = 1 / (length + EPS) - 1
    keep = 1 - rate * gamma * torch.where(gamma < 0, towards_one, 1.0)
    weights.mul_(torch.where(unit, 1.0, keep).unsqueeze(-1))


def _to_sphere(weights: Tensor, unit: Tensor) -> None:
    length = torch.linalg.vector_norm(weights, dim=-1)
    weights.div_(torch.where(unit.unsqueeze(-1) & (length > 0), length, 1.0).unsqueeze(-1))
