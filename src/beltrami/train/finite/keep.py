"""What a second run of a batch must not change, and must have as the first run had it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class RandomState:
    """The state of torch's random generators, to run a batch again with the same dropout.

    Taking it waits for no device: a GPU's generator is a seed and a counter on the host.
    """

    cpu: Tensor
    devices: tuple[tuple[torch.device, Tensor], ...] = ()

    @classmethod
    def now(cls, devices: Iterable[torch.device] = ()) -> RandomState:
        """The state of the CPU's generator, and of those of the devices named."""
        others = [device for device in devices if device.type not in ("cpu", "meta")]
        states = [torch.get_device_module(d).get_rng_state(*_which(d)) for d in others]
        return cls(torch.get_rng_state(), tuple(zip(others, states, strict=True)))

    def restore(self) -> None:
        """Make it the state of the generators."""
        torch.set_rng_state(self.cpu)
        for device, state in self.devices:
            torch.get_device_module(device).set_rng_state(state, *_which(device))


def _which(device: torch.device) -> tuple[torch.device, ...]:
    """The argument that names a device; MPS has one device, and takes none."""
    return () if device.type == "mps" else (device,)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Leave buffers, gradients, training flags and random generators as they are now."""
    buffers = [
        (module, name, buffer, None if buffer is None else buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]
    training = [(module, module.training) for module in model.modules()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    devices = {p.device for p, _ in gradients} | {b.device for *_, b, _ in buffers if b is not None}
    random_state = RandomState.now(devices)
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        _gather_no_more(model)
        with torch.no_grad():
            for module, name, buffer, value in buffers:
                module._buffers[name] = buffer
                if buffer is not None and value is not None:
                    buffer.copy_(value)
        for module, flag in training:
            module.training = flag
        for parameter, gradient in gradients:
            parameter.grad = gradient
        random_state.restore()


def uncompiled() -> Any:
    """Compiled code sees no hooks, so it is run as written; a no-op if nothing is compiled."""
    if "torch._dynamo" in sys.modules:
        return torch.compiler.set_stance("force_eager")
    return nullcontext()


@contextmanager
def without_reduction(model: nn.Module) -> Iterator[None]:
    """DDP writes reduced gradients into buckets that the kept gradients may be views of."""
    ddp = [m for m in model.modules() if isinstance(m, nn.parallel.DistributedDataParallel)]
    due = [module.require_forward_param_sync for module in ddp]
    with ExitStack() as stack:
        for module in ddp:
            stack.enter_context(module.no_sync())
        try:
            yield
        finally:
            for module, flag in zip(ddp, due, strict=True):
                module.require_forward_param_sync = flag


def _gather_no_more(model: nn.Module) -> None:
    """FSDP2 leaves the outermost parameters whole after a forward without a backward."""
    if "torch.distributed.fsdp" in sys.modules:
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
