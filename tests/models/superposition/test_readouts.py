"""Read-outs of hyperbolic space: what they tend to, and their gradients in a stack."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from beltrami.geometry import lorentz
from beltrami.geometry.hyperplane import busemann
from beltrami.models.superposition import FeatureSamples, Member, ToyAutoencoder, ToyStack, read_out
from beltrami.models.superposition.frequencies import power_law

NONLINEAR = ("bent", "margin", "distance", "busemann")


def points(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(k, 3, generator=g, dtype=torch.float64) for k in (7, 11))  # type: ignore[return-value]


def test_by_their_definitions() -> None:
    h, w = points()
    x, y = lorentz.exp0(h, 0.7), lorentz.exp0(w, 0.7)
    apart = lorentz.dist(x[:, None], y[None], 0.7)
    lengths = h.square().sum(1)[:, None] + w.square().sum(1)
    torch.testing.assert_close(read_out(h, w, "distance", 0.7), (lengths - apart.square()) / 2)
    expected = -w.norm(dim=1) * busemann(x[:, None], w[None], 0.7)
    torch.testing.assert_close(read_out(h, w, "busemann", 0.7), expected)
    flat = torch.tensor([[0.2, 1.0, -0.5]], dtype=torch.float64)
    bent = read_out(flat, torch.eye(3, dtype=torch.float64), "bent")
    torch.testing.assert_close(bent, torch.tensor([[0.12, 1.0, -0.375]], dtype=torch.float64))
    cosines = torch.nn.functional.cosine_similarity(h[:, None], w[None], -1)
    margin = h.norm(dim=1)[:, None] * w.norm(dim=1) * (2 * cosines - 1)
    torch.testing.assert_close(read_out(h, w, "margin"), margin)


def test_a_margin_is_kept_from_all_that_is_not_the_same_direction() -> None:
    h, w = points()
    assert bool((read_out(h, w, "margin") <= h @ w.mT).all())
    assert bool((read_out(h, w, "distance") <= h @ w.mT).all())
    torch.testing.assert_close(read_out(h, 3 * h, "margin").diag(), 3 * h.square().sum(1))
    torch.testing.assert_close(read_out(h, 3 * h, "distance").diag(), 3 * h.square().sum(1))


@pytest.mark.parametrize(("readout", "order"), [("distance", 1.0), ("busemann", 0.5)])
def test_flat_space_is_their_limit(readout, order: float) -> None:  # type: ignore[no-untyped-def]
    h, w = points()
    errors = [
        float((read_out(h, w, readout, c) - h @ w.mT).abs().max()) for c in (1e-3, 1e-4, 1e-5)
    ]
    for large, small in pairwise(errors):
        assert small == pytest.approx(large / 10**order, rel=0.1)


@pytest.mark.parametrize("readout", NONLINEAR)
def test_nothing_is_read_of_nothing(readout) -> None:  # type: ignore[no-untyped-def]
    _, w = points()
    assert read_out(torch.zeros(1, 3, dtype=torch.float64), w, readout).abs().max() < 1e-15


@pytest.mark.parametrize("readout", NONLINEAR)
def test_the_stacks_gradient_is_that_of_one_model(readout) -> None:  # type: ignore[no-untyped-def]
    stack = ToyStack(20, [Member(3), Member(5)], readout=readout, c=0.8).double()
    batch = FeatureSamples(power_law(20, 0.5), 30).batch(0)
    batch = replace(batch, values=batch.values.double())
    gradient, losses = stack.gradient(batch, losses=True)
    assert losses is not None
    x = batch.dense(20)
    for i, member in enumerate(stack.members):
        model = ToyAutoencoder(20, member.width, readout=readout, c=0.8).double()
        with torch.no_grad():
            model.weight.copy_(stack.weight(i))
            model.bias.copy_(stack.bias(i))
        loss = torch.nn.functional.mse_loss(model(x), x)
        loss.backward()
        start, columns = stack.place(i)
        torch.testing.assert_close(gradient[:, start : start + member.width], model.weight.grad)
        torch.testing.assert_close(gradient[:, start + columns - 1], model.bias.grad)
        torch.testing.assert_close(losses[i], 20 * loss.detach())


def test_an_unknown_one() -> None:
    with pytest.raises(ValueError, match="'cone'"):
        read_out(torch.zeros(1, 2), torch.zeros(3, 2), "cone")  # type: ignore[arg-type]
