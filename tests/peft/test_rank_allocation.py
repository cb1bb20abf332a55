"""Ranks that come down where little is lost."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import PeftModel, get_peft_model
from torch import Tensor, nn

from beltrami.peft import RankAllocator
from beltrami.peft.rank_allocation import RankSchedule
from tests.peft import tiny

SETTINGS: list[dict] = [
    {},
    {"variant": "simplified"},
    {"variant": "tangent", "use_rslora": True},
    {"curvature": [0.1, 1.0], "learn_curvature": "module"},
    {"learn_curvature": "token", "rank_pattern": {"v_proj": 2}},
    {"use_dora": True},
    {"target_modules": ["embed_tokens", "q_proj"]},
]


def adapted(**settings: object) -> PeftModel:
    return get_peft_model(tiny.llama(), tiny.config(task_type="CAUSAL_LM", **settings))


def train(model: PeftModel, allocator: RankAllocator, steps: int) -> None:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    for step in range(steps):
        ids = tiny.tokens(seed=step)
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        allocator.step()
        optimizer.zero_grad()


def logits(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model(input_ids=tiny.tokens(seed=99)).logits


@given(
    total=st.integers(1, 500),
    warm_up=st.floats(0, 0.49),
    settle=st.floats(0, 0.49),
    before=st.integers(2, 300),
    share=st.floats(0, 1),
)
def test_components_come_down_from_what_there_is_to_what_there_shall_be(
    total: int, warm_up: float, settle: float, before: int, share: float
) -> None:
    after = 1 + math.floor(share * (before - 1))
    schedule = RankSchedule(total, warm_up, settle)
    counts = [schedule.components(step, before, after) for step in range(total + 1)]
    assert counts[0] == before
    assert counts[-1] == after
    assert counts == sorted(counts, reverse=True)
    assert schedule.is_settled(total)
    assert not any(schedule.chooses(step) and schedule.is_settled(step) for step in range(total))


@pytest.mark.parametrize("variant", ["rotation", "simplified", "tangent"])
def test_both_matrices_tell_the_same_importance(variant: str) -> None:
    """Because updates depend on B·A alone; it is what the derivative by a factor of bᵢ·aᵢ is."""
    model = get_peft_model(
        tiny.MLP(), tiny.config(target_modules=["first", "second"], variant=variant)
    ).double()
    model(torch.randn(9, 6, dtype=torch.float64)).square().sum().backward()
    for layer in (model.base_model.model.first, model.base_model.model.second):
        a, b = layer.hyplora_A["default"].weight, layer.hyplora_B["default"].weight
        by_rows, by_columns = (a * a.grad).sum(1), (b * b.grad).sum(0)
        assert by_rows.abs().min() > 0
        torch.testing.assert_close(by_columns, by_rows)


@pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`")
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_adapter_is_an_ordinary_one_when_it_is_done(settings: dict, tmp_path: Path) -> None:
    model = adapted(**settings)
    allocator = RankAllocator(model, target_rank=1.5, total_steps=8, every=1)
    train(model, allocator, 8)
    model.eval()
    expected = logits(model)
    ranks = allocator.finish()
    assert sum(ranks.values()) == allocator.after < allocator.before
    assert min(ranks.values()) >= 1
    torch.testing.assert_close(logits(model), expected, rtol=1e-5, atol=1e-6)
    for name, rank in ranks.items():
        layer = model.base_model.model.get_submodule(name)
        assert layer.hyplora_A["default"].weight.shape[0] == rank
        assert layer.hyplora_B["default"].weight.shape[1] == rank
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(tiny.llama(), tmp_path, is_trainable=True)
    torch.testing.assert_close(logits(again), expected, rtol=1e-5, atol=1e-6)
    ids = tiny.tokens()
    again(input_ids=ids, labels=ids).loss.backward()  # and can be trained on


class Teacher(nn.Module):
    """Two layers side by side; what is to be learned of the first has rank 3, of the second 1."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one = nn.Linear(12, 12, bias=False)
        self.two = nn.Linear(12, 12, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.two(x)], -1)


