"""Training a stack of toy models, step by step; on a GPU as a captured graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from beltrami.models.superposition.curved import curved_gradient
from beltrami.models.superposition.members import Readout
from beltrami.models.superposition.samples import Batch, FeatureSamples, padded, refill
from beltrami.models.superposition.stack import ToyStack
from beltrami.models.superposition.update import StackUpdate

_WARM = 3  # steps before a graph is captured


class StackTraining(nn.Module):
    """A stack, its data and its optimiser.

    Its state is that of the table and Adam's moments: data are a function of the step, so that a
    training goes on from there as if it had not been interrupted.

    Args:
        stack: the models, on the device of the data.
        data: one a stream.
        steps: in all. warm_up: steps in which the learning rate rises.
        readout, c: how features are read.
        scale: of the gradients; None is that of the mean squared error.
        graphed: capture the step as a CUDA graph; None does on a GPU, where starting its kernels
            one by one would take longer than they do.
        tf32: multiply matrices on a GPU's tensor cores, which rounds factors to 11 bits; False does
            as torch is told to.
    """

    def __init__(
        self,
        stack: ToyStack,
        data: Sequence[FeatureSamples],
        *,
        steps: int,
        warm_up: int,
        readout: Readout = "linear",
        c: float = 1.0,
        scale: float | None = None,
        graphed: bool | None = None,
        tf32: bool = False,
    ) -> None:
        super().__init__()
        streams = 1 + max(member.stream for member in stack.members)
        if len(data) != streams or any(len(one) != stack.n for one in data):
            sizes = ", ".join(str(len(one)) for one in data)
            raise ValueError(
                f"the members need {streams} streams of {stack.n} features, got {sizes}"
            )
        if not 0 <= warm_up <= steps:
            raise ValueError(f"warm_up must lie in 0..{steps}, got {warm_up}")
        self.stack, self.data, self.scale = stack, list(data), scale
        self.readout, self.c = readout, c
        self.update = StackUpdate(stack, steps=steps, warm_up=warm_up)
        self.graphed = stack.table.is_cuda if graphed is None else graphed
        if self.graphed and not stack.table.is_cuda:
            raise ValueError(
                f"graphed is for a CUDA device, and the stack is on {stack.table.device}"
            )
        if tf32 and not stack.table.is_cuda:
            raise ValueError(f"tf32 is for a CUDA device, and the stack is on {stack.table.device}")
        self.tf32 = tf32
        self.update.to(stack.table.device)
        self._graphs: dict[bool, _Graph] = {}

    def step(self, step: int, *, losses: bool = False) -> Tensor | None:
        """Train on the batch of a step; the losses before it, (members,), where asked for."""
        if not 0 <= step < self.update.steps:
            raise ValueError(f"there are {self.update.steps} steps, from 0 on, and no step {step}")
        batches = [data.batch(step) for data in self.data]
        numbers = self.update.numbers(step)
        with _tensor_cores() if self.tf32 else nullcontext():
            if not self.graphed:
                return self._move(batches, numbers.to(self.stack.table.device), losses)
            if losses not in self._graphs:
                self._graphs[losses] = _Graph(self, batches, numbers, losses)
        return self._graphs[losses].replay(batches, numbers)

    def _move(self, batches: Sequence[Batch], numbers: Tensor, losses: bool) -> Tensor | None:
        found: Tensor | None
        if self.readout == "linear":
            gradient, found = self.stack.gradient(batches, scale=self.scale, losses=losses)
        else:
            gradient, found = curved_gradient(
                self.stack, batches, self.readout, self.c, scale=self.scale
            )
        self.update.move(gradient, numbers)
        return found if losses else None


class _Graph:
    """A step whose kernels are started at once; what changes is copied to where it was."""

    def __init__(
        self, training: StackTraining, batches: Sequence[Batch], numbers: Tensor, losses: bool
    ) -> None:
        device = training.stack.table.device
        self.batches = [
            padded(batch, data.room()) for batch, data in zip(batches, training.data, strict=True)
        ]
        self.numbers = numbers.to(device)
        before = {name: value.clone() for name, value in training.state_dict().items()}
        apart = torch.cuda.Stream(device)
        apart.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(apart):
            for _ in range(_WARM):
                training._move(self.batches, self.numbers, losses)
        torch.cuda.current_stream(device).wait_stream(apart)
        training.load_state_dict(before)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.losses = training._move(self.batches, self.numbers, losses)

    def replay(self, batches: Sequence[Batch], numbers: Tensor) -> Tensor | None:
        for held, batch in zip(self.batches, batches, strict=True):
            refill(held, batch)
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
