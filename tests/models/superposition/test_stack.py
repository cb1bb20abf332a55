"""A stack of toy models: gradients against autograd, and that no member feels another."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.models.superposition import FeatureSamples, Member, ToyAutoencoder, ToyStack, denser
from beltrami.models.superposition.frequencies import power_law
from beltrami.models.superposition.samples import padded

N = 40
WIDTHS = [3, 7, 8, 3, 12]


def data(seed: int = 0, share: float = 0.2) -> FeatureSamples:
    return FeatureSamples(denser(power_law(N, 1.0), share), 60, seed=seed)


def by_autograd(stack: ToyStack, i: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    model = ToyAutoencoder(N, stack.members[i].width).double()
    with torch.no_grad():
        model.weight.copy_(stack.weight(i))
        model.bias.copy_(stack.bias(i))
    loss = torch.nn.functional.mse_loss(model(x), x)
    loss.backward()
    assert model.weight.grad is not None
    assert model.bias.grad is not None
    return model.weight.grad, model.bias.grad, loss.detach() * N


@pytest.mark.parametrize("multiple", [1, 4, 32])
@pytest.mark.parametrize("in_a_room", [False, True])
def test_the_gradient_is_that_of_autograd(multiple: int, in_a_room: bool) -> None:
    stack = ToyStack(N, [Member(m) for m in WIDTHS], multiple=multiple).double()
    source = data()
    batch = source.batch(0)
    x = batch.dense(N).double()
    batch = padded(batch, source.room()) if in_a_room else batch
    gradient, losses = stack.gradient(_double(batch), losses=True)
    assert losses is not None
    for i in range(len(WIDTHS)):
        start, columns = stack.place(i)
        weight, bias, loss = by_autograd(stack, i, x)
        torch.testing.assert_close(gradient[:, start : start + WIDTHS[i]], weight)
        torch.testing.assert_close(gradient[:, start + columns - 1], bias)
        assert not bool(gradient[:, start + WIDTHS[i] : start + columns - 1].any())
        torch.testing.assert_close(losses[i], loss)


def test_models_of_a_width_start_alike() -> None:
    stack = ToyStack(N, [Member(5, 0.1), Member(6), Member(5, -1.0)], seed=4)
    assert torch.equal(stack.weight(0), stack.weight(2))
    assert torch.equal(stack.bias(0), stack.bias(2))
    assert not torch.equal(stack.bias(0), stack.bias(1))
    alone = ToyStack(N, [Member(6)], seed=4, multiple=1)
    assert torch.equal(stack.weight(1), alone.weight(0))
    assert not torch.equal(ToyStack(N, [Member(6)], seed=5).weight(0), alone.weight(0))


def test_how_it_starts() -> None:
    stack = ToyStack(5000, [Member(16)])
    assert float(stack.weight(0).detach().var()) == pytest.approx(1 / 16, rel=0.03)
    assert float(stack.bias(0).detach().var()) == pytest.approx(1, rel=0.1)
    unit = ToyStack(50, [Member(16, unit=True)]).weight(0).detach()
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(50))


def test_the_scale_of_the_gradient() -> None:
    stack = ToyStack(N, [Member(4)]).double()
    batch = _double(data().batch(0))
    mean, _ = stack.gradient(batch)
    scaled, _ = stack.gradient(batch, scale=100 * 2 / (60 * N))
    torch.testing.assert_close(scaled, 100 * mean)


def test_bad_stacks() -> None:
    with pytest.raises(ValueError, match="got 5 and 0"):
        ToyStack(5, [])
    with pytest.raises(ValueError, match="multiple"):
        ToyStack(5, [Member(1)], multiple=0)
    with pytest.raises(IndexError, match="no number 3"):
        ToyStack(5, [Member(1)]).weight(3)
    for bad in (
        {"width": 0},
        {"width": 2.5},
        {"gamma": float("nan")},
        {"rate": 0.0},
        {"bias_rate": float("inf")},
    ):
        with pytest.raises((ValueError, TypeError), match="must be"):
            Member(**{"width": 3, **bad})  # type: ignore[arg-type]


def _double(batch):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(batch, values=batch.values.double())
