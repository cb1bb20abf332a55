from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from beltrami.recipes.hyplora.config import HypLoraRunConfig
from beltrami.recipes.hyplora.methods import HYPLORA, FineTuned
from beltrami.recipes.hyplora.recipe import HypLoraRecipe
from beltrami.recipes.observer import Silence
from beltrami.recipes.recipe import Trial
from beltrami.recipes.registry import create
from beltrami.recipes.runner import run
from tests.recipes.hyplora.small import SMALL, _own_cache, fixture_model_cache  # noqa: F401
from tests.recipes.interruption import run_interrupted

EVERY = (
    "full", "prefix", "series", "parallel", "rslora", "dora", *HYPLORA,
)  # fmt: skip


def prepared(config: HypLoraRunConfig) -> HypLoraRecipe:
    recipe = HypLoraRecipe(config)
    recipe.prepare(Silence(), torch.device("cpu"))
    return recipe


def first_trials(recipe: HypLoraRecipe) -> dict[str, Trial]:
    return {
        c.model: Trial(c.model, c.group, 0, c.settings, c.choices[0]) for c in recipe.contestants()
    }


def test_an_interrupted_run_ends_as_it_would_have(tmp_path: Path) -> None:
    outcome = run_interrupted(SMALL, tmp_path, training=4, step=3)
    lora, base, learned = outcome.standings
    assert [s.contestant.model for s in outcome.standings] == ["lora", "base", "hyplora-learned"]
    assert lora.contestant.twin is None
    assert base.contestant.twin == learned.contestant.twin == "lora"
    assert base.results[0].parameters == 0
    # One curvature a layer more, in 3 blocks of 2 adapted layers.
    assert learned.results[0].parameters == lora.results[0].parameters + 6
    metrics = learned.results[0].metrics
    assert {"accuracy", "answer_loss", "validation_loss", "kept", "curvature"} <= metrics.keys()
    assert len(learned.results[0].texts["answers"]) == 6
    assert any(key.startswith("gain q_proj") for key in learned.results[0].curves)
    html = (tmp_path / "broken" / "report.html").read_text()
    for heading in ("The comparison", "Gains", "Learned curvatures", "Where they differ"):
        assert heading in html


def test_what_is_saved_is_what_was_trained(tmp_path: Path) -> None:
    """The files of a trial hold the adapter and none of the base model's weights."""
    from safetensors import safe_open

    config = dataclasses.replace(
        SMALL, seeds=1, methods=("hyplora",), learning_rates=(0.01,), out=tmp_path / "run"
    )
    run(create(config))
    (path,) = (tmp_path / "run" / "trials").glob("hyplora-*/model.safetensors")
    with safe_open(str(path), framework="pt") as file:
        names = list(file.keys())
    assert names
    assert all("hyplora_" in name for name in names)


def test_every_method_starts_as_the_base_model() -> None:
    """All but prefixes, which add tokens; and each trains something."""
    recipe = prepared(dataclasses.replace(SMALL, methods=EVERY, dropout=0.0))
    trials = first_trials(recipe)
    batch = torch.tensor([[2, 5, 9, 12, 7]])
    with torch.no_grad():
        expected = recipe.base.load(torch.float32)(batch).logits
        for method in EVERY:
            model = recipe.build(trials[method]).eval()
            assert any(p.requires_grad for p in model.parameters()), method
            if method != "prefix":
                torch.testing.assert_close(model(input_ids=batch), expected, msg=method)


def test_methods_train_about_as_many_numbers_as_lora() -> None:
    recipe = prepared(dataclasses.replace(SMALL, methods=EVERY, targets=("all-linear",), rank=8))
    trials = first_trials(recipe)
    count = {
        method: sum(p.numel() for p in recipe.build(trials[method]).parameters() if p.requires_grad)
        for method in (
            "lora",
            "hyplora",
            "rslora",
            "hyplora-residual",
            "series",
            "parallel",
            "prefix",
        )
    }
    assert count["hyplora"] == count["rslora"] == count["hyplora-residual"] == count["lora"]
    assert count["parallel"] == count["lora"]
    for method in ("series", "prefix"):
        assert count[method] == pytest.approx(count["lora"], rel=0.2), method


