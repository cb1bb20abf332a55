from __future__ import annotations

import math

import pytest
import torch

from beltrami.geometry import lorentz
from beltrami.kernels.pairs.chords import chords, left, right, rows_of

F64 = torch.float64


def all_chords(x, y, c):
    return chords(left(rows_of(x, c)), right(rows_of(y, c)))


@pytest.mark.parametrize("radius", [1e-6, 1e-3, 1.0, 5.0, 20.0, 40.0])
@pytest.mark.parametrize("c", [0.1, 1.0])
def test_float32_points_keep_their_digits(radius, c):
    """Against the elementwise chord in float64, for pairs 60 degrees and more apart."""
    g = torch.Generator().manual_seed(0)
    v = torch.randn(40, 6, dtype=F64, generator=g)
    v = v / v.norm(dim=-1, keepdim=True)
    x = lorentz.exp0(v * radius / c**0.5, c).float()
    y = lorentz.exp0(-v.roll(1, 0) * radius / c**0.5 / 2, c).float()
    exact = lorentz.chord_sq(x.double()[:, None], y.double(), c)
    apart = (v @ v.roll(1, 0).T) > -0.5
    error = ((all_chords(x, y, c) - exact) / exact).abs()
    assert error[apart].max() < 1e-13


@pytest.mark.parametrize("radius", [1e-4, 1.0, 8.0])
def test_near_pairs(radius):
    """A hundredth apart: the rounding of the product is eps·|x|², far below float32's."""
    g = torch.Generator().manual_seed(0)
    v = torch.randn(40, 6, dtype=F64, generator=g)
    x = lorentz.exp0(v / v.norm(dim=-1, keepdim=True) * radius)
    step = torch.randn(40, 6, dtype=F64, generator=g)
    step = step / step.norm(dim=-1, keepdim=True) * min(radius, 1.0) / 100
    y = lorentz.exp(x, lorentz.transport_from0(x, step)).float()
    x = x.float()
    exact = lorentz.dist(x.double(), y.double())
    found = 2 * torch.asinh(all_chords(x, y, 1.0).diagonal().sqrt() / 2)
    assert ((found - exact) / exact).abs().max() < 16 * 1.2e-7 * math.cosh(radius)


def test_coincident_rows_are_as_far_apart_as_is_said():
    for radius in (1e-3, 1.0, 5.0, 10.0):
        v = torch.randn(200, 8)
        x = lorentz.exp0(v / v.norm(dim=-1, keepdim=True) * radius)
        q = all_chords(x, x, 1.0).diagonal()
        assert (q >= 0).all()
        assert q.max().sqrt() <= 4e-8 * math.sinh(radius)


def test_without_curvature_it_is_euclidean():
    x, y = torch.randn(2, 5, 4), torch.randn(2, 6, 4)
    expected = (x.double()[:, :, None] - y.double()[:, None]).square().sum(-1)
    torch.testing.assert_close(all_chords(x, y, 0.0), expected, rtol=1e-13, atol=0)
