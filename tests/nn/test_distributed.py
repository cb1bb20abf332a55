"""Data-parallel training gives the parameters of one process: DDP and FSDP2, two processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Lorentz

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")

WORLD, STEPS, VOCABULARY, SIZE = 2, 2, 11, 16


class Decoder(nn.Module):
    """Two blocks that share one learnable curvature, which the root owns."""

    def __init__(self) -> None:
        super().__init__()
        self.curvature = Curvature(0.8)
        manifold = Lorentz(self.curvature)
        self.embedding = bnn.Embedding(VOCABULARY, SIZE, manifold=manifold)
        self.blocks = nn.ModuleList(
            bnn.TransformerBlock(SIZE, 4, manifold=manifold, causal=True, rotary=True)
            for _ in range(2)
        )
        self.norm = bnn.RMSNorm(SIZE, manifold=manifold)
        self.scores = bnn.MLR(SIZE, VOCABULARY, manifold=manifold)
        bnn.check_model(self)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.scores(self.norm(x))
        return out


def build() -> Decoder:
    """The same model in every process, away from its start, where time columns are 0."""
    torch.manual_seed(0)
    model = Decoder().double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model


def sequences() -> Tensor:
    return torch.randint(VOCABULARY, (2 * WORLD, 8), generator=torch.Generator().manual_seed(1))


def train(model: nn.Module, ids: Tensor) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        optimiser.zero_grad()
        F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimiser.step()


def single() -> dict[str, Tensor]:
    model = build()
    train(model, sequences())
    return model.state_dict()


# --- what each process does -----------------------------------------------------------------------


def with_ddp(rank: int) -> dict[str, Tensor]:
    model = nn.parallel.DistributedDataParallel(build())
    train(model, sequences().chunk(WORLD)[rank])
    return model.module.state_dict()


def with_fsdp(rank: int) -> dict[str, Tensor]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    mesh = init_device_mesh("cpu", (WORLD,))
    model = build()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    names = {name for name, p in model.named_parameters() if not isinstance(p, DTensor)}
    assert not names, f"not sharded: {names}"
    train(model, sequences().chunk(WORLD)[rank])
    return {name: value.full_tensor() for name, value in model.state_dict().items()}


def process(rank: int, work: Callable[[int], dict[str, Tensor]], folder: Path) -> None:
    torch.set_num_threads(1)
    # A file, not a port: nothing another test run could be listening on.
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=WORLD
    )
    try:
        torch.save(work(rank), folder / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("work", [with_ddp, with_fsdp], ids=["ddp", "fsdp"])
def test_two_processes_are_one(work: Callable[[int], dict[str, Tensor]], tmp_path: Path) -> None:
    start, expected = build().state_dict(), single()
    torch.multiprocessing.spawn(process, (work, tmp_path), nprocs=WORLD)
    for rank in range(WORLD):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert not torch.equal(value, start[name]), f"{name} was not trained"
            torch.testing.assert_close(found[name], value, rtol=1e-11, atol=1e-12, msg=name)
