r"""Training a stack of toy models, step by step; on a GPU as a captured graph.

A step is Adam's, after a decay that may also draw rows to length 1. With learning rate η,

    γ ≥ 0    W ← (1 − η·γ)·W                              weight decay
    γ < 0    Wᵢ ← Wᵢ + η·|γ|·Wᵢ·(1/|Wᵢ| − 1)             |Wᵢ| ← |Wᵢ| + η·|γ|·(1 − |Wᵢ|)

Biases do not decay. A row that is exactly 0 has no direction, and stays 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from beltrami.models.superposition.samples import Batch, FeatureSamples, padded, refill
from beltrami.models.superposition.stack import Branches, ToyStack
from beltrami.train.session import LOGGED, Session

LAST = 100  # steps whose mean is the loss
_WARM = 3  # steps before a graph is captured
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
        self._stack = (stack,)  # in a tuple, so that it is not part of this module
        table = stack.table.detach()
        self.register_buffer("first", torch.zeros_like(table))
        self.register_buffer("second", torch.zeros_like(table))
        members = [stack.members[i] for block in stack.blocks for i in block.members]
        for name in ("rate", "gamma", "unit"):
            values = torch.tensor([getattr(member, name) for member in members])
            self.register_buffer(name, values, persistent=False)
        rates = torch.empty(table.shape[1])
        for i, member in enumerate(stack.members):
            start, columns = stack.place(i)
            rates[start : start + columns] = member.rate
            rates[start + columns - 1] = member.bias_rate
        self.register_buffer("rates", rates, persistent=False)

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
        for weights, here in self._parts():
            with branches.branch():
                _decay(weights, share * self.rate[here], self.gamma[here], self.unit[here])
        branches.join()
        b1, b2 = BETAS
        self.first.lerp_(gradient, 1 - b1)
        self.second.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        root = self.second.sqrt().div_(second_by).add_(EPS)
        table.sub_(self.first.div(root).mul_(self.rates * (share / first_by)))
        if any(member.unit for member in stack.members):
            for weights, here in self._parts():
                length = torch.linalg.vector_norm(weights, dim=-1)
                on_sphere = self.unit[here].unsqueeze(-1) & (length > 0)
                weights.div_(torch.where(on_sphere, length, 1.0).unsqueeze(-1))

    def _parts(self) -> Iterator[tuple[Tensor, slice]]:
        """Weights of each block, (members, n, columns), and which members those are."""
        (stack,), first = self._stack, 0
        for block in stack.blocks:
            here = slice(first, first := first + len(block.members))
            yield block.by_member(stack.table.detach())[..., :-1], here


def _decay(weights: Tensor, rate: Tensor, gamma: Tensor, unit: Tensor) -> None:
    length = torch.linalg.vector_norm(weights, dim=-1)  # (members, n)
    rate, gamma, unit = (values.unsqueeze(-1) for values in (rate, gamma, unit))
    towards_one = 1 / (length + EPS) - 1
    keep = 1 - rate * gamma * torch.where(gamma < 0, towards_one, 1.0)
    weights.mul_(torch.where(unit, 1.0, keep).unsqueeze(-1))


class StackTraining(nn.Module):
    """A stack, its data and its optimiser.

    Its state is that of the table, Adam's moments and the summed losses: data are a function of the
    step, so that a training goes on from there as if it had not been interrupted.

    Args:
        stack: the models, on the device of the data.
        data: the samples.
        steps: in all. warm_up: steps in which the learning rate rises.
        scale: of the gradients; None is that of the mean squared error.
        graphed: capture the step as a CUDA graph; None does on a GPU, where launching its kernels
            one by one would take longer than they do.
        tf32: multiply matrices on a GPU's tensor cores, which rounds factors to 11 bits; False does
            as torch is set to.
    """

    def __init__(
        self,
        stack: ToyStack,
        data: FeatureSamples,
        *,
        steps: int,
        warm_up: int,
        scale: float | None = None,
        graphed: bool | None = None,
        tf32: bool = False,
    ) -> None:
        super().__init__()
        if len(data) != stack.n:
            raise ValueError(f"the models have {stack.n} features, and the data have {len(data)}")
        if not 0 <= warm_up <= steps:
            raise ValueError(f"warm_up must lie in 0..{steps}, got {warm_up}")
        device = stack.table.device
        for name, wanted in (("graphed", graphed), ("tf32", tf32)):
            if wanted and device.type != "cuda":
                raise ValueError(f"{name} is for a CUDA device, and the stack is on {device}")
        self.stack, self.data, self.scale, self.tf32 = stack, data, scale, tf32
        self.update = StackUpdate(stack, steps=steps, warm_up=warm_up).to(device)
        self.graphed = device.type == "cuda" if graphed is None else graphed
        sums = torch.zeros(len(stack.members), dtype=torch.float64, device=device)
        self.register_buffer("loss_sums", sums)
        self.loss_sums: Tensor
        self._graphs: dict[bool, _Graph] = {}

    def step(self, step: int, *, losses: bool = False) -> Tensor | None:
        """Train on the batch of a step; the losses before it, (members,), where asked for."""
        if not 0 <= step < self.update.steps:
            raise ValueError(f"there are {self.update.steps} steps, from 0 on, and no step {step}")
        batch, numbers = self.data.batch(step), self.update.numbers(step)
        with _tensor_cores() if self.tf32 else nullcontext():
            if not self.graphed:
                return self._move(batch, numbers.to(self.stack.table.device), losses)
            if losses not in self._graphs:
                self._graphs[losses] = _Graph(self, batch, numbers, losses)
        return self._graphs[losses].replay(batch, numbers)

    def run(self, session: Session) -> Tensor:
        """All steps that are left; returns the mean losses of the last hundred, (members,)."""
        steps = self.update.steps
        log_every, last = max(1, steps // LOGGED), min(LAST, steps)
        for step in range(session.begin(steps, training=self), steps):
            is_last = step >= steps - last
            logged = (step + 1) % log_every == 0 or step + 1 == steps
            losses = self.step(step, losses=is_last or logged)
            if losses is None:
                session.step(step + 1)
                continue
            if is_last:
                self.loss_sums += losses.double()
            session.step(step + 1, loss=losses.mean())
        return self.loss_sums / last

    def _move(self, batch: Batch, numbers: Tensor, losses: bool) -> Tensor | None:
        gradient, squares = self.stack.gradient(batch, scale=self.scale, losses=losses)
        self.update.move(gradient, numbers)
        return squares


class _Graph:
    """A step whose kernels are launched at once; what changes is copied to where it was."""

    def __init__(
        self, training: StackTraining, batch: Batch, numbers: Tensor, losses: bool
    ) -> None:
        device = training.stack.table.device
        self.batch = padded(batch, training.data.room())
        self.numbers = numbers.to(device)
        before = {name: value.clone() for name, value in training.state_dict().items()}
        apart = torch.cuda.Stream(device)
        apart.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(apart):
            for _ in range(_WARM):
                training._move(self.batch, self.numbers, losses)
        torch.cuda.current_stream(device).wait_stream(apart)
        training.load_state_dict(before)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.losses = training._move(self.batch, self.numbers, losses)

    def replay(self, batch: Batch, numbers: Tensor) -> Tensor | None:
        refill(self.batch, batch)
        self.numbers.copy_(numbers, non_blocking=True)
        self.graph.replay()
        return None if self.losses is None else self.losses.clone()


@contextmanager
def _tensor_cores() -> Iterator[None]:
    """TF32 for products of float32 matrices inside."""
    switch = torch.backends.cuda.matmul
    before = switch.fp32_precision
    switch.fp32_precision = "tf32"
    try:
        yield
    finally:
        switch.fp32_precision = before
