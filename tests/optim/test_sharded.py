"""The optimisers on parameters that FSDP2 has split: as one process, and across checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Lorentz, Manifold, PoincareBall
from beltrami.optim import (
    RiemannianAdam,
    RiemannianAdamW,
    RiemannianSGD,
    clip_grad_norm_,
    param_groups,
)
from tests.optim.processes import assert_same, picture, share, together, whole

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")

WORDS, CLASSES, BATCH, STEPS = 7, 3, 12, 4
# 7 rows and 5 coordinates: two processes get unequal parts. FSDP2 wants equal ones of columns.
SIZES = {"rows": 5, "copies": 5, "columns": 6}
MANIFOLDS: dict[str, type[Manifold]] = {"lorentz": Lorentz, "ball": PoincareBall}
OPTIMISERS: dict[str, Any] = {
    "adam": lambda groups: RiemannianAdam(groups, lr=0.02),
    "amsgrad": lambda groups: RiemannianAdam(groups, lr=0.02, amsgrad=True),
    "adamw": lambda groups: RiemannianAdamW(groups, lr=0.02),
    "momentum": lambda groups: RiemannianSGD(groups, lr=0.05, momentum=0.9),
    "nesterov": lambda groups: RiemannianSGD(groups, lr=0.05, momentum=0.9, nesterov=True),
}

# A manifold, an optimiser, and how the parameters are split.
Case = tuple[str, str, str]


class Model(nn.Module):
    """Points as rows (the table), one point on its own (β of the norm), a curvature for all.

    And points with a curvature each.
    """

    def __init__(self, kind: str, size: int) -> None:
        super().__init__()
        self.curvature = Curvature(0.8)
        manifold = MANIFOLDS[kind](self.curvature)
        self.embedding = bnn.Embedding(WORDS, size, manifold=manifold, radius=0.5)
        self.linear = bnn.Linear(size, size, manifold=manifold)
        self.norm = bnn.BatchNorm(size, manifold=manifold)
        self.scores = bnn.MLR(size, CLASSES, manifold=manifold)
        # Four spaces of one point each: their curvatures belong to the rows that FSDP2 splits.
        self.bends = Curvature(0.7, size=4)
        self.spaces = MANIFOLDS[kind](self.bends)
        self.centres = nn.Parameter(0.2 * torch.randn(4, size))
        self.manifold_of = {"centres": self.spaces}

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.scores(self.norm(self.linear(self.embedding(ids))))
        shift = torch.arange(4.0, dtype=out.dtype) * self.spaces.dist0(self.centres)
        return out * (1 + 0.1 * shift.sum())


def build(kind: str, layout: str = "rows") -> Model:
    """The same model in every process, away from its start."""
    torch.manual_seed(0)
    model = Model(kind, SIZES[layout]).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    model.norm.eval()  # a batch's own statistics would be those of one process
    return model


def shard(kind: str, layout: str = "rows") -> Model:
    """A model that is split: by rows, by columns, or by rows in each of several copies."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard

    options: dict[str, Any] = {"mesh": init_device_mesh("cpu", (dist.get_world_size(),))}
    if layout == "columns":
        options["shard_placement_fn"] = lambda p: Shard(p.ndim - 1)
    if layout == "copies":
        shape = (dist.get_world_size(), 1)
        options["mesh"] = init_device_mesh("cpu", shape, mesh_dim_names=("copies", "rows"))
    model = build(kind, layout)
    fully_shard(model.scores, **options)
    fully_shard(model, **options)
    return model


def optimiser_of(model: Model, name: str) -> Optimizer:
    groups = param_groups(model, weight_decay=0.1, point_weight_decay=0.1, curvature_lr=0.3)
    found: Optimizer = OPTIMISERS[name](groups)
    return found


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(WORDS, (BATCH,), generator=generator)
    return ids, torch.randint(CLASSES, (BATCH,), generator=generator)


def backward(model: Model, step: int, *, split: bool) -> None:
    ids, classes = (share(t) if split else t for t in batch(step))
    F.cross_entropy(model(ids), classes).backward()


def train(model: Model, optimiser: Optimizer, steps: range, *, split: bool) -> None:
    for step in steps:
        optimiser.zero_grad()
        backward(model, step, split=split)
        optimiser.step()


def single(kind: str, name: str, layout: str = "rows") -> dict[str, Tensor]:
    model = build(kind, layout)
    optimiser = optimiser_of(model, name)
    train(model, optimiser, range(STEPS), split=False)
    return picture(model, optimiser)


# --- what each process does -----------------------------------------------------------------------


