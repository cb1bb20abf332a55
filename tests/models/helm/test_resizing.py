"""`resize_token_embeddings`: points stay points, and all that belongs to words follows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from beltrami.geometry import lorentz
from tests.models.helm.variants import (
    WORDS,
    assert_near,
    every_variant,
    logits,
    tokens,
    trained,
)

# transformers logs, but does not warn, that new rows are drawn from a mean and covariance.


@every_variant
@pytest.mark.parametrize("words", [WORDS + 9, WORDS - 9])
def test_resizing(variant: str, words: int) -> None:
    model = trained(variant)
    ids = tokens() % (WORDS - 12)
    before, kept = logits(model, ids), min(words, WORDS)
    embeddings = model.resize_token_embeddings(words)
    assert embeddings.weight.shape == (words, 32)
    assert model.lm_head.weight.shape == (words, 32)
    assert (model.lm_head.weight is embeddings.weight) == model.config.tie_word_embeddings
    assert model.config.vocab_size == words
    scores = model.word_scores
    for p in (scores.time, scores.offset):
        assert p is None or p.shape == (words,)
    after = logits(model, ids)
    assert after.shape[-1] == words
    assert_near(after[..., :kept], before[..., :kept], 1e-9)
    model.zero_grad()
    model(ids, labels=ids).loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    for p in (scores.time, scores.offset):
        assert p is None or p.grad.shape == (words,)


@pytest.mark.parametrize("variant", ["default", "tied", "distance", "per-layer", "hybrid-layers"])
def test_new_points_lie_at_the_centroid(variant: str) -> None:
    model = trained(variant)
    old = model.get_input_embeddings().weight.detach().clone()
    c = model.model.manifold.curvature.value.item()
    center = lorentz.centroid(old, c=c)
    model.resize_token_embeddings(WORDS + 3)
    rows = model.get_input_embeddings().weight
    assert_near(rows[:WORDS], old, 0)
    assert_near(rows[WORDS:], center.expand(3, -1), 1e-6)


def test_new_words_of_distances_lie_at_the_centroid_of_words() -> None:
    model = trained("distance")
    old = model.lm_head.weight.detach().clone()
    c = model.word_scores.curvature.value.item()
    model.resize_token_embeddings(WORDS + 3)
    center = lorentz.centroid(old, c=c)
    assert_near(model.lm_head.weight[WORDS:], center.expand(3, -1), 1e-6)


def test_multiples() -> None:
    model = trained()
    model.resize_token_embeddings(WORDS + 1, pad_to_multiple_of=16)
    assert model.config.vocab_size == 48
    assert model.word_scores.offset.shape == (48,)


@pytest.mark.parametrize("variant", ["default", "tied", "linear-time", "flat"])
def test_a_resized_model_is_saved_and_loaded(variant: str, tmp_path: Path) -> None:
    model = trained(variant).float()
    model.resize_token_embeddings(WORDS + 3)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = tokens() + 2
    assert torch.equal(logits(again, ids), logits(model, ids))


def test_resizing_keeps_frozen_words_frozen() -> None:
    model = trained()
    model.word_scores.offset.requires_grad_(False)
    model.resize_token_embeddings(WORDS + 3)
    assert not model.word_scores.offset.requires_grad


def test_resizing_the_decoder_alone() -> None:
    model = trained("default").model
    model.resize_token_embeddings(WORDS + 3)
    assert model(tokens() + 2).last_hidden_state.isfinite().all()
