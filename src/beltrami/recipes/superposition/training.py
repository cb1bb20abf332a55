"""Training a stack of toy models, step by step; on a GPU as a captured graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from beltrami.models.superposition.samples import Batch, FeatureSamples, padded, refill
from beltrami.models.superposition.stack import ToyStack
from beltrami.recipes.superposition.update import StackUpdate
from beltrami.train.session import LOGGED, Session

LAST = 100  # steps whose mean is the loss
_WARM = 3  # steps before a graph is captured


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
