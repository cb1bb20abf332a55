"""Training stacks: against a plain loop, interrupted and not, together and alone."""

from __future__ import annotations

import pytest
import torch

from beltrami.models import superposition
from beltrami.models.superposition import (
    FeatureSamples,
    Member,
    ToyAutoencoder,
    ToyStack,
    power_law,
)
from beltrami.models.superposition.readouts import Readout
from beltrami.recipes.superposition.training import StackTraining, schedule

N, SAMPLES, STEPS = 50, 64, 60


def training(
    members: list[Member],
    *,
    multiple: int = 4,
    device: str = "cpu",
    readout: Readout = "linear",
    **options: object,
) -> StackTraining:
    stack = ToyStack(N, members, multiple=multiple, readout=readout).to(device)
    data = FeatureSamples(power_law(N, 1.0), SAMPLES, seed=2, device=device)
    return StackTraining(stack, data, steps=STEPS, warm_up=10, **options)  # type: ignore[arg-type]


def by_hand(member: Member) -> tuple[torch.Tensor, torch.Tensor, list[float]]:
    """The published rule with a dense model, autograd and torch's Adam."""
    start = ToyStack(N, [member])
    model = ToyAutoencoder(N, member.width)
    with torch.no_grad():
        model.weight.copy_(start.weight(0))
        model.bias.copy_(start.bias(0))
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    data, losses = FeatureSamples(power_law(N, 1.0), SAMPLES, seed=2), []
    for step in range(STEPS):
        x = data.batch(step).dense(N)
        loss = torch.nn.functional.mse_loss(model(x), x)
        adam.zero_grad()
        loss.backward()
        losses.append(N * loss.item())
        rate = adam.param_groups[0]["lr"] = 0.01 * schedule(step, STEPS, 10)
        with torch.no_grad():
            w = model.weight
            if member.gamma >= 0:
                w.mul_(1 - rate * member.gamma)
            else:
                w.mul_(1 - rate * member.gamma * (1 / w.norm(dim=1, keepdim=True) - 1))
        adam.step()
    return model.weight.detach(), model.bias.detach(), losses


@pytest.mark.parametrize("gamma", [0.5, -0.5, 0.0])
def test_the_published_rule(gamma: float) -> None:
    members = [Member(m, gamma) for m in (5, 9)]
    trained = training(members)
    losses = [trained.step(i, losses=True) for i in range(STEPS)]
    for i, member in enumerate(members):
        weight, bias, expected = by_hand(member)
        torch.testing.assert_close(trained.stack.weight(i).detach(), weight, rtol=1e-4, atol=2e-5)
        torch.testing.assert_close(trained.stack.bias(i).detach(), bias, rtol=1e-4, atol=2e-5)
        found = [float(one[i]) for one in losses if one is not None]
        assert found == pytest.approx(expected, rel=1e-4)


def test_padded_is_unpadded_and_together_is_alone() -> None:
    members = [Member(3, 0.3), Member(6, -0.4), Member(10, -1.0), Member(6, unit=True)]
    together = training(members, multiple=16)
    alone = [training([member], multiple=1) for member in members]
    for step in range(STEPS):
        together.step(step)
        for one in alone:
            one.step(step)
    for i, one in enumerate(alone):
        torch.testing.assert_close(
            together.stack.weight(i), one.stack.weight(0), rtol=1e-4, atol=2e-5
        )
    # What fills a model up to 16 columns was 0 and is 0.
    for i, member in enumerate(members):
        start, columns = together.stack.place(i)
        rest = together.stack.table[:, start + member.width : start + columns - 1]
        assert columns == 16
        assert not bool(rest.any())


def test_a_training_goes_on_where_it_was() -> None:
    members = [Member(4, -0.5), Member(7, 0.2)]
    whole, first, second = (training(members) for _ in range(3))
    for step in range(STEPS):
        whole.step(step)
    for step in range(25):
        first.step(step)
    second.load_state_dict(first.state_dict())
    for step in range(25, STEPS):
        second.step(step)
    assert torch.equal(whole.stack.table, second.stack.table)


