"""Adapters of PEFT on HELM, and HypLoRA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import (
    LoraConfig,
    PeftModel,
    PrefixTuningConfig,
    PromptTuningConfig,
    get_peft_model,
)
from transformers import AutoModelForCausalLM

from beltrami.geometry import Lorentz
from beltrami.optim import param_groups
from beltrami.optim.groups import points_of
from beltrami.peft import HypLoraConfig
from tests.models.helm import small

PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def lora(targets: Any = "all-linear", **changes: Any) -> LoraConfig:
    """One that does something from the start."""
    options = {"r": 4, "lora_alpha": 8, "init_lora_weights": False, "task_type": "CAUSAL_LM"}
    return LoraConfig(target_modules=targets, **{**options, **changes})


def train(model: Any, rate: float = 1e-2) -> None:
    """Four steps, in which all that is to be trained must move."""
    parameters = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW([p for _, p in parameters], lr=rate)
    ids, losses = small.tokens(), []
    model.train()
    for _ in range(4):
        optimiser.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        losses.append(float(loss.detach()))
        for name, parameter in parameters:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
        optimiser.step()
    assert losses[-1] < losses[0]
    model.eval()


def test_all_linear_finds_what_it_finds_in_llama() -> None:
    adapted = get_peft_model(small.model(), lora())
    names = {name.rpartition(".")[2] for name in adapted.peft_config["default"].target_modules}
    assert names == PROJECTIONS


@pytest.mark.parametrize("kind", small.KINDS)
@pytest.mark.parametrize("fused", [False, True], ids=["logits", "fused"])
def test_lora_is_trained_saved_loaded_and_merged(kind: str, fused: bool, tmp_path: Path) -> None:
    fields = small.KINDS[kind]
    base = small.model(**fields, fused_loss=fused)
    base.save_pretrained(tmp_path / "base")
    before = small.logits(base)
    targets = [*PROJECTIONS] if kind == "tied" else [*PROJECTIONS, "lm_head"]
    adapted = get_peft_model(base, lora(targets))
    train(adapted)
    expected = small.logits(adapted)
    assert not torch.allclose(expected, before, atol=1e-2)
    adapted.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    files = {path.suffix for path in (tmp_path / "adapter").iterdir()}
    assert files <= {".safetensors", ".json", ".md"}
    again = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter"
    )
    torch.testing.assert_close(small.logits(again), expected)
    with adapted.disable_adapter():
        torch.testing.assert_close(small.logits(adapted), before)
    merged = again.merge_and_unload()
    torch.testing.assert_close(small.logits(merged), expected, rtol=1e-5, atol=1e-5)


def test_rows_of_hyperplanes_have_the_length_of_the_adapted_matrix() -> None:
    adapted = get_peft_model(small.model(time_columns="hyperplane"), lora())
    expected = small.logits(adapted)
    merged = adapted.merge_and_unload()
    torch.testing.assert_close(small.logits(merged), expected, rtol=1e-5, atol=1e-5)


def test_adapted_words_are_trained_with_dropout_and_in_half_precision() -> None:
    model = get_peft_model(small.model(), lora(["lm_head"], lora_dropout=0.5))
    ids = small.tokens()
    model.train()
    losses = {float(model(input_ids=ids, labels=ids).loss.detach()) for _ in range(4)}
    assert len(losses) == 4
    model.eval()
    expected = small.logits(model)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(small.logits(model), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("kind", ["mlr", "distance"])
@pytest.mark.parametrize(
    "config",
    [lora(["lm_head"], use_dora=True), HypLoraConfig(target_modules=["lm_head"])],
    ids=["dora", "hyplora"],
)
def test_adapters_of_words_without_a_matrix_are_refused(kind: str, config: Any) -> None:
    model = get_peft_model(small.model(**small.KINDS[kind]), config)
    with pytest.raises(ValueError, match=rf'logits="{kind}" reads the matrix.*modules_to_save'):
        small.logits(model)


@pytest.mark.parametrize("how", [{}, {"variant": "tangent"}], ids=str)
def test_hyplora_is_trained_and_merged_or_refused_with_a_reason(how: Any) -> None:
    config = HypLoraConfig(
        r=4, alpha=8, target_modules="all-linear", init_weights=False, task_type="CAUSAL_LM", **how
    )
    base = small.model()
    before = small.logits(base)
    model = get_peft_model(base, config)
    train(model)
    expected = small.logits(model)
    if not how:
        with pytest.raises(ValueError, match="cannot be merged exactly"):
            model.merge_and_unload()
        model.calibrate([{"input_ids": small.tokens(16)}])
    merged = model.merge_and_unload(merge_mode="calibrated")
    error = (small.logits(merged) - expected).norm() / (expected - before).norm()
    assert error < (1e-5 if how else 0.1)


@pytest.mark.filterwarnings("ignore:Position ids are not supported")  # PEFT's, in `generate`
@pytest.mark.parametrize("kind", [PrefixTuningConfig, PromptTuningConfig])
def test_prefixes_and_prompts(kind: Any, tmp_path: Path) -> None:
    model = get_peft_model(small.model(), kind(task_type="CAUSAL_LM", num_virtual_tokens=3))
    train(model)
    expected = small.logits(model)
    assert expected.shape[1] == (7 if kind is PrefixTuningConfig else 10)
    ids = small.tokens()
    options: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "do_sample": False}
    options |= {"max_new_tokens": 2, "eos_token_id": None, "pad_token_id": 0}
    one = model.generate(input_ids=ids, use_cache=True, **options)
    assert torch.equal(one[:, 7], expected[:, -1].argmax(-1))
    assert torch.equal(one[:, 8], small.logits(model, one[:, :8])[:, -1].argmax(-1))
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(small.model(), tmp_path).eval()
    torch.testing.assert_close(small.logits(again), expected)


@pytest.mark.parametrize("kind", ["mlr", "distance"])
def test_whole_tables_stay_points(kind: str, tmp_path: Path) -> None:
    whole = {"modules_to_save": ["embed_tokens", "lm_head"]}
    model = get_peft_model(small.model(**small.KINDS[kind]), lora(["q_proj"], **whole))
    groups = [g for g in param_groups(model) if g["kind"] == "points"]
    names = [name.split(".", 3)[-1] for g in groups for name, _ in g["params"]]
    assert names[0] == "embed_tokens.modules_to_save.default.weight"
    assert len(names) == (2 if kind == "distance" else 1)
    assert all(isinstance(group["manifold"], Lorentz) for group in groups)
    train(model)
    expected = small.logits(model)
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(small.model(**small.KINDS[kind]), tmp_path).eval()
    torch.testing.assert_close(small.logits(again), expected)
    torch.testing.assert_close(small.logits(model.merge_and_unload()), expected)


def test_lora_on_the_embedding_moves_points_and_is_not_one() -> None:
    base = small.model()
    before = small.logits(base)
    model = get_peft_model(base, lora(["embed_tokens"]))
    assert not [g for g in param_groups(model) if g["kind"] == "points"]  # the table is frozen
    tables = [name for name, _, _ in points_of(model.named_modules()).values()]
    assert [name.rpartition("model.")[2] for name in tables] == ["embed_tokens.base_layer.weight"]
    train(model)
    expected = small.logits(model)
    assert not torch.allclose(expected, before, atol=1e-2)
    torch.testing.assert_close(small.logits(model.merge_and_unload()), expected)


def test_new_words_are_trained_alone() -> None:
    model = get_peft_model(
        small.model(), lora(["q_proj"], trainable_token_indices={"embed_tokens": [3, 4]})
    )
    train(model)
    expected = small.logits(model)
    torch.testing.assert_close(small.logits(model.merge_and_unload()), expected)