@pytest.mark.parametrize("variant", ["rotation", "tangent"])
def test_ranks_go_where_they_are_needed(variant: str) -> None:
    base = Teacher()
    wanted = {"one": torch.randn(12, 3) @ torch.randn(3, 12) / 6}
    wanted["two"] = torch.outer(torch.randn(12), torch.randn(12)) / 4
    weights = {name: getattr(base, name).weight.detach() for name in wanted}
    model = get_peft_model(
        base,
        tiny.config(
            target_modules=["one", "two"], r=6, alpha=6, variant=variant, init_weights=True
        ),
    )
    steps = 400
    allocator = RankAllocator(model, target_rank=2, total_steps=steps)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    for _ in range(steps):
        x = torch.randn(64, 12)
        goal = torch.cat([x @ (weights[n] + wanted[n]).mT for n in ("one", "two")], -1)
        (model(x) - goal).square().mean().backward()
        optimizer.step()
        allocator.step()
        optimizer.zero_grad()
    assert allocator.finish() == {"one": 3, "two": 1}


def test_a_training_that_is_resumed_keeps_what_was_dropped() -> None:
    model = adapted()
    allocator = RankAllocator(model, target_rank=2, total_steps=10, every=1)
    train(model, allocator, 9)
    resumed = RankAllocator(model, target_rank=2, total_steps=10, every=1)
    resumed.start_at(9)
    train(model, resumed, 1)
    assert resumed.finish() == {name: int(of.kept.sum()) for name, of in allocator._of.items()}


def test_a_step_that_was_skipped_does_not_count() -> None:
    """Gradients that are not finite, as float16's sometimes are."""
    model = adapted()
    allocator = RankAllocator(model, target_rank=2, total_steps=10)
    ids = tiny.tokens()
    model(input_ids=ids, labels=ids).loss.backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad.fill_(torch.nan)
    allocator.step()
    assert all(of.importance.isfinite().all() for of in allocator._of.values())


def test_stopping_early_is_said(caplog: pytest.LogCaptureFixture) -> None:
    model = adapted()
    allocator = RankAllocator(model, target_rank=2, total_steps=100, every=1)
    train(model, allocator, 20)
    ranks = allocator.finish()
    assert "after 20 of 100 steps" in caplog.text
    assert allocator.after < sum(ranks.values()) < allocator.before


@pytest.mark.parametrize(
    ("settings", "told", "message"),
    [
        ({}, {"target_rank": 0.5}, "target_rank must be at least 1 and at most .* 4, got 0.5"),
        ({}, {"target_rank": 5}, "target_rank must be at least 1 and at most .* 4, got 5"),
        ({}, {"total_steps": 0}, "total_steps must be a whole number of at least 1, got 0"),
        ({}, {"warm_up": 0.6, "settle": 0.5}, "warm_up and settle must be shares"),
        ({}, {"warm_up": math.nan}, "warm_up and settle must be shares"),
        ({}, {"every": 1.5}, "every must be a whole number"),
        ({}, {"adapter_name": "other"}, r"no HypLoRA adapter 'other'.*\['default'\]"),
        ({"variant": "boost"}, {}, "boost.*keeps its rank"),
        ({"inference_mode": True}, {}, "frozen"),
    ],
    ids=str,
)
def test_bad_input(settings: dict, told: dict, message: str) -> None:
    model = adapted(**settings)
    with pytest.raises(ValueError, match=message):
        RankAllocator(model, **{"target_rank": 2, "total_steps": 10, **told})


def test_a_model_without_adapters_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no HypLoRA adapter.*get_peft_model"):
        RankAllocator(tiny.llama(), target_rank=2, total_steps=10)


def test_a_step_without_gradients_is_refused() -> None:
    allocator = RankAllocator(adapted(), target_rank=2, total_steps=10)
    with pytest.raises(ValueError, match=r"no gradient.*before zero_grad"):
        allocator.step()
