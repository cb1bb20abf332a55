"""The processes that share one run: one, or as many as `torchrun` started."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Processes:
    """Who we are among the processes of a run.

    Args:
        device: where this process trains.
        rank: our number, 0 for the one that writes files and speaks.
        count: how many there are.
    """

    device: torch.device
    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def share(self, batch: Tensor) -> Tensor:
        """Our part of a batch that all processes hold: rows rank, rank + count, ..."""
        return batch if self.count == 1 else batch[self.rank :: self.count]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up the gradients of all processes, in place."""
        if self.count == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)

    def sum(self, value: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if self.count > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def agree(self, number: int) -> int:
        """The first process's number, in all of them."""
        if self.count == 1:
            return number
        shared = torch.tensor([number], dtype=torch.int64, device=self.device)
        dist.broadcast(shared, src=0)
        return int(shared.item())


@contextmanager
def joined_processes(device: str) -> Iterator[Processes]:
    """Join the group that `torchrun` describes in the environment, and leave it at the end.

    Args:
        device: "auto", "cpu" or "cuda"; with "cuda" each process of a machine takes its own GPU.
    """
    kind = device
    if device == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda needs a GPU, and torch sees none; give --device cpu")
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes(torch.device(kind))
        return
    place = torch.device(kind)
    if kind == "cuda":
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    try:
        yield Processes(place, dist.get_rank(), count)
    finally:
        dist.destroy_process_group()