def test_equal_alpha_and_a_sweep_of_curvatures() -> None:
    config = dataclasses.replace(
        SMALL, methods=("hyplora", "hyplora-boost", "full"), curvatures=(0.1, 1.0, 2.0), alpha=4.0
    )
    found = {c.model: c for c in HypLoraRecipe(config).contestants()}
    assert list(found) == [
        "lora", "hyplora-c0.1", "hyplora", "hyplora-c2.0", "hyplora-boost", "full",
    ]  # fmt: skip
    assert {c.settings["alpha"] for c in found.values()} == {4.0}
    assert found["hyplora-c0.1"].settings["hyplora"]["curvature"] == 0.1
    rates = [c["learning_rate"] for c in found["full"].choices]
    assert rates == pytest.approx([0.001, 0.003])
    published = dataclasses.replace(
        SMALL, preset="published-gemma3-4b", model="tiny", alpha=None, prompt="plain"
    )
    found = {c.model: c for c in HypLoraRecipe(published).contestants()}
    assert found["lora"].settings["alpha"] == 64
    assert found["hyplora-learned"].settings["alpha"] == 32


def test_the_curvature_from_data_is_within_bounds() -> None:
    recipe = prepared(dataclasses.replace(SMALL, methods=("hyplora-auto",)))
    model = recipe.build(first_trials(recipe)["hyplora-auto"])
    assert isinstance(model, FineTuned)
    assert 0.01 <= model.model.peft_config["default"].curvature <= 10


def test_a_model_in_a_folder_and_questions_in_files(tmp_path: Path) -> None:
    """Any checkpoint, two tests of different formats; a question to train on is not tested."""
    tiny = prepared(SMALL).base
    assert tiny.place is not None
    gsm8k = tmp_path / "learn.jsonl"
    records = [
        {"question": f"Ada has {n} eggs. Ada finds 2 eggs. How many?", "answer": f"#### {n + 2}"}
        for n in range(40)
    ]
    gsm8k.write_text("\n".join(map(json.dumps, records)))
    first, second = tmp_path / "first.jsonl", tmp_path / "second.json"
    tested = [records[0], {"question": "Ada has 3 nuts?", "answer": "#### 3"}]
    first.write_text("\n".join(map(json.dumps, tested)))
    second.write_text(json.dumps([{"original_text": "Ben has 5 toys?", "ans": "5"}]))
    config = dataclasses.replace(
        SMALL,
        model=tiny.place,
        pretraining_steps=HypLoraRunConfig.pretraining_steps,
        data=str(gsm8k),
        tests=(first, second),
        methods=("lora",),
        learning_rates=(0.01,),
        seeds=1,
        out=tmp_path / "run",
    )
    outcome = run(create(config))
    assert outcome.document["data"]["tests"] == {"first": 1, "second": 1}
    metrics = outcome.standings[0].results[0].metrics
    assert {"accuracy in first", "accuracy in second"} <= metrics.keys()
    assert "answer_loss" in metrics  # of the one test that has solutions


def test_a_taxonomy(tmp_path: Path) -> None:
    config = dataclasses.replace(
        SMALL,
        task="taxonomy",
        data="carnivores",
        methods=("lora",),
        learning_rates=(0.01,),
        seeds=1,
        out=tmp_path / "run",
    )
    outcome = run(create(config))
    assert outcome.document["data"]["name"] == "carnivores"
    assert "accuracy" in outcome.standings[0].results[0].metrics


def test_processes_share_a_run(tmp_path: Path) -> None:
    """Two processes: one trains the small model, both fine-tune."""
    import os

    arguments = [
        "--methods", "hyplora", "--rank", "2", "--epochs", "0.5", "--batch", "8",
        "--learning-rates", "0.01", "--train-size", "40", "--test-size", "4", "--new-tokens", "8",
        "--pretraining-steps", "2", "--seeds", "1", "--device", "cpu",
        "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "-m", "beltrami", "run", "hyplora", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "BELTRAMI_CACHE": str(tmp_path / "cache")},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    document = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert document["environment"]["processes"] == 2
    assert {t["model"] for t in document["trials"]} == {"lora", "hyplora"}
