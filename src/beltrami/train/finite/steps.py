"""The batches of an optimiser step, kept until their losses are known to be finite."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from beltrami.train.finite.find import find_nonfinite
from beltrami.train.finite.keep import RandomState
from beltrami.train.finite.processes import anywhere, gather, rank, several_processes
from beltrami.train.finite.report import NonFinite


class Reading:
    """Numbers on their way from the device to the host; making one waits for nothing."""

    def __init__(self, values: Tensor) -> None:
        self._values, self._arrived = values, None
        if values.device.type in ("cuda", "xpu"):
            self._values = torch.empty_like(values, device="cpu", pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._arrived = torch.get_device_module(values.device).Event()
            self._arrived.record()

    def get(self) -> list[float]:
        """The numbers; waits until they have arrived, and for nothing that was queued later."""
        if self._arrived is not None:
            self._arrived.synchronize()
        numbers: list[float] = self._values.tolist()
        return numbers


@dataclass
class Batch:
    """What is needed to run a batch again."""

    inputs: Any
    num_items: Any
    random_state: RandomState
    loss: Tensor


@dataclass
class Step:
    """The batches of one optimiser step, and what is known about them."""

    number: int = 0
    batches: list[Batch] = field(default_factory=list)
    norm: Tensor | None = None
    sent: Reading | None = None

    def send(self) -> None:
        """Set off what tells whether the losses, and the gradients' norm, are finite.

        All processes get the same. It takes one small kernel or two, and two more if they are
        several. Nothing is rounded to a narrower dtype, where a large number would be infinite.
        """
        numbers = [batch.loss for batch in self.batches]
        norm = torch.zeros_like(numbers[0]) if self.norm is None else self.norm
        dtype = functools.reduce(torch.promote_types, [t.dtype for t in (*numbers, norm)])
        losses = torch.stack([loss.to(dtype) for loss in numbers])
        # 0·x is 0, or NaN if x is not finite, and sums of that cannot overflow.
        loss = losses[0] if len(numbers) == 1 else (losses * 0).sum()
        values = torch.stack([loss, norm.to(loss)])
        if several_processes():
            values = values * 0
            torch.distributed.all_reduce(values)
        self.norm, self.sent = None, Reading(values)

    def receive(self) -> tuple[bool, bool]:
        """Whether the losses, and whether the norm of the gradients, were not finite."""
        if self.sent is None:
            return False, False
        loss, norm = self.sent.get()
        self.sent = None
        return not math.isfinite(loss), not math.isfinite(norm)


@dataclass
class Found:
    """What a second look at a step's batches gave.

    Attributes:
        batch: which of the batches it was, counted from 0, if that is known.
        origin: where it began, if that was found.
        failure: the process and the error, if a batch could not be run again.
        error: that error itself, if it was raised in this process.
    """

    batch: int | None = None
    origin: NonFinite | None = None
    failure: str = ""
    error: Exception | None = None


def look_again(
    model: nn.Module, step: Step, run: Callable[[Batch], Tensor], *, bad_loss: bool
) -> Found:
    """Run the step's batches again: which one it was, and where it began.

    All processes must call it, and all get the same, but for `error`. None of them raises, so that
    none waits for one that is gone.
    """
    together = several_processes()
    result = Found()
    for index, batch in enumerate(step.batches):
        if bad_loss and not anywhere(not bool(torch.isfinite(batch.loss)), together):
            continue
        origin, failure = None, ""
        try:
            origin = find_nonfinite(
                model,
                functools.partial(run, batch),
                random_state=batch.random_state,
                together=together,
            )
        except Exception as error:
            result.error = result.error or error
            failure = f"process {rank()}: " if together else ""
            failure += f"{type(error).__name__}: {error}"
        answers = gather((origin, failure), together)
        result.origin = next((o for o, _ in answers if o is not None), None)
        result.failure = result.failure or next((f for _, f in answers if f), "")
        if result.origin is not None or bad_loss:
            result.batch = index
            break
    return result
