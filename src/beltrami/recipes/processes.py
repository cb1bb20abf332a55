"""The processes that share one run: one, or as many as `torchrun` started."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


class ProcessLostError(RuntimeError):
    """Another process of this run has ended, or cannot be reached any more."""


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
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            with _talking():
                dist.all_reduce(parameter.grad)

    def sum(self, value: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if self.count > 1:
            value = value.clone()
            with _talking():
                dist.all_reduce(value)
        return value

    def agree(self, number: int) -> int:
        """The first process's number, in all of them."""
        if self.count == 1:
            return number
        shared = torch.tensor([number], dtype=torch.int64, device=self.device)
        with _talking():
            dist.broadcast(shared, src=0)
            return int(shared.item())

    def any(self, mine: bool) -> bool:
        """Whether it holds in any of the processes, in all of them."""
        if self.count == 1:
            return mine
        return bool(self.sum(torch.tensor([int(mine)], device=self.device)).item())


@contextmanager
def _talking() -> Iterator[None]:
    """Name what torch says, in many words, when a partner has gone."""
    try:
        yield
    except RuntimeError as error:  # gloo has no class of its own for it, nccl several
        raise ProcessLostError(
            "another process of this run ended or cannot be reached any more"
        ) from error


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
        number = int(os.environ.get("LOCAL_RANK", "0"))
        if number >= torch.cuda.device_count():
            raise ValueError(
                f"torchrun started a process for GPU {number}, and this machine has "
                f"{torch.cuda.device_count()}; give --nproc-per-node {torch.cuda.device_count()}, "
                "or --device cpu"
            )
        place = torch.device("cuda", number)
        torch.cuda.set_device(place)
    # Its functions keep, as a default, the group there is when they are defined. torch.compile
    # imports it: then this group's threads would outlive it, and may abort a process that ends.
    importlib.import_module("torch.distributed.nn")
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    try:
        yield Processes(place, dist.get_rank(), count)
    finally:
        dist.destroy_process_group()
