"""Caches of transformers, and `generate` in all its modes."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, StaticCache
from transformers.cache_utils import Cache

from beltrami.models.helm import HelmForCausalLM
from tests.models.helm.variants import (
    assert_near,
    every_variant,
    left_padded,
    logits,
    some_variants,
    tokens,
    trained,
)


def new_cache(model: HelmForCausalLM, kind: str) -> Cache:
    if kind == "static":
        return StaticCache(config=model.config, max_cache_len=16)
    return DynamicCache(config=model.config)


@torch.no_grad()
def by_chunks(
    model: HelmForCausalLM, cache: Cache, size: int, ids: Tensor, mask: Tensor, positions: Tensor
) -> Tensor:
    """Logits of the tokens given `size` at a time."""
    parts = []
    for start in range(0, ids.shape[1], size):
        stop = min(start + size, ids.shape[1])
        out = model(
            ids[:, start:stop],
            attention_mask=mask[:, :stop],
            position_ids=positions[:, start:stop],
            past_key_values=cache,
            use_cache=True,
        )
        parts.append(out.logits)
    return torch.cat(parts, 1)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@every_variant
def test_cached_logits_are_those_without_a_cache(variant: str, kind: str) -> None:
    model = trained(variant)
    ids, mask, positions = left_padded(9, 6)
    real = mask.bool()
    for dtype, error, sizes in ((torch.float64, 1e-9, (1, 3, 5)), (torch.float32, 1e-4, (3,))):
        model.to(dtype)
        whole = logits(model, ids, attention_mask=mask, position_ids=positions, use_cache=False)
        for size in sizes:
            out = by_chunks(model, new_cache(model, kind), size, ids, mask, positions)
            assert_near(out[real], whole[real], error)


def test_packed_rows_with_a_cache_of_their_own_masks() -> None:
    """A document mask as a 4-D mask, given by chunks."""
    model = trained()
    documents = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    ids, length = tokens(1, 7), 7
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
    mask = (documents[:, None] == documents).tril()[None, None]
    whole = logits(model, ids, position_ids=positions, use_cache=False)
    cache, parts = new_cache(model, "dynamic"), []
    for start in range(0, length, 3):
        stop = min(start + 3, length)
        out = model(
            ids[:, start:stop],
            position_ids=positions[:, start:stop],
            attention_mask=mask[:, :, start:stop, :stop],
            past_key_values=cache,
        )
        parts.append(out.logits)
    assert_near(torch.cat(parts, 1).detach(), whole, 1e-9)


def test_a_cache_counts_its_tokens_where_no_positions_are_given() -> None:
    model, ids = trained(), tokens()
    whole = logits(model, ids)
    with torch.no_grad():
        first = model(ids[:, :4], use_cache=True)
        rest = model(ids[:, 4:], past_key_values=first.past_key_values)
    assert_near(rest.logits, whole[:, 4:], 1e-9)
    assert first.past_key_values.get_seq_length() == ids.shape[1]
    keys = first.past_key_values.layers[0].keys
    assert keys.shape[-1] == model.config.head_dim


def generate(model: HelmForCausalLM, ids: Tensor | None, length: int = 8, **options: Any) -> Tensor:
    options = {"do_sample": False, "max_new_tokens": length, "eos_token_id": None, **options}
    if ids is not None:
        options.setdefault("attention_mask", (ids != 0).long())
    return model.generate(ids, **options)


@every_variant
def test_greedy_generation(variant: str) -> None:
    """With and without a cache, and as the argmax of logits one token at a time."""
    model, ids = trained(variant), tokens(2, 4)
    out = generate(model, ids)
    assert torch.equal(out, generate(model, ids, use_cache=False))
    expected = ids
    for _ in range(8):
        best = logits(model, expected)[:, -1].argmax(-1, keepdim=True)
        expected = torch.cat([expected, best], 1)
    assert torch.equal(out, expected)


@every_variant
def test_a_padded_batch_generates_what_its_sequences_do(variant: str) -> None:
    model = trained(variant)
    ids, mask, _ = left_padded(6, 3)
    out = generate(model, ids, attention_mask=mask)
    for row, n in enumerate((6, 3)):
        alone = generate(model, ids[row : row + 1, -n:])
        assert torch.equal(out[row, -n - 8 :], alone[0])


@some_variants
def test_static_cache_generates_the_same(variant: str) -> None:
    model, ids = trained(variant), tokens(2, 4)
    out = generate(model, ids, cache_implementation="static", disable_compile=True)
    assert torch.equal(out, generate(model, ids))


@some_variants
def test_generation_from_embeddings(variant: str) -> None:
    model, ids = trained(variant), tokens(2, 4)
    embedded = model.get_input_embeddings()(ids)
    out = generate(model, None, inputs_embeds=embedded, attention_mask=torch.ones(2, 4).long())
    assert torch.equal(out, generate(model, ids)[:, 4:])


@some_variants
def test_beams(variant: str) -> None:
    """Three beams with a cache that is reordered, against a search without one."""
    model, ids = trained(variant), tokens(2, 4)
    out = generate(model, ids, num_beams=3)
    for row in range(2):
        beams, totals = ids[row : row + 1], torch.zeros(1, dtype=torch.float64)
        for _ in range(8):
            scores = totals[:, None] + logits(model, beams)[:, -1].log_softmax(-1)
            totals, best = scores.flatten().topk(3)
            words = scores.shape[1]
            beams = torch.cat([beams[best // words], (best % words)[:, None]], 1)
        assert torch.equal(out[row], beams[0])


@some_variants
def test_sampling(variant: str) -> None:
    model, ids = trained(variant), tokens(2, 4)
    drawn = []
    for seed, cached in ((0, True), (0, False), (1, True)):
        torch.manual_seed(seed)
        drawn.append(generate(model, ids, do_sample=True, top_k=0, use_cache=cached))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@some_variants
def test_assisted_generation_and_prompt_lookup(variant: str) -> None:
    model, ids = trained(variant), tokens(1, 4)
    prompt = ids.repeat(1, 3)
    greedy = generate(model, prompt)
    assert torch.equal(generate(model, prompt, assistant_model=trained(variant)), greedy)
    assert torch.equal(generate(model, prompt, assistant_model=model), greedy)
    assert torch.equal(generate(model, prompt, prompt_lookup_num_tokens=2), greedy)


@pytest.mark.parametrize(
    ("kind", "needs"), [("offloaded", None), ("quantized", "optimum.quanto"), ("quantized", "hqq")]
)
def test_other_caches(kind: str, needs: str | None) -> None:
    if needs and importlib.util.find_spec(needs.split(".")[0]) is None:
        pytest.skip(f"needs {needs}")
    if kind == "offloaded" and not torch.cuda.is_available():
        pytest.skip("offloads from an accelerator")
    model, ids = trained().float(), tokens(1, 4)
    options: dict[str, Any] = {}
    if needs:
        options["cache_config"] = {"backend": needs.split(".")[-1], "nbits": 4}
    if kind == "offloaded":
        model, ids = model.cuda(), ids.cuda()
    out = generate(model, ids, cache_implementation=kind, **options)
    assert out.shape == (1, 12)


def test_the_generation_config_is_made_of_the_config() -> None:
    model = trained()
    assert isinstance(model.generation_config, GenerationConfig)
    assert model.generation_config.pad_token_id == 0
