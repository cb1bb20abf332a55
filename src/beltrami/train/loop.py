"""One training loop for tables of points and for small models.

Batches, steps, learning rates, validation, checkpoints, graph capture and Ctrl-C are the same for
all of them; what a model is trained on is its loss. Large models go through
`beltrami.train.trainer` instead.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from beltrami.train.best import BestState
from beltrami.train.checkpoint import Part
from beltrami.train.graph_capture import CapturedStep, capture_stream
from beltrami.train.processes import Processes
from beltrami.train.seeding import mix_seeds, seeded
from beltrami.train.session import Session
from beltrami.train.threads import one_thread

Batch = Sequence[Tensor]
Loss = Callable[..., Tensor | tuple[Tensor, Tensor]]


def train(
    model: nn.Module,
    optimizer: Optimizer,
    loss: Loss,
    batches: Callable[[int, int], Iterable[Batch]],
    *,
    steps: int,
    steps_per_epoch: int = 1,
    session: Session | None = None,
    schedule: Callable[[int], float] = lambda step: 1.0,
    validate: Callable[[], float] | None = None,
    validate_every: int = 1,
    seed: int | None = None,
    small: bool = False,
    capture: bool = False,
    parts: Mapping[str, Part] | None = None,
) -> BestState:
    """Train in place, and leave the model as it was where validation was best.

    >>> rows = torch.arange(len(data)).split(64)
    >>> train(
    ...     table, RiemannianAdam(table, lr=0.01), lambda rows: loss_of(table, data[rows]),
    ...     lambda epoch, start: ((r,) for r in rows[start:]),
    ...     steps=20 * len(rows), steps_per_epoch=len(rows),
    ... )

    Several processes share each batch: every process computes its share of the loss, and losses and
    gradients are summed. Ctrl-C stops after the step under way, with a checkpoint; pressed twice,
    at once. Hooks of the optimiser (`register_step_pre_hook`, `register_step_post_hook`) are the
    place for what happens around its step, such as clipping.

    Args:
        model: what is trained; in training mode wherever `loss` is called.
        optimizer: over the model's parameters; its learning rates are the highest ones.
        loss: of a batch, this process's share of it. A second tensor may come with it, also a
            share, by which the loss is divided in the logs.
        batches: of an epoch, from a place in it on: `batches(epoch, start)`. To be resumable it
            must depend on its arguments alone, or draw lazily from a generator among `parts`.
        steps: in all. steps_per_epoch: how many of them are an epoch.
        session: where the training resumes, logs and writes checkpoints.
        schedule: the share of the learning rates at a step.
        validate: a score, higher is better. validate_every: epochs between two scores; there is
            always one after the last step.
        seed: of what is drawn inside a step, such as dropout, for each step anew; without it
            torch's own random state is used as it is.
        small: tensors are so small that on a CPU one thread is quickest.
        capture: on a GPU, replay the step as a CUDA graph. Batches must be of one shape, neither
            loss nor optimiser may wait for the device, and nothing may be drawn inside.
        parts: whatever else changes while training, for checkpoints.

    Returns: the scores of validation; its state is that of the model.
    """
    session, best = session or Session(), BestState(model)
    states: dict[str, Part] = {"model": model, "optimizer": optimizer, **(parts or {})}
    if validate is not None:
        states["best"] = best
    processes, device = session.processes, session.device
    update = _Update(model, optimizer, loss, processes, capture)
    done = session.begin(steps, **states)
    threads = one_thread() if small and device.type == "cpu" else contextlib.nullcontext()
    model.train()
    with threads, capture_stream(device), _deferred_interrupt() as interrupted:
        for step in range(done, steps):
            epoch, place = divmod(step, steps_per_epoch)
            if place == 0 or step == done:
                upcoming = iter(batches(epoch, place))
            batch, ends = next(upcoming), step + 1 == steps
            with _draws(seed, step, processes):
                value = update(batch, schedule(step))
            epoch_ends = place + 1 == steps_per_epoch and (epoch + 1) % validate_every == 0
            if validate is not None and (epoch_ends or ends):
                best.update(processes.mean({"score": validate()})["score"], step + 1)
                model.train()
            session.step(step + 1, loss=value)
            if interrupted():
                session.save(step + 1)
                raise KeyboardInterrupt
        best.restore()
    return best


class _Update:
    """One step of the optimiser on a batch; a captured step reads batch and rates from buffers."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loss: Loss,
        processes: Processes,
        capture: bool,
    ) -> None:
        self._model, self._optimizer, self._loss = model, optimizer, loss
        self._processes = processes
        self._rates = [float(group["lr"]) for group in optimizer.param_groups]
        self._share = float("nan")  # of the rates, as set in the groups
        self._batch: Batch = ()
        self._value = torch.zeros(())
        step = CapturedStep(self._step, processes)
        self._captured = step if capture and step.captures else None

    def __call__(self, batch: Batch, share: float) -> Tensor:
        """Take the step; its loss, in a buffer that the next step may write over."""
        if self._captured is None:
            self._batch = batch
            self._set_rates(share)
            self._step()
            return self._value
        if not self._batch:
            self._batch = [torch.empty_like(part, device=self._processes.device) for part in batch]
            for group in self._optimizer.param_groups:  # what a captured step reads
                group["lr"] = torch.zeros((), device=self._processes.device)
        for buffer, part in zip(self._batch, batch, strict=True):
            buffer.copy_(part)
        self._set_rates(share)
        self._captured()
        return self._value

    def _set_rates(self, share: float) -> None:
        if share == self._share and self._captured is not None:
            return
        self._share = share
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * share)
            else:
                group["lr"] = rate * share

    def _step(self) -> None:
        loss = self._loss(*self._batch)
        total, count = loss if isinstance(loss, tuple) else (loss, None)
        self._optimizer.zero_grad()
        total.backward()
        self._processes.all_reduce_gradients(self._model.parameters())
        self._optimizer.step()
        value = self._processes.all_reduce(total.detach())
        self._value = value if count is None else value / self._processes.all_reduce(count)


def _draws(
    seed: int | None, step: int, processes: Processes
) -> contextlib.AbstractContextManager[None]:
    """The random state of a step, another one in each process."""
    if seed is None:
        return contextlib.nullcontext()
    return seeded(mix_seeds(seed, step) + processes.rank, processes.device)


@contextlib.contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C wait for the end of a step; says whether it was pressed."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return
    pressed = False

    def handle(number: int, frame: Any) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
