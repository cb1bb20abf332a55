from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from beltrami.data import load_hierarchy
from beltrami.data.corpus import IGNORE, bits_per_byte
from beltrami.recipes.helm import measures
from beltrami.recipes.helm.config import ABLATIONS, HelmRunConfig
from beltrami.recipes.helm.measures import (
    equal_time,
    frequency_deciles,
    step_seconds,
    wordnet_levels,
)
from beltrami.recipes.helm.recipe import HelmRecipe
from beltrami.recipes.helm.sizes import matched, parameter_counts
from beltrami.recipes.helm.training import batches, mean_loss, rate_at, summed_loss
from beltrami.recipes.registry import create
from beltrami.recipes.runner import run
from beltrami.train.processes import Processes
from tests.recipes.tiny import Interrupter, Witness

TIMED = {"tokens_per_second"}
LABEL = "<b>bold</b> & co"
TINY: dict[str, Any] = {
    "device": "cpu",
    "preset": "quick",
    "vocab_size": 280,
    "layers": 1,
    "width": 64,
    "heads": 1,
    "mlp": 512,
    "length": 32,
    "batch": 4,
    "tokens": 512,
    "held_out": 200,
    "learning_rates": (0.004, 0.008),
    "seeds": 2,
}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path / "cache"))


@pytest.fixture(name="data")
def fixture_data(tmp_path: Path) -> str:
    """Documents of several lengths, with what a page must escape."""
    path = tmp_path / "te<xt.jsonl"
    with path.open("w") as file:
        for i in range(60):
            text = f"{LABEL} the {'quick ' * (i % 5)}fox é {i} jumps over dog {i * i}. " * (
                1 + i % 3
            )
            file.write(json.dumps({"text": text}) + "\n")
    return str(path)


def tiny(data: str, **options: Any) -> HelmRecipe:
    recipe = create(HelmRunConfig(data=data, **{**TINY, **options}))
    assert isinstance(recipe, HelmRecipe)
    return recipe


