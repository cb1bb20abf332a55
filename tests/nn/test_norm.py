"""Norms: torch's on space parts, and in the tangent space of the ball."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import beltrami.nn as bnn
from beltrami.geometry import Euclidean, Lorentz, PoincareBall


@pytest.mark.parametrize("manifold", [Lorentz(2.0), Euclidean()])
def test_space_parts_are_normalised_as_in_torch(manifold: Lorentz | Euclidean) -> None:
    x = 3 * torch.randn(5, 8) + 1
    rms, layer = bnn.RMSNorm(8, manifold=manifold), bnn.LayerNorm(8, manifold=manifold)
    torchs = nn.RMSNorm(8, eps=1e-6), nn.LayerNorm(8)
    for ours, theirs in zip((rms, layer), torchs, strict=True):
        with torch.no_grad():
            for p in ours.parameters():
                p.normal_()
        theirs.load_state_dict(ours.state_dict())
        torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("cls", [bnn.RMSNorm, bnn.LayerNorm])
def test_ball_works_on_tangent_vectors(cls: type[bnn.RMSNorm] | type[bnn.LayerNorm]) -> None:
    ball, x = PoincareBall(2.0), torch.randn(5, 8, dtype=torch.float64)
    inside, flat = cls(8, manifold=ball).double(), cls(8, manifold=Euclidean()).double()
    flat.load_state_dict(inside.state_dict())
    torch.testing.assert_close(ball.log0(inside(ball.exp0(x))), flat(x))


def test_ball_starts_within_its_reach() -> None:
    """A gain of 1 would put 4096 coordinates at radius 64, on the border of float32's ball."""
    ball = PoincareBall(1.0)
    x = ball.exp0(torch.randn(3, 4096) / 64)
    norm = bnn.RMSNorm(4096, manifold=ball)
    torch.testing.assert_close(ball.dist0(norm(x)), torch.ones(3), rtol=5e-3, atol=0)


def test_a_half_precision_stream_is_normalised_in_float32() -> None:
    norm = bnn.RMSNorm(64, manifold=Lorentz(1.0))
    x = torch.randn(5, 64).bfloat16()
    out = norm(x)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, norm(x.float()).bfloat16())


def test_eps_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"RMSNorm: eps must be positive and finite, got 0"):
        bnn.RMSNorm(8, manifold=Lorentz(1.0), eps=0)
