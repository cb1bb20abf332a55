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
from beltrami.recipes.recipe import Trial
from beltrami.recipes.registry import create
from beltrami.recipes.runner import run
from beltrami.train.progress import ProgressListener
from tests.recipes.hyplora.small import SMALL, _own_cache, fixture_model_cache  # noqa: F401
from tests.recipes.interruption import run_interrupted

EVERY = (
    "full", "prefix", "series", "parallel", "lora-gained", "rslora", "dora", *HYPLORA,
)  # fmt: skip


def prepared(config: HypLoraRunConfig) -> HypLoraRecipe:
    recipe = HypLoraRecipe(config)
    recipe.prepare(ProgressListener(), torch.device("cpu"))
    return recipe


def first_trials(recipe: HypLoraRecipe) -> dict[str, Trial]:
    return {arm.model: arm.trial(0, arm.choices[0]) for arm in recipe.arms()}


@pytest.mark.slow
def test_an_interrupted_run_ends_as_it_would_have(tmp_path: Path) -> None:
    run_result = run_interrupted(SMALL, tmp_path, training=4, step=3)
    lora, base, learned = run_result.arm_results
    assert [s.arm.model for s in run_result.arm_results] == ["lora", "base", "hyplora-learned"]
    assert lora.arm.twin is None
    assert base.arm.twin == learned.arm.twin == "lora"
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
    found = {c.model: c for c in HypLoraRecipe(config).arms()}
    assert list(found) == [
        "lora", "hyplora-c0.1", "hyplora", "hyplora-c2.0", "hyplora-boost", "full",
    ]  # fmt: skip
    assert {c.settings.alpha for c in found.values()} == {4.0}
    assert found["hyplora-c0.1"].settings.hyplora["curvature"] == 0.1
    rates = [c["learning_rate"] for c in found["full"].choices]
    assert rates == pytest.approx([0.001, 0.003])
    published = dataclasses.replace(
        SMALL, preset="published-gemma3-4b", model="tiny", alpha=None, prompt="plain"
    )
    found = {c.model: c for c in HypLoraRecipe(published).arms()}
    assert found["lora"].settings.alpha == 64
    assert found["hyplora-learned"].settings.alpha == 32


