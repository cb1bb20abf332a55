"""Saving, loading and copying: what was there is there again, and nothing else is touched."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
)

from beltrami.geometry import Curvature
from beltrami.models.helm import HelmForCausalLM, HelmModel
from tests.models.helm.variants import (
    build,
    every_variant,
    logits,
    some_variants,
    tokens,
    trained,
)

IN_FLOAT32 = ("raw", "log_scale", "log_weight", "log_temperature")


def same_parameters(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(p, theirs[n]) for n, p in ours.items())


@every_variant
def test_a_saved_model_comes_back(variant: str, tmp_path: Path) -> None:
    model = trained(variant).float()
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(again, HelmForCausalLM)
    assert same_parameters(again, model)
    assert torch.equal(logits(again, tokens()), logits(model, tokens()))
    assert again.config.to_diff_dict() == model.config.to_diff_dict()
    alone = AutoModel.from_pretrained(tmp_path)
    assert isinstance(alone, HelmModel)
    assert same_parameters(alone, model.model)


@some_variants
def test_shards(variant: str, tmp_path: Path) -> None:
    model = trained(variant).float()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert same_parameters(AutoModelForCausalLM.from_pretrained(tmp_path), model)


@every_variant
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_what_must_be_exact(
    variant: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = trained(variant).float()
    model.save_pretrained(tmp_path)
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    expected = model.state_dict()
    for name, p in half.state_dict().items():
        exact = name.split(".")[-1] in IN_FLOAT32
        assert p.dtype == (torch.float32 if exact else dtype), name
        assert not exact or torch.equal(p, expected[name])
    assert half.config.dtype == dtype
    out = logits(half, tokens())
    exact = logits(model, tokens())
    assert (out.float() - exact).abs().mean() < 0.1 * exact.std()
    generated = half.generate(tokens(1, 4), max_new_tokens=4, do_sample=False)
    assert generated.shape == (1, 8)


@some_variants
def test_bfloat16_saved_and_loaded_again(variant: str, tmp_path: Path) -> None:
    trained(variant).float().save_pretrained(tmp_path / "a")
    half = AutoModelForCausalLM.from_pretrained(tmp_path / "a", dtype=torch.bfloat16)
    half.save_pretrained(tmp_path / "b")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "b", dtype="auto")
    assert same_parameters(again, half)


@every_variant
def test_loading_through_the_meta_device(variant: str, tmp_path: Path) -> None:
    model = trained(variant).float()
    model.save_pretrained(tmp_path)
    mapped = AutoModelForCausalLM.from_pretrained(tmp_path, device_map="cpu")
    assert same_parameters(mapped, model)
    assert torch.equal(logits(mapped, tokens()), logits(model, tokens()))
    with torch.device("meta"):
        empty = HelmForCausalLM(model.config)
    assert all(p.device.type == "meta" for p in empty.parameters())
    assert [p.shape for p in empty.parameters()] == [p.shape for p in model.parameters()]


@every_variant
def test_only_what_is_missing_is_drawn(variant: str, tmp_path: Path) -> None:
    """Of every kind of parameter one is removed, in turn; all others come back as they were."""
    model = trained(variant).float()
    model.save_pretrained(tmp_path)
    whole = load_file(tmp_path / "model.safetensors")
    kinds = {
        name.split(".")[-1] if "_proj" not in name else name.split(".")[-2]: name for name in whole
    }
    for removed in [*kinds.values(), "model.embed_tokens.weight"]:
        rest = {n: p for n, p in whole.items() if n != removed}
        save_file(rest, tmp_path / "model.safetensors", metadata={"format": "pt"})
        torch.manual_seed(1)
        loaded, report = HelmForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
        assert set(report["missing_keys"]) <= {removed, "lm_head.weight"}
        state = loaded.state_dict()
        for name, p in rest.items():
            assert torch.equal(state[name], p), (removed, name)
        drawn = state[removed]
        assert drawn.isfinite().all()
        assert not torch.equal(drawn, whole[removed])
        if removed.endswith(("raw", "_time", "_radius", "offset")):
            assert (drawn == 0).all()


def test_what_is_drawn_is_what_a_new_model_has(tmp_path: Path) -> None:
    """Points have the length they start with, matrices their standard deviation."""
    model = build("distance", vocab_size=400).float()
    model.save_pretrained(tmp_path)
    whole = load_file(tmp_path / "model.safetensors")
    names = ["model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.up_proj.weight"]
    rest = {n: p for n, p in whole.items() if n not in names}
    save_file(rest, tmp_path / "model.safetensors", metadata={"format": "pt"})
    torch.manual_seed(1)
    loaded = HelmForCausalLM.from_pretrained(tmp_path).state_dict()
    for name in names:
        assert loaded[name].std().item() == pytest.approx(whole[name].std().item(), rel=0.05)


# --- without importing beltrami -------------------------------------------------------------------

PROGRAM = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
assert "beltrami" not in sys.modules
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
out = model.generate(torch.tensor([[3, 4, 5]]), max_new_tokens=4, do_sample=False)
print(out.tolist())
model.save_pretrained(sys.argv[2])
kind = AutoModelForSequenceClassification
assert kind.from_pretrained(sys.argv[2], trust_remote_code=True, num_labels=3).num_labels == 3
"""


