"""With geometry="euclidean" the model is transformers' Llama, an oracle that is not ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import beltrami.models.helm.model as helm
from beltrami.models.helm import HelmForCausalLM
from tests.models.helm.variants import (
    SIZES,
    assert_near,
    build,
    config,
    left_padded,
    logits,
    shake,
    tokens,
    trained,
)

# A head has 8 channels, so there are 4 frequencies.
ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 500.0},
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 3.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
    "llama3": {
        "rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 8,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    },
    "longrope": {
        "rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 8,
        "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0],
    },
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped": {"num_key_value_heads": 2},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "tied": {"tie_word_embeddings": True},
    "wide-heads": {"head_dim": 12},
    "gelu": {"hidden_act": "gelu", "rms_norm_eps": 1e-3},
    **{f"rope-{name}": {"rope_parameters": {"rope_theta": 1e4, **r}} for name, r in ROPES.items()},
}
LENGTH = 14  # beyond max_position_embeddings of the dynamic and original ones of the others


def pair(shape: str) -> tuple[LlamaForCausalLM, HelmForCausalLM]:
    fields = dict(SHAPES[shape])
    if shape == "rope-dynamic":
        fields["max_position_embeddings"] = 8
    elif shape.startswith("rope-") and shape not in ("rope-default", "rope-linear"):
        fields["max_position_embeddings"] = 32
    torch.manual_seed(0)
    llama = LlamaForCausalLM(LlamaConfig(**{**SIZES, **fields})).eval()
    shake(llama)
    flat = build("flat", **fields)
    flat.load_state_dict(llama.state_dict(), strict=True)
    return llama, flat


@pytest.mark.parametrize("shape", SHAPES)
def test_llamas_weights_give_llamas_logits(shape: str) -> None:
    llama, flat = pair(shape)
    assert flat.state_dict().keys() == llama.state_dict().keys()
    for length in (5, LENGTH, 5):  # the last after positions were scaled
        ids = tokens(2, length)
        assert_near(logits(flat, ids), logits(llama, ids), 1e-5)
    ids, mask, positions = left_padded(8, 3)
    given = {"attention_mask": mask, "position_ids": positions}
    real = mask.bool()
    assert_near(logits(flat, ids, **given)[real], logits(llama, ids, **given)[real], 1e-5)
    assert logits(flat, ids).std() > 0.1


@pytest.mark.parametrize("shape", SHAPES)
def test_it_generates_what_llama_does(shape: str) -> None:
    llama, flat = (model.double() for model in pair(shape))
    ids, mask, _ = left_padded(6, 4)
    options = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False}
    assert torch.equal(flat.generate(ids, **options), llama.generate(ids, **options))


def test_its_gradients_and_loss_are_llamas() -> None:
    llama, flat = pair("grouped")
    ids = tokens()
    labels = ids.clone()
    labels[:, :3] = -100
    losses = [model(ids, labels=labels).loss for model in (llama, flat)]
    torch.testing.assert_close(losses[1], losses[0])
    for loss in losses:
        loss.backward()
    theirs = dict(llama.named_parameters())
    for name, p in flat.named_parameters():
        torch.testing.assert_close(p.grad, theirs[name].grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["yarn", "longrope"])
def test_factors_of_attention_change_no_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are the same, queries times its square: their times, too."""
    seen: list[tuple[Tensor, Tensor]] = []
    attend = helm.eager_attention_forward

    def spy(module: Any, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.append((q, k))
        return attend(module, q, k, *args, **kwargs)

    monkeypatch.setattr(helm, "eager_attention_forward", spy)
    for factor in (1.0, 1.5):
        rope = {"rope_theta": 1e4, **ROPES[name], "attention_factor": factor}
        if name == "longrope":
            rope = {**rope, "short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0]}
        model = trained(
            rope_parameters=rope, max_position_embeddings=32, attn_implementation="eager"
        )
        logits(model, tokens())
    (q, k), (scaled_q, same_k) = seen[0], seen[2]
    assert torch.equal(k, same_k)
    assert_near(scaled_q, 1.5**2 * q, 1e-12)
    size = model.model.layers[0].self_attn.score_size
    radius = model.model.head_curvature.radius.double()
    time = -k[..., size] + radius
    assert_near(time**2 - k[..., :size].square().sum(-1), (radius**2).expand_as(time), 1e-5)


def test_caches_of_llama_are_those_of_the_flat_model() -> None:
    llama, flat = pair("grouped")
    ids = tokens()
    caches = []
    for model in (llama, flat):
        cache = DynamicCache(config=model.config)
        logits(model, ids, past_key_values=cache)
        caches.append(cache.layers[1])
    assert_near(caches[1].keys, caches[0].keys, 1e-5)
    assert_near(caches[1].values, caches[0].values, 1e-5)


def test_the_twin_has_no_parameter_that_llama_has_not() -> None:
    assert config("flat").is_flat
    flat = build("flat", qk_norm=True)
    names = {name for name, _ in flat.named_parameters() if "_norm.weight" in name}
    assert len(names) == 2 * 2