def all_cases(cases: list[Case]) -> list[dict[str, Tensor]]:
    """One start of the processes for all cases: it takes longer than they do."""
    found = []
    for kind, name, layout in cases:
        model = shard(kind, layout)
        check_placement(model, layout)
        optimiser = optimiser_of(model, name)
        train(model, optimiser, range(STEPS), split=True)
        found.append(picture(model, optimiser))
    return found


def check_placement(model: Model, layout: str) -> None:
    """The test is about what it says: parameters are split, and β within its one row."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    for name, p in model.named_parameters():
        assert isinstance(p, DTensor), f"{name} is not split"
        expected: tuple[Any, ...] = (Shard(p.ndim - 1 if layout == "columns" else 0),)
        if layout == "copies":
            expected = (Replicate(), *expected)
        assert p.placements == expected, f"{name} is split as {p.placements}"
    assert model.norm.bias is not None
    assert layout == "copies" or model.norm.bias.to_local().shape < model.norm.bias.shape


def all_clipped(cases: list[tuple[str, str]], max_norm: float) -> list[dict[str, Tensor]]:
    found = []
    for kind, layout in cases:
        model = shard(kind, layout)
        backward(model, 0, split=True)
        found.append(norm_and_gradients(model, max_norm))
    return found


def norm_and_gradients(model: Model, max_norm: float) -> dict[str, Tensor]:
    found = {"norm": whole(clip_grad_norm_(model, max_norm))}
    for name, p in model.named_parameters():
        assert p.grad is not None
        found[name] = whole(p.grad)
    return found


def save_halfway(name: str, folder: Path) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model = shard("lorentz")
    optimiser = optimiser_of(model, name)
    train(model, optimiser, range(STEPS // 2), split=True)
    model_state, optimiser_state = get_state_dict(model, optimiser)
    dcp.save({"model": model_state, "optimiser": optimiser_state}, checkpoint_id=folder)


def resume(name: str, folder: Path) -> dict[str, Tensor]:
    """In a group of processes, on a model that is split."""
    model = shard("lorentz")
    return finish(model, name, folder, split=True)


def finish(model: Model, name: str, folder: Path, *, split: bool) -> dict[str, Tensor]:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    with torch.no_grad():
        for p in model.parameters():
            p.zero_()  # whatever is there must be replaced
    optimiser = optimiser_of(model, name)
    model_state, optimiser_state = get_state_dict(model, optimiser)
    states = {"model": model_state, "optimiser": optimiser_state}
    dcp.load(states, checkpoint_id=folder, no_dist=not split)
    set_state_dict(model, optimiser, model_state_dict=model_state, optim_state_dict=optimiser_state)
    train(model, optimiser, range(STEPS // 2, STEPS), split=split)
    return picture(model, optimiser)


# --- tests ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_split_is_whole(tmp_path: Path) -> None:
    """Every optimiser gives the parameters and the state of one process."""
    cases: list[Case] = [("lorentz", name, "rows") for name in OPTIMISERS]
    cases += [("ball", "adam", "rows"), ("ball", "momentum", "rows")]
    cases += [("lorentz", "adamw", "columns"), ("lorentz", "adamw", "copies")]
    expected = [single(*case) for case in cases]
    for (kind, _, layout), state in zip(cases, expected, strict=True):
        start = dict(build(kind, layout).named_parameters())
        assert all(not torch.equal(p, state[name]) for name, p in start.items())
    for process in together(2, all_cases, tmp_path, cases):
        for found, state in zip(process, expected, strict=True):
            assert_same(found, state)


@pytest.mark.slow
def test_clipping_sees_all_parts(tmp_path: Path) -> None:
    cases = [("lorentz", "rows"), ("ball", "rows"), ("lorentz", "columns"), ("lorentz", "copies")]
    expected = []
    for kind, layout in cases:
        model = build(kind, layout)
        backward(model, 0, split=False)
        expected.append(norm_and_gradients(model, max_norm=0.1))
        assert expected[-1]["norm"] > 0.1
    for process in together(2, all_clipped, tmp_path, cases, 0.1):
        for found, state in zip(process, expected, strict=True):
            assert_same(found, state)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")  # that is meant
@pytest.mark.parametrize("name", ["adamw", "nesterov"])
def test_a_checkpoint_of_two_processes_serves_others(name: str, tmp_path: Path) -> None:
    """Written in parts by two, read by one without a group, and by three."""
    folder = tmp_path / "checkpoint"
    expected = single("lorentz", name)
    together(2, save_halfway, tmp_path, name, folder)
    assert len(list(folder.glob("*.distcp"))) == 2
    assert_same(finish(build("lorentz"), name, folder, split=False), expected)
    for found in together(3, resume, tmp_path, name, folder):
        assert_same(found, expected)
