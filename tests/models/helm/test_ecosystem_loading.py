"""What lies in a saved folder, where its weights are put, and pipelines on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

from beltrami.models.helm import HelmForSequenceClassification
from tests.models.helm import small
from tests.models.helm.test_ecosystem_trainer import tokenizer

SPREAD: dict[str, Any] = {
    "model.embed_tokens": "cpu",
    "model.layers.0": "cpu",
    "model.layers.1": "disk",
    "model.norm": "cpu",
    "model.rotary_emb": "cpu",
    "word_scores": "cpu",
    "lm_head": "disk",
}
CURVATURES = {"model.curvature": "disk", "model.head_curvature": "cpu"}
WHOLE: dict[str, Any] = {"model": "disk", "word_scores": "disk", "lm_head": "disk"}


@pytest.mark.parametrize("kind", small.KINDS)
def test_nothing_is_pickled(kind: str, tmp_path: Path) -> None:
    small.model(**small.KINDS[kind]).save_pretrained(tmp_path, max_shard_size="20KB")
    names = {path.name.partition("-0")[0] for path in tmp_path.iterdir()}
    assert names == {
        "model", "model.safetensors.index.json", "config.json", "generation_config.json",
        "modeling_helm.py", "README.md",
    }  # fmt: skip
    assert {path.suffix for path in tmp_path.iterdir()} == {".safetensors", ".json", ".py", ".md"}


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        *((kind, place) for kind in ("mlr", "distance", "flat") for place in ("spread", "disk")),
        ("tied", "disk"),  # accelerate does not tie a matrix in memory and one on disk
        ("mlr", "auto"),
    ],
)
def test_weights_may_lie_anywhere(kind: str, place: str, tmp_path: Path) -> None:
    model = small.model(**small.KINDS[kind])
    model.save_pretrained(tmp_path)
    spread = SPREAD if kind == "flat" else {**SPREAD, **CURVATURES}
    maps = {"auto": "auto", "spread": spread, "disk": WHOLE}
    loaded = AutoModelForCausalLM.from_pretrained(
        tmp_path, device_map=maps[place], offload_folder=tmp_path / "offload"
    )
    torch.testing.assert_close(small.logits(loaded), small.logits(model))
    ids = small.tokens()
    with torch.no_grad():
        found, expected = (m(input_ids=ids, labels=ids).loss for m in (loaded, model))
        torch.testing.assert_close(found, expected)
        loaded.config.fused_loss = True
        torch.testing.assert_close(loaded(input_ids=ids, labels=ids).loss, expected)


def test_rows_of_hyperplanes_may_lie_anywhere(tmp_path: Path) -> None:
    model = small.model(time_columns="hyperplane")
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(
        tmp_path, device_map=WHOLE, offload_folder=tmp_path / "offload"
    )
    torch.testing.assert_close(small.logits(loaded), small.logits(model))


def test_a_tokenizer_lies_beside_the_model_and_pipelines_find_both(tmp_path: Path) -> None:
    model = small.model()
    model.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)("w1 w2")["input_ids"] == [4, 5]
    generate = pipeline("text-generation", model=str(tmp_path), device="cpu")
    text = generate("w1 w2 w3", max_new_tokens=4, do_sample=False)[0]["generated_text"]
    assert text.startswith("w1 w2 w3")
    assert len(text.split()) > 3


def test_a_classifier_in_a_pipeline(tmp_path: Path) -> None:
    classifier = HelmForSequenceClassification(small.config(num_labels=3))
    classifier.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    classify = pipeline("text-classification", model=str(tmp_path), device="cpu", top_k=None)
    scores = classify(["w1 w2 w3"])[0]
    assert {row["label"] for row in scores} == {"LABEL_0", "LABEL_1", "LABEL_2"}
    assert sum(row["score"] for row in scores) == pytest.approx(1, abs=1e-5)
