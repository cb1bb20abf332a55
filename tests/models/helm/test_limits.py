"""As κ → 0 a curved model with random parameters is the flat one of the same switches."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GPT2Config, LlamaConfig, LlamaForCausalLM, MistralConfig

from beltrami.models.helm import HelmForCausalLM
from beltrami.models.helm.convert import CURVED_PARTS, curved_config
from tests.models.helm.variants import (
    SIZES,
    VARIANTS,
    assert_near,
    build,
    config,
    logits,
    shake,
    tokens,
    trained,
)

KAPPAS = (1e-2, 1e-4, 1e-6)
FLAT_FIELDS = {
    "geometry": "euclidean", "time_columns": "none", "radius_input": False, "embedding": "flat",
    "logits": "linear", "residual": "euclidean", "logit_curvature": None,
    "tie_word_embeddings": False, "learn_curvature": "no",
}  # fmt: skip
# A hybrid's flat layers have Llama's switches, the others its own: no flat model has both.
CURVED = [
    name
    for name, fields in VARIANTS.items()
    if not isinstance(fields.get("geometry"), list) and not config(name).is_flat
]


def at_curvature(variant: str, kappa: float) -> HelmForCausalLM:
    tied = VARIANTS[variant].get("tie_word_embeddings", False)
    return trained(
        variant,
        curvature=kappa,
        head_curvature=kappa,
        logit_curvature=None if tied else kappa,
        learn_curvature="no",
        curvature_range=(1e-9, 1e3),
    )


def flat_logits(curved: HelmForCausalLM, ids: Tensor) -> Tensor:
    """Those of the flat model with the curved one's weights and the limit of its word scores."""
    switches = curved.config
    fields = {
        name: getattr(switches, name)
        for name in ("attention_score", "attention_aggregate", "learn_residual")
    }
    biased = switches.time_columns == "hyperplane"
    biases = {name: biased or getattr(switches, name) for name in ("attention_bias", "mlp_bias")}
    known = {
        name: getattr(switches, name)
        for name in ("head_dim", "num_key_value_heads", "qk_norm", "residual_weight")
    }
    known["residual_scale"] = switches.residual_scale_value()
    flat = HelmForCausalLM(
        config(**{**fields, **biases, **known, **FLAT_FIELDS})  # type: ignore[arg-type]
    ).double()
    for name, p in flat.named_parameters():
        if name.endswith(".bias"):
            p.data.zero_()
    state = curved.state_dict()
    if biased:  # a hyperplane's offset is a bias in flat space
        offsets = {n: v for n, v in state.items() if n.endswith("_offset")}
        state |= {n.replace("_offset", "_proj.bias"): -v for n, v in offsets.items()}
    left = flat.load_state_dict(state, strict=False)
    assert all(any(part in name for part in CURVED_PARTS) for name in left.unexpected_keys)
    assert all(name.endswith(".bias") for name in left.missing_keys)
    with torch.no_grad():
        h = flat.eval().model(ids).last_hidden_state
        weight, scores = curved.lm_head.weight, curved.word_scores
        if switches.logits == "mlr":
            return h @ weight.mT - scores.offset * weight.norm(dim=-1)
        if switches.logits == "distance":
            apart = (h[..., None, :] - weight).square().sum(-1)
            return -apart / scores.log_temperature.exp()
        return h @ weight.mT


@pytest.mark.parametrize("variant", CURVED)
def test_the_limit_of_no_curvature(variant: str) -> None:
    ids, errors = tokens(), []
    for kappa in KAPPAS:
        curved = at_curvature(variant, kappa)
        expected = flat_logits(curved, ids)
        errors.append(((logits(curved, ids) - expected).abs().max() / expected.std()).item())
    # The excess time, √c|x|²/2, and the radius, asinh(√c|x|), are of the order √c.
    switches = config(variant)
    root = switches.radius_input or switches.time_columns in ("outputs", "all")
    rate = 0.5 if root else 1.0
    assert errors[0] < 1.0
    for before, after in itertools.pairwise(errors):
        assert math.log10(before / after) == pytest.approx(2 * rate, abs=0.2)


# --- a curved model from a flat one ---------------------------------------------------------------


def llama(**fields: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, **fields})).eval()
    shake(model)
    return model.double()


