"""What the tests of the optimisers share: losses, runs and small models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Lorentz, Manifold

Loss = Callable[[Tensor], Tensor]
Make = Callable[..., Optimizer]


class MyLorentz(Lorentz):
    """A manifold of a user's own, which has no kernels and is stepped by its methods."""


def waves(width: int, seed: int = 1) -> Loss:
    """A smooth loss of coordinates, the same for every row: Σ sin(A x)."""
    matrix = torch.randn(width, width, dtype=torch.float64, generator=generator(seed))

    def loss(x: Tensor) -> Tensor:
        return torch.sin(x @ matrix.to(x.dtype)).sum()

    return loss


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def points(
    manifold: Manifold, *shape: int, std: float = 0.5, seed: int = 0, dtype: Any = torch.float64
) -> Tensor:
    """Random points near the origin."""
    return manifold.random(*shape, std=std, dtype=dtype, generator=generator(seed))


def sparse(rows: list[int], num: int, *size: int, seed: int = 0) -> Tensor:
    """A sparse gradient of the given rows of a table (num, *size), not coalesced."""
    values = torch.randn(len(rows), *size, dtype=torch.float64, generator=generator(seed))
    return torch.sparse_coo_tensor(
        torch.tensor([rows], dtype=torch.int64), values, (num, *size), check_invariants=True
    )


def steps(
    optimizer: Optimizer, losses: list[tuple[Tensor, Loss]], count: int
) -> list[list[Tensor]]:
    """Where parameters are after each step, every parameter with a loss of its own."""
    path = []
    for _ in range(count):
        optimizer.zero_grad()
        for parameter, loss in losses:
            loss(parameter).backward()
        optimizer.step()
        path.append([parameter.detach().clone() for parameter, _ in losses])
    return path


def walk(make: Make, start: Tensor, loss: Loss, count: int = 10) -> tuple[Tensor, dict[str, Any]]:
    """Where a parameter ends, and its state in the optimiser."""
    parameter = nn.Parameter(start.clone())
    optimizer = make([parameter])
    path = steps(optimizer, [(parameter, loss)], count)
    return path[-1][0], optimizer.state[parameter]


def forced(make: Make, start: Tensor, gradients: list[Tensor]) -> tuple[Tensor, dict[str, Any]]:
    """Where a parameter ends under given gradients, dense or sparse, and its state."""
    parameter = nn.Parameter(start.clone())
    optimizer = make([parameter])
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach(), optimizer.state[parameter]


def close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Assert that the largest error is at most `tolerance` times the largest entry."""
    assert actual.shape == expected.shape
    assert actual.isfinite().all()
    error = (actual - expected).abs().max() / expected.abs().max()
    assert error <= tolerance, f"relative error {float(error):.3g} > {tolerance:g}"


def same(a: Any, b: Any) -> bool:
    """Whether two nested structures are equal, tensors bit for bit."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


class Words(nn.Module):
    """A small model with parameters of every kind: points, a curvature, matrices and biases."""

    def __init__(
        self,
        kind: type[Manifold] = Lorentz,
        *,
        words: int = 12,
        size: int = 4,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.words = words
        self.curvature = Curvature(0.8)
        manifold = kind(self.curvature)  # type: ignore[call-arg]
        form = "htc" if kind is Lorentz else "tangent"
        self.embedding = bnn.Embedding(words, size, manifold=manifold, radius=0.5, sparse=sparse)
        self.linear = bnn.Linear(size, size, manifold=manifold, form=form)
        self.scores = bnn.MLR(size, words, manifold=manifold)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.scores(self.linear(self.embedding(ids)))
        return out

    def loss(self, turn: int = 0) -> Tensor:
        """Cross entropy of telling every word but one, a different one each turn."""
        ids = torch.arange(self.words).roll(turn)[1:]
        return F.cross_entropy(self(ids), ids)


def train(model: Words, optimizer: Optimizer, count: int, *, first: int = 0) -> list[float]:
    """Train for some steps; the losses."""
    losses = []
    for turn in range(first, first + count):
        optimizer.zero_grad()
        loss = model.loss(turn)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
