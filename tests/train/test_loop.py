"""The loop: steps, rates, the best state, resuming, Ctrl-C, capture."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from beltrami.geometry import Euclidean, Lorentz
from beltrami.models.hierarchy.table import PointTable
from beltrami.optim import RiemannianSGD
from beltrami.train.loop import train
from beltrami.train.processes import Processes
from beltrami.train.progress import ProgressListener
from beltrami.train.seeding import epoch_order
from beltrami.train.session import Session, TrainingDivergedError

DATA = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
PER_EPOCH = 5


def batches(epoch: int, start: int) -> Iterator[tuple[Tensor]]:
    for rows in epoch_order(len(DATA), 0, epoch).split(2)[start:]:
        yield (DATA[rows],)


def line(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Dropout(dropout), nn.Linear(3, 1))


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> Any:
    steps = {"steps": 4 * PER_EPOCH, "steps_per_epoch": PER_EPOCH}

    def loss(x: Tensor) -> Tensor:
        return (model(x) - x.sum(-1, keepdim=True)).square().mean()

    return train(model, optimizer, loss, batches, **{**steps, **options})


def test_it_takes_the_steps_of_a_loop_by_hand() -> None:
    model, twin = line(), line()
    session = Session()
    fit(model, torch.optim.Adam(model.parameters(), 0.05), session=session)
    optimizer = torch.optim.Adam(twin.parameters(), 0.05)
    for epoch in range(4):
        for (x,) in batches(epoch, 0):
            optimizer.zero_grad()
            loss = (twin(x) - x.sum(-1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
    assert torch.equal(model[1].weight, twin[1].weight)
    assert session.history[-1] == {"step": 20, "loss": loss.item()}


def test_rates_of_all_groups_follow_the_schedule() -> None:
    model = line()
    weight, bias = model.parameters()
    optimizer = torch.optim.SGD([{"params": [weight]}, {"params": [bias], "lr": 0.2}], lr=0.1)
    seen: list[tuple[float, ...]] = []
    optimizer.register_step_pre_hook(
        lambda *_: seen.append(tuple(group["lr"] for group in optimizer.param_groups))
    )
    fit(model, optimizer, steps=3, schedule=lambda step: 1 - step / 4)
    assert seen == [(0.1, 0.2), (0.75 * 0.1, 0.75 * 0.2), (0.5 * 0.1, 0.5 * 0.2)]


@pytest.mark.parametrize(
    ("steps", "every", "measured"),
    [(20, 1, [5, 10, 15, 20]), (20, 3, [15, 20]), (12, 1, [5, 10, 12]), (15, 2, [10, 15])],
)
def test_it_validates_and_keeps_the_best(steps: int, every: int, measured: list[int]) -> None:
    model = line(dropout=0.1)
    states: list[Tensor] = []
    modes: list[bool] = []
    model[1].register_forward_pre_hook(lambda *_: modes.append(model.training))

    def validate() -> float:
        model.eval()
        states.append(model[1].weight.detach().clone())
        return float(-len(states) % 3)  # 2, 1, 0, 2: the first is best

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    best = fit(model, optimizer, steps=steps, validate=validate, validate_every=every)
    assert best.steps == measured
    assert best.scores == [2.0, 1.0, 0.0, 2.0][: len(measured)]
    assert torch.equal(model[1].weight, states[0])
    assert modes == [True] * steps


def test_a_loss_may_bring_what_it_is_divided_by() -> None:
    model, session = line(), Session()

    def loss(x: Tensor) -> tuple[Tensor, Tensor]:
        return model(x).sum(), torch.tensor(4.0)

    total = model(next(batches(0, 0))[0]).sum().item()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, loss, batches, steps=1, session=session)
    assert session.history == [{"step": 1, "loss": pytest.approx(total / 4)}]


class Stopped(ProgressListener):
    """Sends a signal to this process, or raises, when a step is done."""

    def __init__(self, at: int, times: int = 1) -> None:
        self.at, self.times = at, times

    def on_step_end(self, done: int) -> None:
        if done == self.at:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("at", [1, 5, 13])
def test_ctrl_c_waits_for_the_step_and_a_resumed_training_ends_alike(
    tmp_path: Path, at: int
) -> None:
    """With dropout and momentum; checkpoints at intervals are never due here."""

    def run(path: Path, listener: ProgressListener | None = None) -> tuple[nn.Module, Session]:
        session = Session("a line", checkpoint=path, listener=listener, checkpoint_seconds=1e9)
        model = line(dropout=0.2)
        scores = iter(range(100))
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        fit(model, optimizer, session=session, seed=3, validate=lambda: -float(next(scores)))
        return model, session

    whole, session = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", Stopped(at))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again, resumed = run(tmp_path / "cut")
    assert torch.equal(again[1].weight, whole[1].weight)
    assert resumed.history == session.history


def test_the_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    model = line()
    session = Session(checkpoint=tmp_path / "c", listener=Stopped(2, 2), checkpoint_seconds=1e9)
    with pytest.raises(KeyboardInterrupt):
        fit(model, torch.optim.SGD(model.parameters(), 0.1), session=session)
    assert not (tmp_path / "c").exists()


def test_a_diverged_training_names_its_parameter() -> None:
    model = line()
    with pytest.raises(TrainingDivergedError, match=r"step \d+ of 20, and the parameter 1.weight"):
        fit(model, torch.optim.SGD(model.parameters(), 1e30))


def test_processes_add_up_their_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes, one after the other: gradients are summed, and so is what is logged."""
    model = line()
    reduced: list[int] = []

    def summed(self: Processes, value: Tensor) -> Tensor:
        reduced.append(value.numel())
        return 2 * value

    monkeypatch.setattr(Processes, "all_reduce", summed)
    monkeypatch.setattr(Processes, "broadcast", lambda self, number: number)
    monkeypatch.setattr(Processes, "any_process", lambda self, flag: flag)
    monkeypatch.setattr(Processes, "all_reduce_gradients", lambda self, p: reduced.append(-1))
    session = Session(processes=Processes(torch.device("cpu"), 0, 2))
    fit(model, torch.optim.SGD(model.parameters(), 0.1), steps=2, session=session)
    assert reduced == [-1, 1, -1, 1]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["adam", "riemannian", "flat"])