def test_losses_fall_and_the_regimes_part() -> None:
    """Decay leaves few features; drawing rows to length 1 keeps all."""
    members = [Member(8, -0.5), Member(8, 1.0)]
    stack = ToyStack(N, members)
    data = FeatureSamples(power_law(N, 1.0), 256)
    trained = StackTraining(stack, data, steps=800, warm_up=80)
    first = trained.step(0, losses=True)
    for step in range(1, 799):
        trained.step(step)
    last = trained.step(799, losses=True)
    assert first is not None
    assert last is not None
    assert bool((last < first / 5).all())
    strong, weak = ((stack.weight(i).norm(dim=1) > 0.5).double().mean() for i in range(2))
    assert strong > 0.9
    assert weak < 0.3


@pytest.mark.parametrize("readout", ["distance", "busemann"])
def test_curved_models_learn(readout: Readout) -> None:
    trained = training([Member(6, -0.5)], readout=readout)
    losses = [trained.step(i, losses=True) for i in range(STEPS)]
    assert losses[0] is not None
    assert losses[-1] is not None
    assert float(losses[-1]) < 0.7 * float(losses[0])
    assert bool(torch.isfinite(trained.stack.table).all())


@pytest.mark.gpu
@pytest.mark.parametrize("readout", ["linear", "distance", "busemann"])
def test_a_graph_takes_the_same_steps(readout: Readout) -> None:
    members = [Member(5, -0.5), Member(9, 0.5), Member(5, unit=True)]
    graphed, plain = (
        training(members, device="cuda", graphed=g, readout=readout) for g in (True, False)
    )
    for step in range(STEPS):
        ours = graphed.step(step, losses=step % 7 == 0)
        theirs = plain.step(step, losses=step % 7 == 0)
        if theirs is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(graphed.stack.table, plain.stack.table, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("graphed", [True, False])
def test_tf32_rounds_the_first_gradient_a_little(graphed: bool) -> None:
    rough, exact = (
        training([Member(9, -0.5)], device="cuda", graphed=graphed, tf32=t) for t in (True, False)
    )
    first = [t.step(0, losses=True) for t in (rough, exact)]
    assert torch.backends.cuda.matmul.fp32_precision != "tf32"
    assert not torch.equal(rough.stack.table, exact.stack.table)
    torch.testing.assert_close(first[0], first[1], rtol=1e-3, atol=0)


def test_what_a_program_has_set_for_its_matrices_stays() -> None:
    switch, before = torch.backends.cuda.matmul, torch.backends.cuda.matmul.fp32_precision
    switch.fp32_precision = "tf32"  # which torch's older functions then refuse to read
    try:
        training([Member(4, -0.5)]).step(0)
        assert switch.fp32_precision == "tf32"
    finally:
        switch.fp32_precision = before


def test_bad_trainings() -> None:
    data = FeatureSamples(power_law(N, 1.0), 5)
    with pytest.raises(ValueError, match="have 51 features, and the data have 50"):
        StackTraining(ToyStack(N + 1, [Member(3)]), data, steps=5, warm_up=1)
    with pytest.raises(ValueError, match=r"got 9"):
        StackTraining(ToyStack(N, [Member(3)]), data, steps=5, warm_up=9)
    with pytest.raises(ValueError, match="graphed"):
        StackTraining(ToyStack(N, [Member(3)]), data, steps=5, warm_up=1, graphed=True)
    with pytest.raises(ValueError, match="5 steps, from 0 on, and no step 5"):
        StackTraining(ToyStack(N, [Member(3)]), data, steps=5, warm_up=1).step(5)
    with pytest.raises(ValueError, match="tf32 is for a CUDA device"):
        StackTraining(ToyStack(N, [Member(3)]), data, steps=5, warm_up=1, tf32=True)


@pytest.mark.parametrize("name", ["StackTraining", "StackUpdate", "schedule"])
def test_the_old_names(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{name} moved to beltrami.recipes.superposition"):
        assert getattr(superposition, name).__module__.startswith("beltrami.recipes.superposition")
