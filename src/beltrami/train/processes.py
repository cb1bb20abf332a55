"""The processes that train together: one, or as many as `torchrun` started."""

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
    """Another process of this run has ended or cannot be reached any more."""


@dataclass(frozen=True)
class Processes:
    """The place of this process among those of a run.

    Args:
        device: where this process trains.
        rank: its number; 0 is the main process, which writes files and prints.
        world_size: how many there are.
    """

    device: torch.device
    rank: int = 0
    world_size: int = 1

    @property
    def is_main_process(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def shard(self, batch: Tensor) -> Tensor:
        """This process's rows of a batch that all hold: rank, rank + world_size, ..."""
        return batch if self.world_size == 1 else batch[self.rank :: self.world_size]

    def all_reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace gradients by their sums over all processes."""
        if self.world_size == 1:
            return
        for parameter in parameters:
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            with _collective_errors():
                dist.all_reduce(parameter.grad)

    def all_reduce(self, value: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if self.world_size > 1:
            value = value.clone()
            with _collective_errors():
                dist.all_reduce(value)
        return value

    def mean(self, metrics: dict[str, float]) -> dict[str, float]:
        """The mean of each metric over all processes, so that all of them decide alike.

        Each process computes the metrics of the same model and data. On a GPU, sums may come in
        another order, and a tie might then be broken in two ways.
        """
        if self.world_size == 1:
            return metrics
        values = torch.tensor(list(metrics.values()), dtype=torch.float64, device=self.device)
        mean = self.all_reduce(values) / self.world_size
        return dict(zip(metrics, mean.tolist(), strict=True))

    def broadcast(self, number: int) -> int:
        """The main process's number, in all processes."""
        if self.world_size == 1:
            return number
        shared = torch.tensor([number], dtype=torch.int64, device=self.device)
        with _collective_errors():
            dist.broadcast(shared, src=0)
            return int(shared.item())

    def any_process(self, flag: bool) -> bool:
        """Whether `flag` is set in any process, the same answer in all of them."""
        if self.world_size == 1:
            return flag
        return bool(self.all_reduce(torch.tensor([int(flag)], device=self.device)).item())


@contextmanager
def _collective_errors() -> Iterator[None]:
    """Raise torch's many errors for a lost process as one."""
    try:
        yield
    except RuntimeError as error:  # gloo has no class of its own for it, nccl several
        raise ProcessLostError(
            "another process of this run ended or cannot be reached any more"
        ) from error


@contextmanager
def process_group(device: str) -> Iterator[Processes]:
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
