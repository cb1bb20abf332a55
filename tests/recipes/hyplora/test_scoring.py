from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from beltrami.data.word_problems import generate_problems
from beltrami.models.pretrained.prompts import Coded, encode, training_batch
from beltrami.recipes.hyplora.corpora import arithmetic_corpus
from beltrami.recipes.hyplora.methods import FineTuned, HypLoraSettings, fine_tuned
from beltrami.recipes.hyplora.scoring import (
    Place,
    answer_loss,
    curvature_curves,
    gain_curves,
    kept_megabytes,
)
from beltrami.recipes.hyplora.tiny_model import make_tokenizer

TOKENIZER = make_tokenizer(arithmetic_corpus(99).sample)
CODED = encode(generate_problems(7, largest=99), TOKENIZER, prompt="plain", longest=200)
PLACE = Place(torch.device("cpu"), False)


def tiny_llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(TOKENIZER),
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
        )
    )


def adapted(method: str, **options: Any) -> FineTuned:
    settings = HypLoraSettings(
        method=method,
        rank=2,
        alpha=4.0,
        dropout=0.0,
        targets=("all-linear",),
        hyplora=options,
        epochs=1,
        batch=4,
        learning_rate=0.003,
        warm_up=0,
        longest=64,
        prompt="plain",
        loss_on="solution",
        beams=1,
        new_tokens=8,
        precision="float32",
    )
    return fine_tuned(tiny_llama(), settings, [])


def test_the_loss_is_a_mean_over_tokens_of_solutions() -> None:
    model = FineTuned(tiny_llama())
    tokens = training_batch(CODED, TOKENIZER.pad_token_id, train_on_prompts=False)
    with torch.no_grad():
        expected = float(model.model(**tokens).loss)  # transformers' own
    for batch in (2, 7):
        found = answer_loss(model, CODED, TOKENIZER.pad_token_id, PLACE, batch=batch)
        assert found == pytest.approx(expected, rel=1e-5)


def test_what_a_step_keeps() -> None:
    """HypLoRA keeps LoRA's and a little more; full fine-tuning has no adapters to keep for."""
    kept = {
        method: kept_megabytes(adapted(method), CODED, 0, PLACE, prompts=False)
        for method in ("lora", "hyplora", "dora")
    }
    assert kept["lora"] <= kept["hyplora"] < 1.05 * kept["lora"]
    assert kept["dora"] > kept["hyplora"]
    few: list[Coded] = CODED[:2]
    assert kept_megabytes(adapted("lora"), few, 0, PLACE, prompts=False) < kept["lora"] / 2


def test_gains_and_curvatures_by_kind_and_block() -> None:
    model = adapted("hyplora", init_weights=False, learn_curvature="module", curvature=0.5)
    curves = gain_curves(model, CODED, 0, PLACE)
    assert curves["gain q_proj block"] == [0.0, 1.0]
    ordered = curves["gain down_proj"]
    assert ordered == sorted(ordered)
    assert len(ordered) == 101
    for block in (0, 1):
        low, middle, high = (curves[f"gain o_proj {w}"][block] for w in ("low", "middle", "high"))
        assert 0 < low <= middle <= high
    assert curvature_curves(model)["curvature v_proj"] == pytest.approx([0.5, 0.5])
    assert gain_curves(adapted("lora"), CODED, 0, PLACE) == {}
    assert curvature_curves(adapted("lora")) == {}
