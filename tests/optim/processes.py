"""Several processes in one test: gloo on the CPU, met through a file, ended by a deadline."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

DEADLINE = 240.0
# A process whose partner died waits this long in a collective operation, not gloo's half hour.
_PATIENCE = timedelta(seconds=120)


def together(world: int, work: Callable[..., Any], folder: Path, *arguments: Any) -> list[Any]:
    """What `work(*arguments)` returns in each of `world` processes that form one group.

    `work` must be importable, and its result something `torch.load` takes: tensors in dicts. The
    environment is that of torchrun, so that accelerate finds the group.
    """
    place = Path(tempfile.mkdtemp(dir=folder))
    end = time.monotonic() + DEADLINE
    running = torch.multiprocessing.spawn(
        _process, (world, work, place, arguments), nprocs=world, join=False
    )
    try:
        while not running.join(timeout=1):  # raises the first exception of a process
            if time.monotonic() > end:
                raise TimeoutError(f"{work.__name__} on {world} processes took over {DEADLINE} s")
    finally:
        for process in running.processes:
            if process.is_alive():
                process.kill()
    return [torch.load(place / f"{rank}.pt") for rank in range(world)]


def _process(
    rank: int, world: int, work: Callable[..., Any], place: Path, arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
    }
    # A file, not a port: nothing another test run could be listening on.
    rendezvous = f"file://{place / 'rendezvous'}"
    dist.init_process_group(
        "gloo", init_method=rendezvous, rank=rank, world_size=world, timeout=_PATIENCE
    )
    try:
        torch.save(work(*arguments), place / f"{rank}.pt")
        dist.barrier()  # nobody leaves while another still talks to it
    finally:
        dist.destroy_process_group()
    # All is written. Threads of torch that outlive the interpreter have been seen to abort it.
    os._exit(0)


def share(batch: Tensor) -> Tensor:
    """The part of a batch that belongs to this process."""
    return batch.chunk(dist.get_world_size())[dist.get_rank()]


def whole(t: Tensor) -> Tensor:
    """All of a tensor that may be split; every process must ask."""
    return t.full_tensor() if hasattr(t, "full_tensor") else t.detach().clone()


def picture(model: nn.Module, optimiser: Optimizer) -> dict[str, Tensor]:
    """Parameters and the optimiser's state, whole, by name."""
    found = {}
    for name, parameter in model.named_parameters():
        found[name] = whole(parameter)
        for key, value in optimiser.state[parameter].items():
            found[f"{name} {key}"] = whole(torch.as_tensor(value))
    return found


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], rtol: float = 1e-11) -> None:
    """The same names, and values equal to a few digits less than float64 has."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=rtol, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}"
        )
