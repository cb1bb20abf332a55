"""The update: Adam's, and the decay before it."""

from __future__ import annotations

import pytest
import torch

from beltrami.models.superposition import Member, ToyStack
from beltrami.recipes.superposition.training import StackUpdate, schedule

LONG = 10**9  # steps, at whose beginning the rate is at its highest


def lengths(stack: ToyStack, member: int) -> torch.Tensor:
    found: torch.Tensor = torch.linalg.vector_norm(stack.weight(member).detach(), dim=1)
    return found


def test_without_a_gradient_lengths_relax_to_one_or_decay() -> None:
    members = [Member(4, -0.5), Member(4, 0.5), Member(4, 0.0), Member(6, -1.0, rate=0.02)]
    stack = ToyStack(20, members).double()
    update = StackUpdate(stack, steps=LONG, warm_up=0).double()
    before = [lengths(stack, i) for i in range(4)]
    biases = [stack.bias(i).detach().clone() for i in range(4)]
    update.move(torch.zeros_like(stack.table), update.numbers(0))
    rate = 0.01
    expected = [
        before[0] + rate * 0.5 * (1 - before[0]),
        before[1] * (1 - rate * 0.5),
        before[2],
        before[3] + 0.02 * (1 - before[3]),
    ]
    for i in range(4):
        torch.testing.assert_close(lengths(stack, i), expected[i], rtol=1e-7, atol=1e-8)
        assert torch.equal(stack.bias(i), biases[i])


def test_a_row_of_zeros_stays() -> None:
    stack = ToyStack(3, [Member(2, -1.0), Member(2, unit=True)])
    with torch.no_grad():
        stack.weight(0)[1] = 0.0
        stack.weight(1)[1] = 0.0
    update = StackUpdate(stack, steps=LONG, warm_up=0)
    for step in range(3):
        update.move(torch.zeros_like(stack.table), update.numbers(step))
    assert not bool(stack.weight(0)[1].any())
    assert not bool(stack.weight(1)[1].any())
    assert bool(torch.isfinite(stack.table).all())


def test_adam_is_torchs() -> None:
    stack = ToyStack(5, [Member(3), Member(6)]).double()
    update = StackUpdate(stack, steps=100, warm_up=20).double()
    copy = stack.table.detach().clone().requires_grad_()
    adam = torch.optim.Adam([copy], lr=0.01)
    g = torch.Generator().manual_seed(0)
    for step in range(30):
        gradient = torch.randn(copy.shape, generator=g, dtype=torch.float64)
        update.move(gradient, update.numbers(step).double())
        adam.param_groups[0]["lr"] = 0.01 * schedule(step, 100, 20)
        copy.grad = gradient
        adam.step()
    torch.testing.assert_close(stack.table.detach(), copy.detach(), rtol=1e-6, atol=1e-7)


def test_decay_is_adamws() -> None:
    """For γ ≥ 0 the whole rule is AdamW's, biases apart."""
    stack = ToyStack(5, [Member(3, 0.7)], multiple=1).double()
    update = StackUpdate(stack, steps=100, warm_up=0).double()
    weight = stack.weight(0).detach().clone().requires_grad_()
    adam = torch.optim.AdamW([weight], lr=0.01, weight_decay=0.7)
    g = torch.Generator().manual_seed(0)
    for step in range(20):
        gradient = torch.randn(stack.table.shape, generator=g, dtype=torch.float64)
        update.move(gradient, update.numbers(step).double())
        adam.param_groups[0]["lr"] = 0.01 * schedule(step, 100, 0)
        weight.grad = gradient[:, :3].clone()
        adam.step()
    torch.testing.assert_close(stack.weight(0).detach(), weight.detach(), rtol=1e-6, atol=1e-7)


def test_unit_rows_stay_on_the_sphere() -> None:
    stack = ToyStack(9, [Member(4, unit=True), Member(4)], multiple=1)
    update = StackUpdate(stack, steps=LONG, warm_up=0)
    update.move(torch.randn_like(stack.table), update.numbers(0))
    torch.testing.assert_close(lengths(stack, 0), torch.ones(9))
    assert not torch.allclose(lengths(stack, 1), torch.ones(9))


def test_rates_of_weights_and_biases() -> None:
    stack = ToyStack(2, [Member(3, rate=0.1, bias_rate=0.4)])
    before = stack.table.detach().clone()
    update = StackUpdate(stack, steps=LONG, warm_up=0)
    update.move(torch.ones_like(stack.table), update.numbers(0))
    moved = (before - stack.table.detach())[0]  # Adam's first step is the rate
    assert moved.tolist() == pytest.approx([0.1, 0.1, 0.1, 0.4], rel=1e-4)


def test_the_schedule() -> None:
    assert schedule(0, 100, 10) == pytest.approx(0.1)
    assert schedule(9, 100, 10) == 1.0
    assert schedule(54, 100, 10) == pytest.approx(0.525)
    assert schedule(99, 100, 10) == pytest.approx(0.05)
