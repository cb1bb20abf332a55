"""Activation and dropout."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import beltrami.nn as bnn
from beltrami.geometry import Euclidean, Lorentz, PoincareBall
from beltrami.nn.pointwise import ACTIVATIONS


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_works_on_coordinates(name: str) -> None:
    x = torch.randn(5, 8, dtype=torch.float64)
    expected = ACTIVATIONS[name](x)
    for manifold in (Lorentz(2.0), Euclidean()):
        assert torch.equal(bnn.Activation(name, manifold=manifold)(x), expected)
    ball = PoincareBall(2.0)
    in_ball = bnn.Activation(name, manifold=ball)(ball.exp0(x))
    torch.testing.assert_close(ball.log0(in_ball), expected)


def test_activation_takes_a_function() -> None:
    x = torch.randn(5, 8)
    assert torch.equal(bnn.Activation(torch.sin, manifold=Lorentz(1.0))(x), torch.sin(x))
    with pytest.raises(ValueError, match=r"one of 'relu', .*; got 'swish'"):
        bnn.Activation("swish", manifold=Lorentz(1.0))
    with pytest.raises(TypeError, match="name or callable, got int"):
        bnn.Activation(3, manifold=Lorentz(1.0))  # type: ignore[arg-type]


def test_dropout_drops_coordinates() -> None:
    x = torch.ones(1000, 8)
    layer = bnn.Dropout(0.25, manifold=Lorentz(1.0))
    out = layer(x)
    assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert torch.equal(layer.eval()(x), x)
    torch.manual_seed(1)
    expected = F.dropout(x, 0.25)
    torch.manual_seed(1)
    assert torch.equal(layer.train()(x), expected)


def test_dropout_in_the_ball_drops_tangent_coordinates() -> None:
    ball = PoincareBall(1.0)
    v = torch.ones(100, 4, dtype=torch.float64) / 4
    tangent = ball.log0(bnn.Dropout(0.5, manifold=ball)(ball.exp0(v)))
    dropped = tangent.abs() < 1e-12
    assert 0.3 < dropped.double().mean() < 0.7
    torch.testing.assert_close(tangent[~dropped], torch.full_like(tangent[~dropped], 0.5))


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan"), True, "half"])
def test_dropout_wants_a_probability(p: object) -> None:
    with pytest.raises(ValueError, match="p must be a probability"):
        bnn.Dropout(p, manifold=Lorentz(1.0))  # type: ignore[arg-type]
