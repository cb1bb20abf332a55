"""What does not fit is a ValueError or TypeError with the field, the value and what would do."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from beltrami.models.helm import HelmConfig, HelmForCausalLM, HelmModel
from tests.models.helm.variants import SIZES, build, config, logits, tokens, trained

CONFIGS: list[tuple[dict[str, Any], type[Exception], list[str]]] = [
    ({"num_attention_heads": 5}, ValueError,
     ["num_attention_heads=5", "hidden_size=32", "head_dim"]),
    ({"num_key_value_heads": 3}, ValueError, ["num_key_value_heads=3", "num_attention_heads=4"]),
    ({"num_attention_heads": 0}, ValueError, ["num_attention_heads", "got 0"]),
    ({"num_attention_heads": 2.0}, TypeError, ["num_attention_heads", "float"]),
    ({"hidden_size": "32"}, TypeError, ["hidden_size", "str"]),
    ({"num_hidden_layers": None}, TypeError, ["num_hidden_layers", "NoneType"]),
    ({"head_dim": 9}, ValueError, ["head_dim=9", "even"]),
    ({"head_dim": 7, "geometry": "euclidean"}, ValueError, ["head_dim=7", "even"]),
    ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.75}}, ValueError,
     ["3 of the 4", "partial_rotary_factor"]),
    ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": -1.0}}, ValueError,
     ["partial_rotary_factor", "-1.0"]),
    ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "yearn"}}, ValueError,
     ["rope_type", "'yearn'", "'yarn'"]),
    ({"rope_parameters": "yarn"}, TypeError, ["rope_parameters", "'yarn'", "rope_type"]),
    ({"head_dim": 4}, ValueError, ["head_dim=4", "head_dim >= 6"]),
    ({"curvature": 0.0}, ValueError, ["curvature", "0.0"]),
    ({"head_curvature": -1.0}, ValueError, ["head_curvature", "-1.0"]),
    ({"logit_curvature": math.nan}, ValueError, ["logit_curvature", "nan"]),
    ({"curvature": "1"}, TypeError, ["curvature", "str"]),
    ({"curvature_range": (2.0, 1.0)}, ValueError, ["curvature_range", "low < high", "2.0"]),
    ({"curvature_range": 3.0}, TypeError, ["curvature_range", "3.0"]),
    ({"curvature_range": (2.0, 3.0)}, ValueError,
     ["curvature", "(2, 3)", "got 1", 'learn_curvature="no"']),
    ({"tie_word_embeddings": True}, ValueError,
     ["tie_word_embeddings", 'logits="distance"', '"mlr"']),
    ({"tie_word_embeddings": True, "logits": "distance", "embedding": "flat"}, ValueError,
     ["tie_word_embeddings", 'logits="linear"']),
    ({"tie_word_embeddings": True, "logits": "distance", "logit_curvature": 1.0}, ValueError,
     ["logit_curvature=1.0", "None"]),
    ({"geometry": "lorenz"}, ValueError, ["geometry", "'lorenz'", "'lorentz'", "'euclidean'"]),
    ({"geometry": ["lorentz"]}, ValueError, ["geometry", "num_hidden_layers=2", "['lorentz']"]),
    ({"geometry": ["lorentz", "flat"]}, ValueError, ["geometry[1]", "'flat'"]),
    ({"geometry": "euclidean", "logits": "mlr"}, ValueError, ['logits="mlr"', "euclidean"]),
    ({"geometry": "euclidean", "embedding": "points"}, ValueError, ['embedding="points"']),
    ({"geometry": "euclidean", "time_columns": "all"}, ValueError, ["time_columns='all'"]),
    ({"geometry": "euclidean", "radius_input": True}, ValueError, ["radius_input=True"]),
    ({"residual": "sum"}, ValueError, ["residual", "'sum'", "'boost'"]),
    ({"residual_scale": "d"}, ValueError, ["residual_scale", "'d'", "'4*sqrt(d)'"]),
    ({"residual_scale": 2.0, "residual": "boost"}, ValueError, ["residual_scale=2.0", "boost"]),
    ({"residual_weight": 0.0}, ValueError, ["residual_weight", "0.0"]),
    ({"attention_score": "cosine"}, ValueError, ["attention_score", "'cosine'", "'distance'"]),
    ({"attention_aggregate": "sum"}, ValueError, ["attention_aggregate", "'sum'", "'centroid'"]),
    ({"time_columns": True}, ValueError, ["time_columns", "True", "'outputs'"]),
    ({"time_columns": "hyperplane", "zero_init_outputs": True}, ValueError,
     ["zero_init_outputs=True", "hyperplane"]),
    ({"learn_curvature": True}, ValueError, ["learn_curvature", "True", "'model'"]),
    ({"radius_input": "yes"}, TypeError, ["radius_input", "'yes'"]),
    ({"fused_loss": 1}, TypeError, ["fused_loss", "1"]),
    ({"label_smoothing": 1.0}, ValueError, ["label_smoothing", "1.0"]),
    ({"z_loss": -1.0}, ValueError, ["z_loss", "-1.0"]),
    ({"hidden_act": "sillu"}, ValueError, ["hidden_act", "'sillu'", "'silu'"]),
    ({"pad_token_id": 40}, ValueError, ["pad_token_id", "40", "39"]),
    ({"curvatures": 1.0}, TypeError, ["'curvatures'", "did you mean", "curvature"]),
    ({"n_layers": 2}, TypeError, ["'n_layers'"]),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "kind", "words"), CONFIGS)
def test_configs(fields: dict[str, Any], kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        config(**fields)
    for word in words:
        assert word in str(caught.value)


def test_a_config_that_was_changed_is_checked_again() -> None:
    changed = config()
    changed.attention_score = "cosine"
    with pytest.raises(ValueError, match="cosine"):
        HelmForCausalLM(changed)


def test_llamas_fields_are_known() -> None:
    llama = LlamaConfig(**SIZES).to_dict()
    flat = HelmConfig(**{**llama, "model_type": "helm", "geometry": "euclidean"})
    assert flat.hidden_size == 32
    assert config(head_dim=4, geometry="euclidean").head_dim == 4
    smallest = {"head_dim": 2, "attention_score": "dot", "attention_aggregate": "mean"}
    assert logits(build(**smallest), tokens()).isfinite().all()
    assert logits(build(head_dim=6), tokens()).isfinite().all()


# --- junk -----------------------------------------------------------------------------------------

ENUMERATED = (
    "geometry", "curvature", "head_curvature", "logit_curvature", "curvature_range",
    "learn_curvature", "residual", "residual_weight", "learn_residual", "residual_scale",
    "attention_score", "attention_aggregate", "qk_norm", "time_columns", "radius_input",
    "embedding", "logits", "embedding_range", "zero_init_outputs", "fused_loss", "label_smoothing",
    "z_loss", "tie_word_embeddings", "attention_bias", "mlp_bias", "hidden_act",
)  # fmt: skip
WORDS = (
    "lorentz", "boost", "euclidean", "distance", "dot", "centroid", "mean", "none", "outputs",
    "all", "hyperplane", "points", "flat", "linear", "mlr", "no", "model", "layer", "sqrt(d)",
)  # fmt: skip
plain = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.sampled_from(WORDS),
    st.text(max_size=3),
)  # fmt: skip
junk = st.one_of(
    plain, st.lists(plain, max_size=3), st.dictionaries(st.text(max_size=2), plain, max_size=2)
)
small = {
    **SIZES,
    "vocab_size": 8,
    "hidden_size": 12,
    "intermediate_size": 8,
    "num_attention_heads": 2,
}


@hypothesis.settings(max_examples=150)
@hypothesis.given(st.dictionaries(st.sampled_from(ENUMERATED), junk, min_size=1, max_size=3))
def test_junk_is_refused_or_works(fields: dict[str, Any]) -> None:
    """A config is built, or refused with the name of a field in it."""
    try:
        fitting = HelmConfig(**{**small, **fields})
    except (ValueError, TypeError) as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert any(name in message for name in fields), message
        return
    model = HelmForCausalLM(fitting)
    assert HelmConfig.from_dict(fitting.to_dict()).to_dict() == fitting.to_dict()
    ids = torch.tensor([[3, 4, 5]])
    assert model(ids, labels=ids).loss is not None


@hypothesis.given(
    st.fixed_dictionaries(
        {}, optional={
            "geometry": st.sampled_from(
                ["lorentz", "euclidean", ["lorentz", "euclidean"], ["euclidean", "lorentz"]]
            ),
            "learn_curvature": st.sampled_from(["no", "model", "layer"]),
            "residual": st.sampled_from(["lorentz", "boost", "euclidean"]),
            "residual_scale": st.sampled_from([None, 1.5, "sqrt(d)"]),
            "learn_residual": st.booleans(),
            "attention_score": st.sampled_from(["distance", "dot"]),
            "attention_aggregate": st.sampled_from(["centroid", "mean"]),
            "time_columns": st.sampled_from(["none", "outputs", "all", "hyperplane"]),
            "radius_input": st.booleans(),
            "qk_norm": st.booleans(),
            "embedding": st.sampled_from(["points", "flat"]),
            "logits": st.sampled_from(["linear", "mlr", "distance"]),
            "tie_word_embeddings": st.booleans(),
            "zero_init_outputs": st.booleans(),
            "fused_loss": st.booleans(),
        },
    )
)  # fmt: skip
@hypothesis.settings(max_examples=150)
def test_any_switches_that_fit_train(fields: dict[str, Any]) -> None:
    try:
        fitting = HelmConfig(**{**small, **fields})
    except ValueError:
        return
    model = HelmForCausalLM(fitting)
    ids = torch.tensor([[3, 4, 5, 6]])
    loss = model(ids, labels=ids).loss
    assert loss.isfinite()
    loss.backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name


# --- what a model is given ------------------------------------------------------------------------


def given(model: HelmForCausalLM, **more: Any) -> dict[str, Any]:
    return {"input_ids": tokens(), **more}


def cache_of(model: HelmForCausalLM, rows: int = 2) -> DynamicCache:
    cache = DynamicCache(config=model.config)
    logits(model, tokens(rows), past_key_values=cache)
    return cache


INPUTS: dict[str, tuple[dict[str, Any], type[Exception], list[str]]] = {
    "token": ({"input_ids": tokens() + 30}, ValueError, ["vocab_size is 40", "resize_token_emb"]),
    "negative": ({"input_ids": tokens() - 50}, ValueError, ["input_ids", "vocab_size"]),
    "floats": ({"input_ids": tokens().float()}, TypeError, ["input_ids", "torch.float32"]),
    "one row": ({"input_ids": tokens()[0]}, TypeError, ["input_ids", "(9,)"]),
    "nothing": ({"input_ids": None}, ValueError, ["input_ids and inputs_embeds"]),
    "both": ({"inputs_embeds": torch.zeros(2, 9, 32)}, ValueError, ["exactly one"]),
    "width": (
        {"input_ids": None, "inputs_embeds": torch.zeros(2, 9, 16)}, ValueError,
        ["inputs_embeds", "(batch, tokens, 32)", "(2, 9, 16)"],
    ),
    "mask of another batch": (
        {"attention_mask": torch.ones(3, 9)}, ValueError, ["attention_mask", "batch=2", "(3, 9)"]
    ),
    "short mask": (
        {"attention_mask": torch.ones(2, 7)}, ValueError, ["attention_mask", "7 tokens", "9 tokens"]
    ),
    "mask of three": (
        {"attention_mask": torch.ones(2, 9, 9)}, ValueError, ["attention_mask", "(2, 9, 9)"]
    ),
    "4-D mask of integers": (
        {"attention_mask": torch.ones(2, 1, 9, 9).long()}, TypeError,
        ["attention_mask", "torch.int64", "mask.bool()"],
    ),
    "4-D mask of another length": (
        {"attention_mask": torch.ones(2, 1, 5, 5).bool()}, ValueError,
        ["attention_mask", "(batch, 1, 9, 9)", "(2, 1, 5, 5)"],
    ),
    "positions": (
        {"position_ids": torch.arange(60, 69)[None]}, ValueError,
        ["position 68", "max_position_embeddings=64", "rope_type"],
    ),
    "length": (
        {"input_ids": tokens(1, 65)}, ValueError, ["position 64", "max_position_embeddings=64"]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("inputs", "kind", "words"), INPUTS.values(), ids=INPUTS)
def test_inputs(inputs: dict[str, Any], kind: type[Exception], words: list[str]) -> None:
    model = build()
    with pytest.raises(kind) as caught:
        model(**given(model, **inputs))
    for word in words:
        assert word in str(caught.value)


def test_caches_of_others() -> None:
    model, ids = build(), tokens()
    for other, words in (
        (cache_of(build(num_hidden_layers=3)), ["3 layers", "the model has 2"]),
        (cache_of(build(num_key_value_heads=2)), ["2 heads of 8", "4 of 8"]),
        (cache_of(build(head_dim=12)), ["4 heads of 12", "4 of 8"]),
        (cache_of(model, rows=1), ["batch of 1", "of one of 2"]),
    ):
        with pytest.raises(ValueError, match="past_key_values") as caught:
            model(ids, past_key_values=other)
        for word in words:
            assert word in str(caught.value)
    with pytest.raises(ValueError, match="them and the 9 in the cache"):
        model(ids, past_key_values=cache_of(model), attention_mask=torch.ones(2, 9))


def test_positions_beyond_the_longest_with_scaling() -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}
    model = build(rope_parameters={**rope, "original_max_position_embeddings": 64})
    assert logits(model, tokens(1, 80)).isfinite().all()


def test_a_cache_beside_gradient_checkpointing_is_left_out() -> None:
    """As transformers does, with a line in the log."""
    ids = tokens()
    model = trained().train()
    model(ids, labels=ids).loss.backward()
    expected = model.model.embed_tokens.weight.grad.clone()
    model.zero_grad()
    model.gradient_checkpointing_enable()
    out = model(ids, labels=ids, use_cache=True)
    out.loss.backward()
    assert not out.past_key_values or out.past_key_values.get_seq_length() == 0
    torch.testing.assert_close(model.model.embed_tokens.weight.grad, expected)


CURVED = {
    "geometry": "lorentz", "residual": "lorentz", "embedding": "points", "logits": "mlr",
    "time_columns": "outputs",
}  # fmt: skip
FLAT = {
    "geometry": "euclidean", "residual": "euclidean", "embedding": "flat", "logits": "linear",
    "time_columns": "none", "attention_score": "dot", "attention_aggregate": "mean",
}  # fmt: skip


@pytest.mark.parametrize("kind", [HelmForCausalLM, HelmModel])
def test_checkpoints_of_another_geometry(kind: type, tmp_path: Path) -> None:
    build("flat").save_pretrained(tmp_path / "flat")
    build("dot-mean").save_pretrained(tmp_path / "curved")
    with pytest.raises(ValueError, match=r"no hyperbolic parameters.*'lorentz'.*from_flat"):
        kind.from_pretrained(tmp_path / "flat", **CURVED)
    with pytest.raises(ValueError, match=r"curvature.*'euclidean'.*config it was saved"):
        kind.from_pretrained(tmp_path / "curved", **FLAT)


def test_a_checkpoint_of_llama(tmp_path: Path) -> None:
    """Loaded as it is into the flat model, and refused by a curved one."""
    llama = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    llama.save_pretrained(tmp_path)
    flat = HelmForCausalLM.from_pretrained(
        tmp_path, config=HelmConfig(**SIZES, geometry="euclidean")
    )
    torch.testing.assert_close(logits(flat, tokens()), logits(llama, tokens()))
    curved = HelmConfig(**SIZES, attention_score="dot", attention_aggregate="mean")
    with pytest.raises(ValueError, match="no hyperbolic parameters"):
        HelmForCausalLM.from_pretrained(tmp_path, config=curved)
