"""`torch.compile(optimizer.step)`: the numbers of the eager step, in one graph, compiled once."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from beltrami.geometry import Lorentz, PoincareBall, Product, Sphere
from beltrami.optim import RiemannianAdam, create_optimizer
from tests.optim.problems import Words, points

CASES: dict[str, dict[str, Any]] = {
    "adam": {"kind": PoincareBall, "amsgrad": True, "weight_decay": 0.1, "point_weight_decay": 0.1},
    "adamw": {"kind": Lorentz, "weight_decay": 0.1, "point_weight_decay": 0.1},
    "sgd": {"kind": Lorentz, "momentum": 0.9, "weight_decay": 0.1, "point_weight_decay": 0.1},
}


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def run(model: Words, optimizer: Optimizer, *, compiled: bool, count: int = 10) -> None:
    # before the scheduler, which wraps `step` in a function that the compiler does not enter
    step = optimizer.step
    if compiled:
        step = torch.compile(optimizer.step, fullgraph=True, backend="aot_eager")
    scheduler = LambdaLR(optimizer, lambda n: 0.8**n)
    optimizer._opt_called = True  # type: ignore[attr-defined]  # or the scheduler misses its step
    for turn in range(count):
        optimizer.zero_grad()
        model.loss(turn).backward()
        step()
        scheduler.step()


@pytest.mark.parametrize("name", CASES)
def test_compiled_steps_are_the_eager_ones(name: str) -> None:
    """Of points, plain parameters and a curvature, with a learning rate that a scheduler turns."""
    options = dict(CASES[name])
    model = Words(options.pop("kind")).double()
    other = copy.deepcopy(model)
    start = copy.deepcopy(model)

    def create(model: Words) -> Optimizer:
        lr = torch.tensor(0.05, dtype=torch.float64)
        return create_optimizer(model, name, lr=lr, **options)

    optimizer, expected = create(model), create(other)
    run(model, optimizer, compiled=True)
    # The first step of SGD has no momentum yet, which is a graph of its own, as in torch.
    assert counters["stats"]["unique_graphs"] == (2 if name == "sgd" else 1)
    assert not counters["graph_break"]
    run(other, expected, compiled=False)
    # torch's compiled Adam counts steps in float32: 1 − 0.999 loses four digits of its seven.
    tolerance = 1e-10 if name == "sgd" else 1e-4
    every = (model.parameters(), other.parameters(), start.parameters())
    for a, b, c in zip(*every, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=1e-2 * tolerance)
        assert not torch.equal(a, c)
        for part, value in optimizer.state[a].items():
            torch.testing.assert_close(value, expected.state[b][part], rtol=tolerance, atol=1e-6)


def test_products_and_spheres() -> None:
    """What is stepped by the methods of its manifold is compiled too; bad rows are left there."""
    product = Product([(Lorentz(1.0), 2), (Sphere(0.5), 2)])

    def build() -> tuple[list[nn.Parameter], RiemannianAdam]:
        params = [nn.Parameter(points(product, 5, 4, seed=i)) for i in range(2)]
        return params, RiemannianAdam(params, lr=0.1, manifold=product)

    (params, optimizer), (others, expected) = build(), build()
    step = torch.compile(optimizer.step, fullgraph=True, backend="aot_eager")
    for turn in range(4):
        for p, q in zip(params, others, strict=True):
            p.grad = torch.randn_like(p)
            if turn == 2:
                p.grad[0, 0] = p.grad[1, 3] = float("nan")
            q.grad = p.grad.clone()
        step()
        expected.step()
    assert counters["stats"]["unique_graphs"] == 1
    for p, q in zip(params, others, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-13)
        assert p.detach().isfinite().all()


def test_the_default_compiler() -> None:
    """A table of points in float32, through Inductor's own code."""
    H = Lorentz(1.0)
    start = points(H, 40, 4, dtype=torch.float32)
    gradients = [torch.randn_like(start) for _ in range(4)]

    def run(compiled: bool) -> Tensor:
        x = nn.Parameter(start.clone())
        optimizer = RiemannianAdam([x], lr=torch.tensor(0.05), manifold=H)
        step = torch.compile(optimizer.step) if compiled else optimizer.step
        for gradient in gradients:
            x.grad = gradient.clone()
            step()
        return x.detach()

    torch.testing.assert_close(run(True), run(False), rtol=1e-5, atol=1e-6)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