def test_captured_steps_do_what_steps_do(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    device = torch.device("cuda")

    def run() -> tuple[Tensor, list[dict[str, float]]]:
        manifold = Euclidean() if kind == "flat" else Lorentz(1.0)
        table = PointTable(20, 4, manifold, radius=1.0).to(device)
        optimizer: torch.optim.Optimizer = RiemannianSGD(table, lr=0.1)
        if kind == "adam":
            adam = {"lr": 0.01, "fused": True, "capturable": True}
            optimizer = torch.optim.Adam(table.parameters(), **adam)  # type: ignore[arg-type]
        session = Session(processes=Processes(device))

        def pairs(epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
            order = epoch_order(20, 0, epoch).view(5, 2, 2)
            yield from ((a[0], a[1]) for a in order[start:])

        def loss(a: Tensor, b: Tensor) -> Tensor:
            return table.manifold.dist_sq(table(a), table(b)).mean()

        train(
            table,
            optimizer,
            loss,
            pairs,
            steps=25,
            steps_per_epoch=5,
            session=session,
            schedule=lambda step: 1 - step / 30,
            capture=True,
        )
        return table.weight.detach().clone(), session.history

    captured, history = run()
    monkeypatch.setattr("beltrami.train.graph_capture.WARMUP_STEPS", 10**9)
    eager, expected = run()
    torch.testing.assert_close(captured, eager, rtol=1e-5, atol=1e-7)
    for a, b in zip(history, expected, strict=True):
        assert a == pytest.approx(b, rel=1e-5)
