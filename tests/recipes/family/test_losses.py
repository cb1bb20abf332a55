"""Losses of tiny models, beside sums by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from beltrami.models.pretrained.opening import load_causal
from beltrami.recipes.family import losses as module
from beltrami.recipes.family.losses import text_loss
from tests.recipes.family import tiny

pytest.importorskip("transformers", reason='needs pip install "beltrami[llm]"')

MAKERS = {"llama": tiny.llama, "gpt2": tiny.gpt2, "opt": tiny.opt}


@pytest.fixture(scope="module", params=list(MAKERS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MAKERS[request.param](tmp_path_factory.mktemp(request.param))


def by_hand(folder: Path, texts: list[str]) -> tuple[float, int]:
    """Σ −ln p over all predicted tokens, one text at a time, and how many there are."""
    model, tokenizer = load_causal(str(folder))
    total, count = 0.0, 0
    for text in texts:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            scores = model(input_ids=ids).logits[0].double()
        for t in range(1, ids.shape[1]):
            total -= float(scores[t - 1].log_softmax(-1)[ids[0, t]])
            count += 1
    return total, count


def test_every_prediction_counts_once(folder: Path) -> None:
    texts = tiny.sentences(12)
    total, count = by_hand(folder, texts)
    found = text_loss(*load_causal(str(folder)), texts)
    assert found.predicted == count
    assert found.loss == pytest.approx(total / count, rel=1e-5)
    # Not the mean over texts, nor one weighted by T.
    parts = [by_hand(folder, [text]) for text in texts]
    weighted = sum((n + 1) * s / n for s, n in parts) / sum(n + 1 for _, n in parts)
    assert abs(weighted - total / count) > 1e-4


@pytest.mark.parametrize("batch", [1, 2, 5, 64])
def test_batches_do_not_matter(folder: Path, batch: int) -> None:
    texts = tiny.sentences(17)
    loaded = load_causal(str(folder))
    alone = text_loss(*loaded, texts, batch=1)
    together = text_loss(*loaded, texts, batch=batch)
    assert together.loss == pytest.approx(alone.loss, rel=1e-6)
    assert together.predicted == alone.predicted


def test_long_texts_are_not_read_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_causal(str(folder))
    expected = text_loss(*loaded, tiny.sentences(9)).loss
    monkeypatch.setattr(module, "TOKENS_AT_ONCE", 20)
    monkeypatch.setattr(module, "_SCORED_AT_ONCE", 3 * tiny.VOCABULARY)
    assert text_loss(*loaded, tiny.sentences(9)).loss == pytest.approx(expected, rel=1e-6)


def test_texts_without_a_prediction_are_counted(folder: Path) -> None:
    loaded = load_causal(str(folder))
    found = text_loss(*loaded, ["", "Tom", "Tom has", "   ", "two red"])
    assert (found.texts, found.skipped, found.predicted) == (2, 3, 2)
    with pytest.raises(ValueError, match="none of 2 texts has two tokens"):
        text_loss(*loaded, ["", "Tom"])


def test_long_texts_are_cut(folder: Path) -> None:
    loaded = load_causal(str(folder))
    text = " ".join(tiny.WORDS[:6])
    found = text_loss(*loaded, [text, "Tom has two"], longest=4)
    assert (found.cut, found.predicted, found.longest) == (1, 5, 4)
    expected = text_loss(*loaded, [" ".join(tiny.WORDS[:4]), "Tom has two"])
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)


def test_a_text_ends_where_the_model_does(tmp_path: Path) -> None:
    found = text_loss(*load_causal(str(tiny.gpt2(tmp_path, positions=8))), ["Tom has " * 20])
    assert (found.longest, found.cut, found.predicted) == (8, 1, 7)


def test_a_model_that_knows_nothing_has_the_loss_of_a_guess(tmp_path: Path) -> None:
    model, tokenizer = load_causal(str(tiny.llama(tmp_path)))
    torch.nn.init.zeros_(model.lm_head.weight)
    found = text_loss(model, tokenizer, tiny.sentences(5))
    assert found.loss == pytest.approx(math.log(tiny.VOCABULARY), rel=1e-6)
    assert found.as_dict()["texts"] == 5


def test_weights_that_are_not_finite(tmp_path: Path) -> None:
    model, tokenizer = load_causal(str(tiny.llama(tmp_path)))
    torch.nn.init.constant_(model.lm_head.weight, math.nan)
    with pytest.raises(ValueError, match="the loss is nan"):
        text_loss(model, tokenizer, ["Tom has"])


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    shares: list[float] = []
    loaded = load_causal(str(tiny.llama(tmp_path)))
    text_loss(*loaded, tiny.sentences(9), batch=2, tick=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.parametrize("options", [{"longest": 1}, {"batch": 0}])
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, int]) -> None:
    loaded = load_causal(str(tiny.llama(tmp_path)))
    with pytest.raises(ValueError, match="longest must be at least 2 and batch 1"):
        text_loss(*loaded, ["Tom has"], **options)


def test_models_that_see_what_they_predict_are_refused(tmp_path: Path) -> None:
    """By what they do: both are of the same class."""
    texts = tiny.sentences(4)
    causal = tiny.bert(tmp_path / "causal", causal=True)
    assert text_loss(*load_causal(str(causal)), texts).loss > 0
    both_ways = tiny.bert(tmp_path / "both-ways", causal=False)
    with pytest.raises(
        ValueError, match=r"BertLMHeadModel is not a causal .* change with the tokens"
    ):
        text_loss(*load_causal(str(both_ways)), texts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_makes_no_model_see_ahead(folder: Path, dtype: torch.dtype) -> None:
    model, tokenizer = load_causal(str(folder), dtype)
    plain = model.forward

    def noisy(**options: Any) -> Any:
        found = plain(**options)
        found.logits *= 1 + torch.finfo(dtype).eps / 4 * torch.rand_like(found.logits)
        return found

    model.forward = noisy
    assert text_loss(model, tokenizer, tiny.sentences(3)).loss > 0