WARM: dict[str, dict[str, Any]] = {
    "default": {},
    "boost": {"residual": "boost"},
    "mlr": {"logits": "mlr"},
    "points": {"embedding": "points"},
    "all-times": {"time_columns": "all"},
    "no-times": {"time_columns": "none"},
    "hybrid": {"geometry": ["lorentz", "euclidean"]},
    "per-layer": {"learn_curvature": "layer"},
}


@pytest.mark.parametrize("switches", WARM.values(), ids=WARM)
def test_a_warm_start_gives_the_flat_logits(switches: dict[str, Any]) -> None:
    """Transformers' Llama normalises in float32, so the flat HELM model says what they are."""
    ids, tied = tokens(), "logits" not in switches and "embedding" not in switches
    source = llama(num_key_value_heads=2, tie_word_embeddings=tied)
    flat = build("flat", num_key_value_heads=2, tie_word_embeddings=tied).double()
    flat.load_state_dict(source.state_dict())
    expected, errors = logits(flat, ids), []
    assert_near(logits(source, ids), expected, 1e-5)
    for kappa in KAPPAS:
        more = {"logit_curvature": kappa} if "logits" in switches else {}
        curved = HelmForCausalLM.from_flat(
            source, curvature=kappa, curvature_range=(1e-9, 1e3), **more, **switches
        )
        assert not curved.config.is_flat
        out = logits(curved.eval(), ids)
        errors.append((out - expected).abs().max().item())
    assert errors[-1] < 1e-4 * expected.std()
    for before, after in itertools.pairwise(errors):
        assert math.log10(before / after) == pytest.approx(2, abs=0.2)


def test_a_warm_start_with_distances_and_room_for_times() -> None:
    """It is the model that has Llama's weights with distances in the place of dot products."""
    flat = llama()
    curved = HelmForCausalLM.from_flat(
        flat, 1e-6, attention_score="distance", attention_aggregate="centroid",
        head_dim=12, curvature_range=(1e-9, 1e3),
    ).double()  # fmt: skip
    for name, p in flat.state_dict().items():
        assert torch.equal(curved.state_dict()[name], p)
    ids = tokens()
    assert_near(logits(curved.eval(), ids), flat_logits(curved, ids), 1e-3)


def test_a_warm_start_keeps_dtype_and_how_to_generate() -> None:
    flat = llama().bfloat16()
    flat.generation_config.top_k = 7
    curved = HelmForCausalLM.from_flat(flat)
    assert curved.generation_config.top_k == 7
    assert curved.model.layers[0].mlp.up_proj.weight.dtype == torch.bfloat16
    assert curved.model.curvature.raw.dtype == torch.float32
    assert curved.model.layers[0].attention_residual.log_weight.dtype == torch.float32


def test_a_warm_start_from_a_flat_helm() -> None:
    flat = build("flat").double()
    curved = HelmForCausalLM.from_flat(flat, 1e-6, curvature_range=(1e-9, 1e3)).double().eval()
    assert_near(logits(curved, tokens()), logits(flat, tokens()), 1e-4)


@pytest.mark.parametrize(
    ("switches", "words"),
    [
        ({"attention_score": "distance"}, ["head_dim=8", "distance"]),
        ({"attention_aggregate": "centroid"}, ["head_dim=8", "centroid"]),
        ({"attention_score": "distance", "attention_aggregate": "centroid"}, ["head_dim=12"]),
        ({"residual": "sum"}, ["residual", "'sum'"]),
        ({"curvature_range": (2.0, 3.0)}, ["curvature_range"]),
    ],
)
def test_a_warm_start_that_does_not_fit(switches: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        HelmForCausalLM.from_flat(llama(), **switches)
    for word in words:
        assert word in str(caught.value)


def test_a_warm_start_from_something_else() -> None:
    with pytest.raises(ValueError, match="gpt2"):
        curved_config(GPT2Config(), 1.0, {})
    with pytest.raises(ValueError, match="sliding window, the model has 4096"):
        curved_config(MistralConfig(sliding_window=4096), 1.0, {})
    with pytest.raises(TypeError, match="curvatura"):
        HelmForCausalLM.from_flat(llama(), curvatura=1.0)
