"""Processes that compute together, and what they tell each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from beltrami.optim.sharded import is_sharded


def several_processes() -> bool:
    """Whether this process is one of a group of several."""
    return _ready() and torch.distributed.get_world_size() > 1


def rank() -> int:
    """The number of this process."""
    return torch.distributed.get_rank() if _ready() else 0


def _ready() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def gather(value: Any, together: bool) -> list[Any]:
    """The value of every process if they compute together, else this one's; all must ask."""
    if not together:
        return [value]
    values: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def anywhere(flag: bool, together: bool) -> bool:
    """Whether the flag is set here or, where processes compute together, in any of them."""
    return any(gather(flag, together))


def compute_together(model: nn.Module) -> bool:
    """Whether a forward or backward of this model waits for other processes."""
    if not several_processes():
        return False
    wrapped = any(_waits(module) for module in model.modules())
    return wrapped or any(is_sharded(p) for p in model.parameters())


def _waits(module: nn.Module) -> bool:
    kinds = nn.parallel.DistributedDataParallel | nn.SyncBatchNorm
    return isinstance(module, kinds) or "_fsdp_wrapped_module" in module._modules
