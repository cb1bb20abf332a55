"""How many operators layers dispatch: in eager mode each is a launch, and small models wait for it.

Counted on the CPU, in float32, without views. A count that falls is a gain to be written down
here; one that rises needs a reason.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, shares_curvatures
from tests.operators import count_operators

SIZE, HEADS = 64, 4


def manifold_of(kind: str) -> Manifold:
    if kind == "euclidean":
        return Euclidean()
    return Lorentz(1 / SIZE if kind == "fixed" else Curvature(1 / SIZE))


def block(manifold: Manifold) -> nn.Module:
    return bnn.TransformerBlock(SIZE, HEADS, manifold=manifold, causal=True)


def points() -> torch.Tensor:
    return torch.randn(2, 16, SIZE, requires_grad=True)


# Operators of a block forward and backward, at most. Five forward of each residual are for the γ
# with which an empty branch leaves the stream as it is.
BLOCK = {"fixed": (124, 240), "learned": (128, 278), "euclidean": (39, 67)}


@pytest.mark.parametrize("kind", BLOCK)
def test_of_a_block(kind: str) -> None:
    forward, backward = count_operators(block(manifold_of(kind)), points())
    assert forward <= BLOCK[kind][0]
    assert backward <= BLOCK[kind][1]


class Stack(nn.Module):
    def __init__(self, manifold: Manifold, depth: int = 6) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block(manifold) for _ in range(depth))

    @shares_curvatures
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.blocks:
            x = layer(x)
        return x


def in_a_row(manifold: Manifold) -> nn.Module:
    return bnn.Sequential(*[block(manifold) for _ in range(6)])


@pytest.mark.parametrize("make", [Stack, in_a_row])
def test_a_model_that_learns_its_curvature_runs_few_more(
    make: Callable[[Manifold], nn.Module],
) -> None:
    fixed, learned = (count_operators(make(manifold_of(k)), points()) for k in ("fixed", "learned"))
    assert learned[0] <= 1.05 * fixed[0]
    assert sum(learned) <= 1.07 * sum(fixed)
