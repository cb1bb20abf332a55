"""What is timed: each layer on the Lorentz model beside the best Euclidean code for the same work.

The Euclidean block is the plain one: no learned residual weights, dot-product scores, fused
attention. Layers of ours have random time columns, since those they start with are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold

EUCLIDEAN, FIXED, LEARNED = "Euclidean", "Lorentz, fixed c", "Lorentz, learned c"
CURVATURE = 1.0
# Standard deviation of the time columns.
_TIME_STD = 0.02


@dataclass(frozen=True)
class Sizes:
    """One problem: width and heads of the layers, tokens a sequence, sequences a batch."""

    width: int
    heads: int
    tokens: int
    batch: int

    @property
    def shape(self) -> str:
        """For a table."""
        return f"{self.batch} × {self.tokens} tokens, width {self.width}, {self.heads} heads"


CPU = (Sizes(512, 8, 512, 8),)
CUDA = (Sizes(1024, 16, 2048, 8), Sizes(2048, 32, 2048, 8))
QUICK = (Sizes(64, 4, 32, 2),)


@dataclass(frozen=True)
class Case:
    """One layer: its competitors, the first of them the Euclidean one, and their inputs."""

    name: str
    sizes: Sizes
    competitors: dict[str, nn.Module]
    inputs: tuple[Tensor, ...]

    @property
    def title(self) -> str:
        """Name and width."""
        return f"{self.name} {self.sizes.width}"


class _Owner(nn.Module):
    """A layer with the curvature it works on, as a model would hold both."""

    def __init__(self, layer: nn.Module, curvature: Curvature) -> None:
        super().__init__()
        self.layer, self.curvature = layer, curvature

    def forward(self, *points: Tensor) -> Tensor:
        out: Tensor = self.layer(*points)
        return out


def _linear(manifold: Manifold, n: Sizes) -> nn.Module:
    if isinstance(manifold, Euclidean):
        return nn.Linear(n.width, n.width)
    return bnn.Linear(n.width, n.width, manifold=manifold)


def _norm(manifold: Manifold, n: Sizes) -> nn.Module:
    if isinstance(manifold, Euclidean):
        return nn.RMSNorm(n.width, eps=1e-6)
    return bnn.RMSNorm(n.width, manifold=manifold)


def _residual(manifold: Manifold, n: Sizes) -> nn.Module:
    if isinstance(manifold, Euclidean):
        return bnn.Residual(manifold=manifold, learnable=False)  # x + y
    return bnn.Residual(manifold=manifold)


def _attention(manifold: Manifold, n: Sizes) -> nn.Module:
    if isinstance(manifold, Euclidean):
        return bnn.Attention(
            n.width, n.heads, manifold=manifold, causal=True, rotary=True,
            score="dot", aggregate="mean",
        )  # fmt: skip
    return bnn.Attention(n.width, n.heads, manifold=manifold, causal=True, rotary=True)


def _mlp(manifold: Manifold, n: Sizes) -> nn.Module:
    return bnn.MLP(n.width, -(-8 * n.width // 24) * 8, manifold=manifold)


def plain_block(width: int, heads: int) -> bnn.TransformerBlock:
    """The Euclidean decoder block at its best."""
    return bnn.TransformerBlock(
        width, heads, manifold=Euclidean(), causal=True, rotary=True,
        score="dot", aggregate="mean", learn_residual=False, residual_weight=1.0,
    )  # fmt: skip


def _block(manifold: Manifold, n: Sizes) -> nn.Module:
    if isinstance(manifold, Euclidean):
        return plain_block(n.width, n.heads)
    return bnn.TransformerBlock(n.width, n.heads, manifold=manifold, causal=True, rotary=True)


SHORT = ("linear", "rms_norm", "residual")
BUILDERS: dict[str, Callable[[Manifold, Sizes], nn.Module]] = {
    "linear": _linear,
    "rms_norm": _norm,
    "residual": _residual,
    "attention": _attention,
    "mlp": _mlp,
    "block": _block,
}


def names(device: str, quick: bool) -> list[tuple[str, Sizes]]:
    """The cases of a device: all layers at its first width, then the block at its others."""
    first, *others = QUICK if quick else CUDA if device == "cuda" else CPU
    return [(name, first) for name in BUILDERS] + [("block", sizes) for sizes in others]


def build(name: str, sizes: Sizes, device: str = "cpu") -> Case:
    torch.manual_seed(0)
    learned = Curvature(CURVATURE)
    competitors = {
        EUCLIDEAN: BUILDERS[name](Euclidean(), sizes),
        FIXED: BUILDERS[name](Lorentz(CURVATURE), sizes),
        LEARNED: _Owner(BUILDERS[name](Lorentz(learned), sizes), learned),
    }
    if name == "rms_norm":
        del competitors[LEARNED]  # it does not use the curvature
    for module in competitors.values():
        randomise(module)
        module.to(device)
    points = 2 if name == "residual" else 1
    shape = sizes.batch, sizes.tokens, sizes.width
    inputs = tuple(torch.randn(*shape, device=device) for _ in range(points))
    return Case(name, sizes, competitors, inputs)


@torch.no_grad()
def randomise(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if name.endswith("time_weight"):
            parameter.normal_(std=_TIME_STD)