def test_a_constant_gain_is_a_larger_alpha() -> None:
    """That of a token of mean square 1, whose update is small."""
    from beltrami.kernels.hyplora.lorentz_gain import lorentz_gain

    config = dataclasses.replace(SMALL, methods=("lora-gained",), alpha=4.0)
    found = {c.model: c for c in HypLoraRecipe(config).arms()}
    gain = lorentz_gain(torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    assert found["lora-gained"].settings.alpha == pytest.approx(4.0 * gain.item())
    assert found["lora"].settings.alpha == 4.0


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
    run_result = run(create(config))
    assert run_result.document["data"]["tests"] == {"first": 1, "second": 1}
    metrics = run_result.arm_results[0].results[0].metrics
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
    run_result = run(create(config))
    assert run_result.document["data"]["name"] == "carnivores"
    assert "accuracy" in run_result.arm_results[0].results[0].metrics


def test_every_method_trains_and_answers(tmp_path: Path) -> None:
    """One step each, in bfloat16 with beams; all but the model as it is have moved."""
    config = dataclasses.replace(
        SMALL,
        methods=("base", *EVERY),
        learning_rates=(0.01,),
        train_size=8,
        test_size=2,
        new_tokens=4,
        beams=2,
        loss_on="whole",
        precision="bfloat16",
        seeds=1,
        out=tmp_path / "run",
    )
    run_result = run(create(config))
    assert len(run_result.arm_results) == len(EVERY) + 2
    recipe = prepared(config)
    for arm_result in run_result.arm_results:
        (result,) = arm_result.results
        if arm_result.arm.model != "base":
            start = recipe.build(result.trial).state_dict()
            assert start.keys() == result.state.keys()
            moved = [k for k, v in result.state.items() if not torch.equal(v, start[k])]
            assert moved, arm_result.arm.model
            assert all(v.dtype == torch.float32 for v in result.state.values())


@pytest.mark.parametrize("method", ["lora", "hyplora-residual"])
def test_micro_batches_change_nothing(method: str, tmp_path: Path) -> None:
    config = dataclasses.replace(
        SMALL, methods=(method,), learning_rates=(0.01,), dropout=0.0, seeds=1
    )
    losses = []
    for name, size in (("whole", None), ("parts", 3)):
        given = dataclasses.replace(config, micro_batch=size, out=tmp_path / name)
        result = run(create(given)).arm_results[-1].results[0]
        losses.append([result.value("answer_loss"), *(e["loss"] for e in result.history)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_processes_share_a_run(tmp_path: Path) -> None:
    """Two processes: one trains the small model, both fine-tune, and find what one would."""
    import os

    arguments = [
        "--methods", "hyplora-residual", "--rank", "2", "--epochs", "0.5", "--batch", "8",
        "--learning-rates", "0.01", "--train-size", "40", "--test-size", "4", "--new-tokens", "8",
        "--pretraining-steps", "2", "--seeds", "1", "--device", "cpu",
    ]  # fmt: skip
    documents = []
    for processes in (2, 1):
        out = tmp_path / str(processes)
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             "--nproc-per-node", str(processes), "-m", "beltrami", "run", "hyplora", *arguments,
             "--out", str(out)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "BELTRAMI_CACHE": str(tmp_path / "cache")},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        documents.append(json.loads((out / "metrics.json").read_text()))
    assert [d["environment"]["processes"] for d in documents] == [2, 1]
    for two, one in zip(documents[0]["trials"], documents[1]["trials"], strict=True):
        assert two["model"] == one["model"]
        for key in ("answer_loss", "validation_loss", "loss"):
            assert two["metrics"][key] == pytest.approx(one["metrics"][key], rel=1e-4), key


def test_a_gpt2_is_fine_tuned_too(tmp_path: Path) -> None:
    """Conv1D layers, no chat template, a tokenizer without padding of its own."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tiny = prepared(SMALL).base
    shape = GPT2Config(
        vocab_size=len(tiny.tokenizer),
        n_embd=16,
        n_layer=1,
        n_head=2,
        n_positions=256,
        bos_token_id=2,
        eos_token_id=3,
    )
    GPT2LMHeadModel(shape).save_pretrained(tmp_path / "gpt2")
    tiny.tokenizer.save_pretrained(tmp_path / "gpt2")
    config = dataclasses.replace(
        SMALL,
        model=str(tmp_path / "gpt2"),
        pretraining_steps=HypLoraRunConfig.pretraining_steps,
        methods=("hyplora", "series", "parallel", "prefix"),
        targets=("all-linear",),
        learning_rates=(0.01,),
        train_size=8,
        test_size=2,
        seeds=1,
        out=tmp_path / "run",
    )
    run_result = run(create(config))
    count = {s.arm.model: s.results[0].parameters for s in run_result.arm_results}
    assert count["lora"] == count["hyplora"] == count["parallel"] > 0


def test_models_that_cannot_be_used(tmp_path: Path) -> None:
    from transformers import LlamaConfig, T5Config, T5ForConditionalGeneration

    given = {"pretraining_steps": HypLoraRunConfig.pretraining_steps}
    LlamaConfig().save_pretrained(tmp_path / "bare")
    with pytest.raises(ValueError, match="has no weights"):
        HypLoraRecipe(dataclasses.replace(SMALL, model=str(tmp_path / "bare"), **given))
    shape = T5Config(vocab_size=200, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    T5ForConditionalGeneration(shape).save_pretrained(tmp_path / "t5")
    prepared(SMALL).base.tokenizer.save_pretrained(tmp_path / "t5")
    with pytest.raises(ValueError, match="is not a causal language model: t5"):
        HypLoraRecipe(dataclasses.replace(SMALL, model=str(tmp_path / "t5"), **given))


def test_other_weights_or_words_are_another_model(tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    from beltrami.recipes.hyplora.base_model import open_base_model

    base = prepared(SMALL).base
    assert base.place is not None
    given = {"pretraining_steps": HypLoraRunConfig.pretraining_steps}
    found = set()
    for change in ("none", "weights", "words"):
        folder = tmp_path / change
        shutil.copytree(base.place, folder)
        if change == "weights":
            state = load_file(folder / "model.safetensors")
            state["model.norm.weight"] += 1
            save_file(state, folder / "model.safetensors")
        elif change == "words":
            (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
        config = dataclasses.replace(SMALL, model=str(folder), **given)
        found.add(open_base_model(config, HypLoraRecipe(SMALL).questions).fingerprint)
    assert len(found) == 3


def test_generation_is_greedy_whatever_a_model_ships() -> None:
    recipe = prepared(SMALL)
    model = recipe.base.load(torch.float32)
    assert model.generation_config.repetition_penalty in (None, 1.0)
    assert recipe.base.tokenizer.eos_token_id in model.generation_config.eos_token_id


def test_a_model_without_a_residual_norm_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As models are that normalise after their layers."""
    from transformers import Olmo2Config, Olmo2ForCausalLM

    methods = ("lora", "hyplora-residual")
    recipe = HypLoraRecipe(dataclasses.replace(SMALL, methods=methods, out=tmp_path / "run"))
    recipe.prepare(ProgressListener(), torch.device("cpu"))  # the small model has one
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    made = Olmo2Config(vocab_size=50, num_hidden_layers=1, pad_token_id=0, **sizes)
    monkeypatch.setattr(recipe.base, "skeleton", lambda: Olmo2ForCausalLM(made))
    with pytest.raises(ValueError, match="leave it out: --methods lora"):
        recipe.prepare(ProgressListener(), torch.device("cpu"))

    def unable() -> None:
        raise RuntimeError("not without numbers")

    monkeypatch.setattr(recipe.base, "skeleton", unable)
    recipe.prepare(ProgressListener(), torch.device("cpu"))  # nothing is known, and nothing refused
