"""The start of a deep decoder in natural units beside its Euclidean twin.

A stack of blocks must pass on what the embedding says, and gradients, as the twin does. Before a
step of training, for depths of 6, 12 and 24: the share of the output that lies along the token's
embedding, the lengths of the branches, and the gradients of the first and the last block.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import beltrami.nn as bnn
from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold

WIDTH, HEADS, TOKENS, LENGTH = 128, 4, 1000, 64


@dataclass
class Start:
    """What a stack does before its first step."""

    share: float  # of the embedding's direction in the output
    branches: list[float]  # root mean square length of each branch's output
    gradients: tuple[float, float]  # norms over the parameters of the first and the last block


def start(manifold: Manifold, depth: int) -> Start:
    """A decoder's blocks between an embedding and a linear read-out with cross-entropy."""
    torch.manual_seed(0)
    embedding = bnn.Embedding(TOKENS, WIDTH, manifold=manifold)
    blocks = [
        bnn.TransformerBlock(WIDTH, HEADS, manifold=manifold, causal=True, rotary=True)
        for _ in range(depth)
    ]
    norm = bnn.RMSNorm(WIDTH, manifold=manifold)
    head = nn.Linear(WIDTH, TOKENS)
    nn.init.normal_(head.weight, std=0.02)
    lengths: list[Tensor] = []
    for block in blocks:
        for part in (block.attention, block.mlp):
            part.register_forward_hook(lambda _m, _i, out: lengths.append(out.detach()))
    ids = torch.randint(TOKENS, (2, LENGTH))
    x = first = embedding(ids)
    for block in blocks:
        x = block(x)
    share = nn.functional.cosine_similarity(x, first, dim=-1).mean().item()
    loss = nn.functional.cross_entropy(head(norm(x)).flatten(0, 1), ids.roll(-1, 1).flatten())
    loss.backward()
    sizes = [y.square().sum(-1).mean().sqrt().item() for y in lengths]
    return Start(share, sizes, (gradient(blocks[0]), gradient(blocks[-1])))


def gradient(block: nn.Module) -> float:
    """Norm of the gradient of a block's weights."""
    weights = [p.grad for p in block.parameters() if p.grad is not None and p.ndim > 1]
    return torch.stack([g.norm() for g in weights]).norm().item()


@pytest.mark.parametrize("learnable", [True, False])
@pytest.mark.parametrize("depth", [6, 12, 24])
def test_the_start_is_that_of_the_twin(depth: int, learnable: bool) -> None:
    twin = start(Euclidean(), depth)
    c = Curvature.natural(WIDTH) if learnable else 1 / WIDTH
    curved = start(Lorentz(c), depth)
    assert curved.share >= 0.7 * twin.share
    for ours, theirs in zip(curved.branches, twin.branches, strict=True):
        assert ours == pytest.approx(theirs, rel=0.1)
    first, last = (a / b for a, b in zip(curved.gradients, twin.gradients, strict=True))
    assert 0.5 <= first / last <= 2
    assert 0.5 <= first <= 2