@pytest.mark.slow
def test_a_program_that_never_imports_beltrami(tmp_path: Path) -> None:
    model = trained().float()
    model.save_pretrained(tmp_path / "model")
    expected = model.generate(torch.tensor([[3, 4, 5]]), max_new_tokens=4, do_sample=False)
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    arguments = [sys.executable, "-c", PROGRAM, str(tmp_path / "model"), str(tmp_path / "again")]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == expected.tolist()
    assert {f.name for f in (tmp_path / "again").iterdir()} == {
        f.name for f in (tmp_path / "model").iterdir()
    }
    stub = (tmp_path / "again" / "modeling_helm.py").read_text()
    assert stub == (tmp_path / "model" / "modeling_helm.py").read_text()
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert config["auto_map"]["AutoModelForCausalLM"] == "modeling_helm.HelmForCausalLM"


def test_saving_writes_no_copies_of_sources(tmp_path: Path) -> None:
    model = trained().float()
    for _ in range(2):  # and not the second time either
        model.save_pretrained(tmp_path)
        model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert {f.name for f in tmp_path.iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "modeling_helm.py",
        "README.md",
    }  # fmt: skip
    assert isinstance(AutoConfig.from_pretrained(tmp_path), type(model.config))


def test_the_card_is_written_once(tmp_path: Path) -> None:
    model = trained("boost").float()
    model.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "| residual | boost |" in card
    assert f"{model.num_parameters():,}" in card
    (tmp_path / "README.md").write_text("mine")
    model.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_nothing_but_the_main_process_writes(tmp_path: Path) -> None:
    build().save_pretrained(tmp_path, is_main_process=False)
    assert not (tmp_path / "README.md").exists()
    assert not (tmp_path / "modeling_helm.py").exists()


# --- other ways -----------------------------------------------------------------------------------


@every_variant
def test_copies(variant: str) -> None:
    model = trained(variant)
    expected = logits(model, tokens())
    other, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    for again in (other, pickled):
        assert torch.equal(logits(again, tokens()), expected)
        curvatures = {id(m) for m in again.modules() if isinstance(m, Curvature)}
        manifolds = [
            layer.manifold for layer in again.model.layers if hasattr(layer.manifold, "curvature")
        ]
        assert all(id(m.curvature) in curvatures for m in manifolds)


def test_the_other_heads_load_the_decoder(tmp_path: Path) -> None:
    model = trained().float()
    model.save_pretrained(tmp_path)
    classes = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    assert same_parameters(classes.model, model.model)
    classes.save_pretrained(tmp_path / "classes")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "classes")
    assert same_parameters(again, classes)
    assert again.config.num_labels == 3


def test_to_another_dtype_and_back() -> None:
    model = trained().float()
    expected = logits(model, tokens())
    assert (logits(model.double(), tokens()).float() - expected).abs().max() < 1e-4
    assert logits(model.bfloat16(), tokens()).isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("lacking", ["transformers", "transformers.initialization"])
def test_without_transformers_the_error_says_what_to_install(lacking: str) -> None:
    code = f"import sys; sys.modules[{lacking!r}] = None; import beltrami.models.helm"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: beltrami.models.helm needs transformers 5.5 or later: pip" in run.stderr
