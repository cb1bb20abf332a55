from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args

import pytest

from beltrami.cli import main
from beltrami.recipes.hyplora.config import NAMES, HypLoraRunConfig, Method
from beltrami.recipes.hyplora.methods import HYPLORA
from beltrami.recipes.hyplora.presets import PresetOptions


def test_every_method_has_a_name_and_every_preset_every_option() -> None:
    assert set(NAMES) == set(get_args(Method))
    assert set(HYPLORA) == {m for m in NAMES if m.startswith("hyplora")}
    options = {f.name for f in dataclasses.fields(HypLoraRunConfig)}
    assert {f.name for f in dataclasses.fields(PresetOptions)} <= options


def test_an_option_goes_before_its_preset() -> None:
    config = HypLoraRunConfig(preset="paper-math", rank=4)
    assert config.chosen.rank == 4
    assert config.chosen.alpha == 64
    assert config.chosen.longest == 256
    assert config.chosen.targets == ("q_proj", "k_proj", "v_proj", "up_proj", "down_proj")
    assert HypLoraRunConfig().chosen.new_tokens == 96
    assert HypLoraRunConfig(model="smollm2").chosen.new_tokens == 400


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "--rank must be at least 1, got 0"),
        ({"alpha": -1.0}, "--alpha must be"),
        ({"dropout": 1.0}, "--dropout must be below 1"),
        ({"epochs": 0.0}, "--epochs must be"),
        ({"curvatures": (1.0, 0.0)}, "--curvatures must be above 0"),
        ({"curvatures": (1.0, 1.0)}, "--curvatures must not repeat a value"),
        ({"methods": ("lora", "lora")}, "--methods must not repeat a value"),
        ({"methods": ()}, "--methods is empty"),
        ({"learning_rates": (0.0,)}, "--learning-rates must be"),
        ({"steps": (), "task": "taxonomy"}, "--steps is empty"),
        ({"warm_up": -1}, "--warm-up must be at least 0"),
        ({"model": ""}, "--model is empty"),
        ({"task": "commonsense"}, "has no data of its own"),
        ({"task": "commonsense", "data": "x.json"}, "needs a model that knows words"),
        ({"data": "x.json"}, "knows no words but those of generated"),
        (
            {"task": "taxonomy", "tests": (Path("x"),), "model": "m"},
            "--task taxonomy makes its own",
        ),
        ({"data": "x.json", "model": "m", "largest": 50}, "--largest is about generated"),
        ({"task": "taxonomy", "distractors": (3,)}, "--distractors is about generated"),
        ({"task": "commonsense", "data": "x", "model": "m", "steps": (1,)}, "--steps is about"),
        ({"task": "commonsense", "data": "generated", "model": "m"}, "no generated data"),
        ({"tests": (Path("x.json"),)}, "for --tests x.json give --model"),
        ({"preset": "paper-math", "model": "tiny"}, "no words of --prompt instruction"),
        ({"model": "m", "pretraining_steps": 5}, "--pretraining-steps is about the model made"),
        ({"methods": ("dora",), "curvatures": (2.0,)}, "--curvatures is for the method hyplora"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HypLoraRunConfig(**options).check()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "hiplora"], ["hiplora"]),
        (["--targets", "nothing"], ["--targets nothing", "down_proj"]),
        (["--largest", "3"], ["largest must be at least 20, got 3"]),
        (["--steps", "0"], ["--steps must be at least 1, got 0"]),
        (["--model", "missing/folder/here"], ["missing/folder/here"]),
        (["--model", "smollm2", "--data", "missing.json"], ["missing.json"]),
    ],
)
def test_the_command_line_says_what_is_wrong(
    arguments: list[str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    out = tmp_path / "run"
    common = ["--train-size", "20", "--test-size", "2", "--seeds", "1"]
    assert main(["run", "hyplora", *common, "--out", str(out), *arguments]) == 2
    said = capsys.readouterr().err
    for word in words:
        assert word in said.replace("\n", " ")
    assert "Traceback" not in said
    assert not (out / "metrics.json").exists()


def test_a_folder_without_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "hyplora", "--model", str(tmp_path), "--out", str(tmp_path / "run")]) == 2
    assert "has no config.json" in capsys.readouterr().err


def test_the_bound_of_curvatures_is_that_of_the_adapter() -> None:
    """Written twice, as one of the two takes long to import."""
    from beltrami.peft.config import MOST_CURVATURE
    from beltrami.recipes.hyplora import config

    assert config.MOST_CURVATURE == MOST_CURVATURE
