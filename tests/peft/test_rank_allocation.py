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
from beltrami.peft.rank_allocation import SMOOTHING, RankSchedule
from tests.peft import tiny

SETTINGS: list[dict] = [
    {},
    {"variant": "simplified"},
    {"variant": "tangent", "use_rslora": True},
    {"curvature": [0.1, 1.0], "learn_curvature": "module"},
    {"learn_curvature": "token", "rank_pattern": {"v_proj": 2}},
    {"use_dora": True},
    {"target_modules": ["embed_tokens", "q_proj"]},
    {"rank_pattern": {"down_proj": 3}, "alpha_pattern": {"down_proj": 32.0, r".*layers\.0.*": 3.0}},
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


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"variant": "simplified"},
        {"variant": "tangent"},
        {"learn_curvature": "token"},
        {"curvature": [0.1, 2.0]},
    ],
    ids=str,
)
def test_rows_tell_the_same_importance_as_columns(settings: dict) -> None:
    """As updates depend on B·A alone: it is what the derivative by a factor of bᵢ·aᵢ is."""
    model = get_peft_model(
        tiny.MLP(), tiny.config(target_modules=["first", "second"], **settings)
    ).double()
    layers = {n: getattr(model.base_model.model, n) for n in ("first", "second")}
    for layer in layers.values():
        for router in layer.hyplora_router.values():
            torch.nn.init.normal_(router.weight)
    allocator = RankAllocator(model, target_rank=2, total_steps=10)
    model(torch.randn(9, 6, dtype=torch.float64)).square().sum().backward()
    allocator.step()
    for name, layer in layers.items():
        a = layer.hyplora_A["default"].weight
        by_rows = (a * a.grad).sum(1).abs().float()
        assert by_rows.min() > 0
        found = allocator._of[name].importance
        torch.testing.assert_close(found, (1 - SMOOTHING) * by_rows, rtol=1e-4, atol=1e-7)


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


def again(model: PeftModel, base: nn.Module, folder: Path) -> PeftModel:
    model.save_pretrained(folder)
    return PeftModel.from_pretrained(base, folder, is_trainable=True)


def test_ranks_can_come_down_again_and_again(tmp_path: Path) -> None:
    model = adapted()
    for target in (3, 2):
        allocator = RankAllocator(model, target_rank=target, total_steps=8, every=1)
        train(model, allocator, 8)
        ranks = allocator.finish()
        expected = logits(model.eval())
        model = again(model, tiny.llama(), tmp_path)
        torch.testing.assert_close(logits(model), expected, rtol=1e-5, atol=1e-6)
    assert sum(ranks.values()) == 2 * len(ranks)


class Nested(nn.Module):
    """A name that is the end of another."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.fc = nn.Linear(6, 6)
        self.head = nn.ModuleDict({"fc": nn.Linear(6, 6)})

    def forward(self, x: Tensor) -> Tensor:
        return self.head["fc"](torch.tanh(self.fc(x)))


def test_names_that_end_alike_have_ranks_of_their_own(tmp_path: Path) -> None:
    model = get_peft_model(Nested(), tiny.config(target_modules=["fc"]))
    allocator = RankAllocator(model, target_rank=2, total_steps=1, warm_up=0, settle=0.5)
    x = torch.randn(5, 6)
    model(x).square().sum().backward()
    allocator.step()
    ranks = allocator.finish()
    ranks_there = {
        name: layer.hyplora_A["default"].r
        for name, layer in again(model, Nested(), tmp_path).base_model.model.named_modules()
        if name in ranks
    }
    assert ranks_there == ranks
    assert ranks["fc"] != ranks["head.fc"]


def test_a_config_that_others_have_too_is_left_alone(tmp_path: Path) -> None:
    config = tiny.config(task_type="CAUSAL_LM")
    model = get_peft_model(tiny.llama(), config)
    model.add_adapter("other", config)
    allocator = RankAllocator(model, target_rank=2, total_steps=8, every=1)
    train(model, allocator, 8)
    allocator.finish()
    assert config.rank_pattern == {}
    model.save_pretrained(tmp_path)
    other = PeftModel.from_pretrained(tiny.llama(), tmp_path / "other")
    model.set_adapter("other")
    torch.testing.assert_close(logits(other), logits(model.eval()))


def test_adapters_of_transformers_itself() -> None:
    model = tiny.llama()
    model.add_adapter(tiny.config())
    allocator = RankAllocator(model, target_rank=2, total_steps=8, every=1)
    train(model, allocator, 8)  # type: ignore[arg-type]
    expected = logits(model.eval())
    assert sum(allocator.finish().values()) == allocator.after
    torch.testing.assert_close(logits(model), expected, rtol=1e-5, atol=1e-6)


def test_a_model_of_before_is_not_changed(caplog: pytest.LogCaptureFixture) -> None:
    """As when the best of a training is loaded at its end."""
    model = adapted()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    allocator = RankAllocator(model, target_rank=2, total_steps=8, every=1)
    train(model, allocator, 8)
    model.load_state_dict(before)
    expected = logits(model.eval())
    assert sum(allocator.finish().values()) == allocator.before
    torch.testing.assert_close(logits(model), expected)
    assert f"{allocator.before} components, not {allocator.after}" in caplog.text


def test_layers_that_a_batch_leaves_out_do_not_count() -> None:
    model = get_peft_model(tiny.MLP(), tiny.config(target_modules=["first", "second"]))
    allocator = RankAllocator(model, target_rank=2, total_steps=10)
    model.base_model.model.second(torch.randn(4, 10).double()).sum().backward()
    allocator.step()
    assert not allocator._of["first"].importance.any()
    assert allocator._of["second"].importance.all()


def test_an_adapter_of_zeros_keeps_a_component() -> None:
    allocator = RankAllocator(adapted(init_weights=True), target_rank=2, total_steps=10)
    allocator.start_at(9)
    assert set(allocator.finish().values()) == {1}
    with pytest.raises(ValueError, match="called already"):
        allocator.finish()


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
    assert resumed.finish() == {name: int(of.keep.sum()) for name, of in allocator._of.items()}


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
    assert f"not {allocator.after}" in caplog.text
    assert allocator.after < sum(ranks.values()) < allocator.before


@pytest.mark.parametrize(
    ("settings", "told", "message"),
    [
        ({}, {"target_rank": 0.5}, "target_rank must be a number of at least 1, got 0.5"),
        ({}, {"target_rank": math.nan}, "target_rank must be a number of at least 1, got nan"),
        ({}, {"target_rank": None}, "target_rank must be a number of at least 1, got None"),
        ({}, {"target_rank": 5}, "target_rank must be at most the mean rank there is, 4, got 5"),
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
    with pytest.raises(ValueError, match=r"no gradients.*before zero_grad"):
        allocator.step()