def test_a_run_from_the_command_line(data: str, tmp_path: Path) -> None:
    """Through the CLI to a page, and to models that transformers loads and that give its losses."""
    out = tmp_path / "run"
    words = [f"--{k.replace('_', '-')}={v}" for k, v in TINY.items() if not isinstance(v, tuple)]
    command = ["run", "helm", *words, f"--data={data}", "--ablation", f"--out={out}", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "beltrami", *command, "--learning-rates", "0.008"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    models = [arm["model"] for arm in document["summary"]]
    assert models == ["lorentz", *ABLATIONS, "euclidean"]
    assert {trial["seed"] for trial in document["trials"]} == {0, 1}
    values = document["summary"][0]["metrics"]
    assert values["test_loss"]["difference"]["half_width"] > 0
    assert document["findings"]["equal_time"]["difference"]["mean"] is not None

    page = (out / "report.html").read_text()
    for text in (
        "the mean difference over 2 paired seeds, HELM minus twin, is",
        "Validation loss by tokens", "by time",
        "Curvature over training", "Residual weights", "By depth", "By frequency", "Samples",
        "Without embeddings", "Commit", "beltrami run helm", "What each part does", "Machine",
    ):  # fmt: skip
        assert text in page, text
    assert "&lt;b&gt;" in page
    assert "<b>bold" not in page
    assert "te<xt" not in page

    from transformers import AutoModelForCausalLM, AutoTokenizer

    import beltrami.models.helm  # noqa: F401

    folder = out / "models" / "lorentz"
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    best = min(
        (trial for trial in document["trials"] if trial["model"] == "lorentz"),
        key=lambda trial: trial["metrics"]["validation_loss"],
    )
    recipe = tiny(data)
    trial = recipe.arms()[0].trial(0, {})
    rows = recipe.text.held_out_rows("test", 32, True)
    loss, _ = mean_loss(model, trial.settings, rows, Processes(torch.device("cpu")))
    assert loss == pytest.approx(best["metrics"]["test_loss"], rel=1e-5)
    prompt = tokenizer("the fox", return_tensors="pt")
    prompt.pop("token_type_ids", None)
    assert model.generate(**prompt, max_new_tokens=3).shape[1] > prompt["input_ids"].shape[1]
    assert model(**prompt).logits is not None


def test_an_interrupted_run_ends_as_it_would_have(data: str, tmp_path: Path) -> None:
    """Bit for bit, apart from what is measured in seconds."""
    config = HelmRunConfig(data=data, **{**TINY, "seeds": 1, "checkpoint_seconds": 0.0})
    whole = run(create(dataclasses.replace(config, out=tmp_path / "whole")))
    broken = dataclasses.replace(config, out=tmp_path / "broken")
    with pytest.raises(KeyboardInterrupt):
        run(create(broken), Interrupter(6))  # training 2, step 2, which is not saved yet
    witness = Witness()
    resumed = run(create(dataclasses.replace(broken, resume=True)), witness)
    assert [done for _, done in witness.began] == [1, 0, 0]  # the second training went on
    for a, b in zip(whole.document["trials"], resumed.document["trials"], strict=True):
        assert a["choice"] == b["choice"]
        for key in a["metrics"].keys() - TIMED:
            assert a["metrics"][key] == b["metrics"][key], key


def test_both_arms_see_the_same_tokens(data: str) -> None:
    recipe = tiny(data, tokens=4096)  # several epochs
    curved, twin = (arm.trial(1, arm.choices[0]) for arm in recipe.arms())
    ours, theirs = (list(batches(recipe.text, trial, 0)) for trial in (curved, twin))
    assert len(ours) == len(theirs) == 4096 // 128
    for a, b in zip(ours, theirs, strict=True):
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
    late = list(batches(recipe.text, curved, 20))
    assert torch.equal(late[0]["input_ids"], ours[20]["input_ids"])
    other = next(batches(recipe.text, recipe.arms()[0].trial(0, {}), 0))
    assert not torch.equal(other["input_ids"], ours[0]["input_ids"])


def test_no_document_is_in_two_parts(data: str) -> None:
    text = tiny(data).text
    parts = [set(getattr(text, part).digests) for part in ("train", "validation", "test")]
    assert all(parts)
    assert len(set.union(*parts)) == sum(map(len, parts))


def test_twins_have_as_many_parameters(data: str) -> None:
    counts = tiny(data, ablation=True).parameters
    assert len(counts) == 5
    total, body = counts["euclidean"]
    for ours, inner in counts.values():
        assert ours == pytest.approx(total, rel=0.01)
        assert inner == pytest.approx(body, rel=0.01)


def test_the_mlp_makes_up_for_curved_heads() -> None:
    twin = {
        "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 2,
        "num_attention_heads": 8, "geometry": "euclidean",
    }  # fmt: skip
    curved = matched({**twin, "geometry": "lorentz"}, twin)
    assert curved["intermediate_size"] % 16 == 0
    assert curved["intermediate_size"] > 1376
    assert parameter_counts(curved)[1] == pytest.approx(parameter_counts(twin)[1], rel=0.01)
    small = {**twin, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32}
    with pytest.raises(ValueError, match=r"HELM .* has [\d,]+ parameters .* its twin .* [\d,]+ "):
        matched({**small, "geometry": "lorentz"}, small)


@pytest.mark.parametrize("document_masks", [True, False])
def test_bits_per_byte_by_brute_force(data: str, document_masks: bool) -> None:
    """Each row alone, position by position, with the bytes of each predicted token's text."""
    recipe = tiny(data, document_masks=document_masks)
    trial, text = recipe.arms()[0].trial(0, {}), recipe.text
    model: Any = recipe.build(trial).eval()
    rows = text.held_out_rows("test", 32, document_masks)
    nats, n_bytes, predicted = 0.0, 0, 0
    specials = {text.train.end_id, text.train.pad_id}
    for i in range(len(rows)):
        row = rows[i]
        starts = [t for t in range(32) if t == 0 or row["position_ids"][t] == 0]
        pieces = zip(starts, [*starts[1:], 32], strict=True)
        for start, end in pieces:  # each document by itself
            ids = row["input_ids"][start:end]
            with torch.no_grad():
                logits = model(input_ids=ids[None], use_cache=False).logits[0].double()
            for t in range(1, len(ids)):
                if row["labels"][start + t] == IGNORE:
                    continue
                token = int(ids[t])
                nats -= float(logits[t - 1].log_softmax(0)[token])
                piece = text.tokenizer.convert_ids_to_tokens(token)
                n_bytes += 0 if token in specials else len(piece)  # a byte is a character
                predicted += 1
    loss, count = mean_loss(model, trial.settings, rows, Processes(torch.device("cpu")))
    assert count == predicted
    assert rows.target_bytes() == n_bytes
    expected = nats / (n_bytes * 0.6931471805599453)
    assert bits_per_byte(loss * count, n_bytes) == pytest.approx(expected, rel=1e-5)


def test_the_rate_rises_and_falls_to_a_tenth() -> None:
    shares = [rate_at(step, 100) for step in range(100)]
    assert shares[0] == pytest.approx(0.2)
    assert max(shares) == shares[4] == shares[5] == 1.0
    assert shares[-1] == pytest.approx(0.1, abs=1e-3)


def test_the_slower_model_is_compared_at_the_faster_ones_time(data: str) -> None:
    from beltrami.recipes.results import TrialResult

    def result(unit: float, losses: list[float]) -> TrialResult:
        history = [
            {"step": step, "seconds": unit * step, "validation loss": loss}
            for step, loss in enumerate(losses, start=1)
        ]
        history[1]["seconds"] += 50 * unit  # a pause, in one step of many
        return TrialResult(None, {}, {}, history, 1, 1.0)  # type: ignore[arg-type]

    fast, slow = result(1.0, [9, 8, 7, 6, 5, 4]), result(2.0, [9, 8, 7, 6, 5, 4])
    assert step_seconds(slow.history) == 2.0
    at_time = equal_time([slow, slow], [fast, fast])
    assert at_time["loss"]["mean"] == 7.0  # after 3 of its steps
    assert at_time["twin"]["mean"] == 4.0
    assert at_time["difference"]["mean"] == 3.0


def test_deciles_leave_out_tokens_that_do_not_occur() -> None:
    counts = torch.tensor([0, 5, 0, *range(1, 21)])
    groups = frequency_deciles(counts)
    assert list(groups) == [float(i) for i in range(1, 11)]
    assert sum(map(len, groups.values())) == 21
    assert counts[groups[1.0]].max() < counts[groups[10.0]].min()


def test_nouns_have_their_level_in_wordnet(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tiny(data).text
    assert wordnet_levels(text) is None  # not installed
    (tmp_path / "nouns.tsv").write_text(
        "".join(f"{c}.n.01\tentity.n.01\n" for c in "fox") + "q.n.01\tf.n.01\n"
    )
    nouns = load_hierarchy(tmp_path / "nouns.tsv")
    monkeypatch.setattr(measures, "load_hierarchy", lambda name: nouns)
    levels = wordnet_levels(text)
    assert levels is not None
    assert list(levels) == [1.0]  # one token is too few for a mean
    words = {str(text.tokenizer.decode([i])).strip().lower() for i in levels[1.0].tolist()}
    assert words == {"f", "o", "x"}


def test_processes_share_the_loss_of_a_batch(data: str) -> None:
    recipe = tiny(data, batch=3)
    trial, cpu = recipe.arms()[0].trial(0, {}), torch.device("cpu")
    model, batch = recipe.build(trial), next(batches(recipe.text, trial, 0))
    shares = [summed_loss(model, trial.settings, batch, Processes(cpu, r, 4)) for r in range(4)]
    torch.testing.assert_close(
        sum(shares), summed_loss(model, trial.settings, batch, Processes(cpu))
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "huge"}, "--preset must be one of None, 'quick', 'gpu'; got 'huge'"),
        ({"tokens": 100}, "--tokens 100 is less than one step of 4 rows of 32 tokens"),
        ({"heads": 3}, "--heads 3 must divide --width 64"),
        ({"tokenizer": "folder"}, "--vocab-size 280 .* --tokenizer folder"),
        ({"mlp": 16}, "parameters .* its twin"),
        ({"batch": 1000, "tokens": 10**6}, "fewer than one step of 1000 rows of 32"),
        ({"learning_rates": (0.1, 0.1)}, "--learning-rates"),
    ],
)
def test_bad_input(data: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(data, **options)


def test_a_text_without_documents(tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.write_text("\n\n")
    with pytest.raises(ValueError, match="a text without documents"):
        tiny(str(path))
    with pytest.raises(ValueError, match="is not there"):
        tiny(str(tmp_path / "missing.txt"))


def test_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "beltrami", "run", "helm", "--help"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for word in ("--preset", "--ablation", "--no-document-masks", "Example: beltrami run helm"):
        assert word in done.stdout


def test_ablations_take_helms_rate(data: str, tmp_path: Path) -> None:
    """One training each, and the same with trials side by side."""
    options = {**TINY, "tokens": 256, "ablation": True, "seeds": 1}
    config = HelmRunConfig(data=data, **options, out=tmp_path / "one")
    one = run(create(config), witness := Witness())
    assert witness.planned == len(witness.results) == 2 * 2 + 3
    rates = {arm.arm.model: arm.choice["learning_rate"] for arm in one.arm_results}
    assert {rates[name] for name in ABLATIONS} == {rates["lorentz"]}
    two = run(create(dataclasses.replace(config, jobs=2, out=tmp_path / "two")))
    for a, b in zip(one.document["trials"], two.document["trials"], strict=True):
        assert a["choice"] == b["choice"]
        assert a["metrics"]["test_loss"] == pytest.approx(b["metrics"]["test_loss"], rel=1e-5)
