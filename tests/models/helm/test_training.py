"""Gradients, the optimiser's groups, checkpointing, and steps at rates that break things."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from beltrami.models.helm import HelmForCausalLM
from beltrami.optim import create_optimizer, param_groups
from tests.models.helm.variants import (
    VARIANTS,
    WORDS,
    assert_near,
    build,
    config,
    every_variant,
    left_padded,
    some_variants,
    tokens,
    trained,
)


def batch(step: int, rows: int = 8, length: int = 24) -> Tensor:
    """x, 3x + 1, 3(3x + 1) + 1, ... modulo 37: the next token follows from the last."""
    generator = torch.Generator().manual_seed(step)
    ids = [torch.randint(37, (rows,), generator=generator)]
    while len(ids) < length:
        ids.append((3 * ids[-1] + 1) % 37)
    return torch.stack(ids, 1) + 3


def train(model: HelmForCausalLM, steps: int, lr: float, device: str = "cpu") -> list[float]:
    """Losses under bfloat16 autocast; every value on the way is finite."""
    model = model.to(device).train()
    optimizer = create_optimizer(model, "adamw", lr=lr)
    losses = []
    for step in range(steps):
        ids = batch(step).to(device)
        with torch.autocast(device, torch.bfloat16):
            loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert math.isfinite(losses[-1]), step
        if step % 20 == 0 or step == steps - 1:
            for name, p in model.named_parameters():
                assert p.isfinite().all(), (step, name)
                assert p.grad is None or p.grad.isfinite().all(), (step, name)
    return losses


@pytest.mark.slow
def test_300_steps_at_a_rate_of_one_percent() -> None:
    losses = train(build(), 300, 1e-2)
    assert losses[0] == pytest.approx(math.log(WORDS), abs=0.5)
    assert sum(losses[-10:]) / 10 < 0.5 * losses[0]


@pytest.mark.gpu
@every_variant
def test_300_steps_on_the_gpu(variant: str) -> None:
    train(build(variant), 300, 1e-2, "cuda")


@pytest.mark.gpu
@pytest.mark.slow
@every_variant
def test_2000_steps_on_the_gpu(variant: str) -> None:
    train(build(variant), 2000, 1e-3, "cuda")


@every_variant
def test_a_few_steps_lower_the_loss(variant: str) -> None:
    losses = train(build(variant), 12, 1e-2)
    assert sum(losses[-3:]) < 0.97 * sum(losses[:3])


@every_variant
def test_every_parameter_has_a_gradient(variant: str) -> None:
    model, ids = trained(variant), tokens()
    model(ids, labels=ids).loss.backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, f"{name} has no part in the loss"
        assert p.grad.isfinite().all(), name
        assert (p.grad != 0).any(), name


@every_variant
def test_gradients_are_those_of_differences(variant: str) -> None:
    """Along one random direction of all parameters."""
    model, ids = trained(variant), tokens(1, 6)
    model.zero_grad()
    model(ids, labels=ids).loss.backward()
    params = list(model.parameters())
    generator = torch.Generator().manual_seed(2)
    steps = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in params]
    slope = sum((p.grad * s).sum() for p, s in zip(params, steps, strict=True))
    sides = []
    with torch.no_grad():
        for h in (1e-5, -1e-5):
            for p, s in zip(params, steps, strict=True):
                p += h * s
            sides.append(model(ids, labels=ids).loss)
            for p, s in zip(params, steps, strict=True):
                p -= h * s
    assert ((sides[0] - sides[1]) / 2e-5).item() == pytest.approx(slope.item(), rel=1e-5)


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
@every_variant
def test_padding_has_no_part_in_gradients(variant: str, backend: str) -> None:
    """Also where a row is nothing but padding."""
    model = trained(variant, attn_implementation=backend)
    ids, mask, positions = left_padded(7, 4, 0)
    first = positions == 0  # nothing but padding would predict it
    labels = ids.masked_fill(first | (mask == 0), -100)
    given = {"attention_mask": mask, "position_ids": positions, "labels": labels}
    gradients = []
    for tokens_given in (ids, torch.where(mask == 0, 9, ids)):
        model.zero_grad()
        model(tokens_given, **given).loss.backward()
        gradients.append({n: p.grad for n, p in model.named_parameters()})
    for name, g in gradients[0].items():
        assert g.isfinite().all(), name
        assert_near(gradients[1][name], g, 1e-10)


@every_variant
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradients(variant: str, reentrant: bool) -> None:
    ids, gradients = tokens(), []
    for checkpointing in (False, True):
        model = trained(variant).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model(ids, labels=ids, use_cache=False).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, g in gradients[0].items():
        assert_near(gradients[1][name], g, 1e-10)


@every_variant
def test_groups_of_parameters(variant: str) -> None:
    model, switches = build(variant), config(variant)
    groups = param_groups(model, weight_decay=0.1)
    kinds = {name: g["kind"] for g in groups for name, _ in g["params"]}
    decays = {name: g["weight_decay"] for g in groups for name, _ in g["params"]}
    manifolds = {name: g["manifold"] for g in groups for name, _ in g["params"]}
    assert kinds.keys() == {name for name, _ in model.named_parameters()}
    for name, kind in kinds.items():
        last = name.split(".")[-1]
        if last == "raw":
            expected = "curvature"
        elif last in ("log_scale", "log_weight", "log_temperature"):
            expected = "log_scale"
        elif name == "model.embed_tokens.weight" and switches.embedding == "points":
            expected = "points"
            assert manifolds[name] == model.model.manifold
        elif name == "lm_head.weight" and switches.logits == "distance":
            expected = "points"
            assert manifolds[name] == model.word_scores.manifold
        elif last == "weight" and "norm" not in name:
            expected = "decay"
        else:
            expected = "no_decay"
        assert kind == expected, name
        assert decays[name] == (0.1 if kind == "decay" else 0.0)


@some_variants
def test_rates_of_their_own(variant: str) -> None:
    model = build(variant)
    optimizer = create_optimizer(
        model, "adamw", lr=1e-3, point_lr=1e-2, curvature_lr=1e-4, scale_lr=1e-5
    )
    rates = {"points": 1e-2, "curvature": 1e-4, "log_scale": 1e-5}
    for group in optimizer.param_groups:
        assert group["lr"] == rates.get(group["kind"], 1e-3)


def test_a_fixed_curvature_stays() -> None:
    model = build("fixed")
    before = model.model.curvature.value.clone()
    train(model, 5, 1e-2)
    assert torch.equal(model.model.curvature.value, before)
    assert not [n for n, _ in model.named_parameters() if n.endswith("raw")]


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v in ("default", "per-layer")])
def test_a_learned_curvature_moves(variant: str) -> None:
    model = build(variant)
    before = {n: p.clone() for n, p in model.named_parameters() if n.endswith("raw")}
    assert len(before) == (3 if variant == "default" else 5)
    train(model, 5, 1e-2)
    for name, p in before.items():
        assert not torch.equal(dict(model.named_parameters())[name], p), name


def test_dropout_of_attention() -> None:
    model, ids = trained(attention_dropout=0.5), tokens()
    with torch.no_grad():
        quiet = [model(ids).logits for _ in range(2)]
        model.train()
        torch.manual_seed(0)
        noisy = [model(ids).logits for _ in range(2)]
    assert torch.equal(*quiet)
    assert not torch.equal(*noisy)
    assert all(x.isfinite().all() for x in noisy)
