from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peft import PeftConfig, get_peft_model
from peft.utils import PeftType

from beltrami.peft import HypLoraConfig, HypLoraLayer
from beltrami.peft.config import FORMAT, LORA_NAMES, MOST_CURVATURE
from tests.peft import tiny


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"variant": "rotated"}, ["variant", "rotation", "'rotated'"]),
        ({"learn_curvature": "yes"}, ["learn_curvature", "module", "'yes'"]),
        ({"norm_source": "output"}, ["norm_source", "residual", "'output'"]),
        ({"reference": "code"}, ["reference", "repo", "'code'"]),
        ({"bias": "some"}, ["bias", "hyplora_only", "'some'"]),
        ({"curvature": 0.0}, ["curvature", "positive", "0.0", "tangent"]),
        ({"curvature": -1.0}, ["curvature", "-1.0"]),
        ({"curvature": float("nan")}, ["curvature", "nan"]),
        ({"curvature": "auto"}, ["curvature", "'auto'"]),
        ({"curvature": []}, ["curvature", "empty"]),
        ({"curvature": 1e300}, ["curvature", "1e+06", "1e+300"]),
        ({"curvature": 1e-4, "learn_curvature": "module"}, ["curvature", "0.001", "0.0001"]),
        ({"curvature_pattern": {"q_proj": 0}}, ["curvature_pattern['q_proj']", "0"]),
        ({"r": 0}, ["r must", "0"]),
        ({"r": 2.5}, ["r must", "2.5"]),
        ({"rank_pattern": {"q_proj": 0}}, ["rank_pattern['q_proj']", "0"]),
        ({"dropout": 1.0}, ["dropout", "1.0"]),
        ({"dropout": "some"}, ["dropout", "'some'"]),
        ({"max_radius": 0.0}, ["max_radius", "0.0"]),
        ({"max_radius": "far"}, ["max_radius", "'far'"]),
        ({"alpha": float("nan")}, ["alpha", "nan"]),
        ({"alpha_pattern": {"q_proj": "x"}}, ["alpha_pattern['q_proj']", "'x'"]),
        ({"init_weights": "pissa"}, ["init_weights", "'pissa'", "linear"]),
        ({"init_weights": None}, ["init_weights", "None"]),
        (
            {"learn_curvature": "layer", "curvature_pattern": {"q_proj": 0.5}},
            ["layer", "curvature_pattern", "module"],
        ),
        ({"variant": "boost", "max_radius": None}, ["boost", "max_radius", "40"]),
        ({"variant": "boost", "curvature": [1.0, 2.0]}, ["mixture", "'boost'"]),
        ({"variant": "boost", "reference": "repo"}, ["repo", "'boost'"]),
        ({"variant": "tangent", "learn_curvature": "module"}, ["tangent", "learn_curvature"]),
        ({"curvature": [1.0, 2.0], "learn_curvature": "token"}, ["token", "mixture"]),
        ({"curvature": [1.0, 2.0], "curvature_pattern": {"q": 1.0}}, ["curvature_pattern"]),
        ({"reference": "repo", "norm_source": "residual"}, ["repo", "residual"]),
        ({"trainable_token_indices": [1]}, ["trainable_token_indices", "modules_to_save"]),
        ({"target_modules": ".*q", "layers_to_transform": [0]}, ["layers_to_transform", ".*q"]),
        ({"layers_pattern": "layers"}, ["layers_pattern", "layers_to_transform"]),
        ({"hyplora_format": FORMAT + 1}, ["newer", str(FORMAT + 1), "pgrade"]),
        ({"hyplora_format": "2.0"}, ["2.0", "pgrade"]),
    ],
)
def test_bad_settings_are_named(settings: dict, words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        HypLoraConfig(**settings)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("name", ["lora_alpha", "lora_dropout", "init_lora_weights"])
def test_names_of_lora_are_translated(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} is called {LORA_NAMES[name]}"):
        HypLoraConfig(r=4, **{name: 1})


def test_layer_zero_is_a_layer() -> None:
    config = HypLoraConfig(
        target_modules=["q_proj"], layers_to_transform=0, layers_pattern="layers"
    )
    model = get_peft_model(tiny.llama(), config)
    adapted = [n for n, m in model.named_modules() if isinstance(m, HypLoraLayer)]
    assert adapted == ["base_model.model.model.layers.0.self_attn.q_proj"]


def test_the_file_says_everything(tmp_path) -> None:
    config = HypLoraConfig(
        r=3,
        curvature=[0.5, 2.0],
        norm_source="residual",
        target_modules=["q_proj"],
        max_radius=None,
    )
    config.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "adapter_config.json").read_text())
    assert written["peft_type"] == "HYPLORA"
    read = PeftConfig.from_pretrained(tmp_path)
    assert isinstance(read, HypLoraConfig)
    assert read == config


def test_a_newer_file_is_refused(tmp_path) -> None:
    HypLoraConfig(target_modules=["q_proj"]).save_pretrained(tmp_path)
    path = tmp_path / "adapter_config.json"
    path.write_text(path.read_text().replace(f'"hyplora_format": {FORMAT}', '"hyplora_format": 99'))
    with pytest.raises(ValueError, match="newer beltrami"):
        PeftConfig.from_pretrained(tmp_path)


def test_the_method_is_a_member_of_pefts_enum() -> None:
    assert PeftType("HYPLORA") is PeftType.HYPLORA
    assert PeftType.HYPLORA in list(PeftType)
    assert PeftType.HYPLORA.value == "HYPLORA"
    assert HypLoraConfig().peft_type is PeftType.HYPLORA


def test_targets_that_match_nothing() -> None:
    with pytest.raises(ValueError, match="nothing_here"):
        get_peft_model(tiny.llama(), HypLoraConfig(target_modules=["nothing_here"]))


@given(st.floats(allow_nan=True, allow_infinity=True), st.integers(-3, 3))
def test_numbers_are_accepted_or_refused_but_never_ignored(c: float, r: int) -> None:
    good = 0 < c <= MOST_CURVATURE and r >= 1
    if good:
        assert HypLoraConfig(curvature=c, r=r).curvatures == (c,)
    else:
        with pytest.raises(ValueError):
            HypLoraConfig(curvature=c, r=r)
