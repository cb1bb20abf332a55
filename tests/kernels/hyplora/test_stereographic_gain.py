"""The gain between stereographic projections: against the projections, and its slopes."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from beltrami.kernels.hyplora.stereographic_gain import gain, gain_and_slopes


@given(st.floats(1e-6, 1.9), st.floats(0, 50))
def test_it_is_the_projection_the_map_and_the_way_back(n: float, m: float) -> None:
    """A point at radius r of the ball of radius 2 stands for x = r/(1 − r²/4); and back."""
    lifted = torch.tensor(n / (1 - n * n / 4), dtype=torch.float64)
    mapped = lifted * m / n  # the map makes vectors m/n times as long
    back = 2 * mapped / (1 + torch.sqrt(1 + mapped**2))
    p, q = (torch.tensor(v * v, dtype=torch.float64) for v in (n, m))
    torch.testing.assert_close(gain(p, q) * m, back, rtol=1e-12, atol=1e-300)


def test_short_vectors_are_left_alone() -> None:
    assert gain(torch.zeros(1), torch.zeros(1)) == 1


def test_slopes() -> None:
    p = torch.linspace(0, 3.61, 9, dtype=torch.float64, requires_grad=True)
    q = torch.logspace(-8, 6, 9, dtype=torch.float64, requires_grad=True)
    pairs = torch.cartesian_prod(p, q)
    g, by_p, by_q = gain_and_slopes(pairs[:, 0], pairs[:, 1])
    torch.testing.assert_close(g, gain(pairs[:, 0], pairs[:, 1]))
    (found,) = torch.autograd.grad(gain(pairs[:, 0], pairs[:, 1]).sum(), pairs)
    torch.testing.assert_close(torch.stack([by_p, by_q], 1), found, rtol=1e-10, atol=1e-300)
