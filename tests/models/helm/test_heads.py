"""Classification, question answering and pipelines, through the Auto classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    pipeline,
)

from beltrami.models.helm import (
    HelmForQuestionAnswering,
    HelmForSequenceClassification,
    HelmForTokenClassification,
)
from beltrami.optim import create_optimizer
from tests.models.helm.variants import (
    WORDS,
    config,
    left_padded,
    some_variants,
    tokens,
    trained,
)

HEADS: dict[str, tuple[Any, type, dict[str, torch.Tensor], tuple[int, ...]]] = {
    "sequence": (
        AutoModelForSequenceClassification, HelmForSequenceClassification,
        {"labels": torch.tensor([0, 2])}, (2, 3),
    ),
    "token": (
        AutoModelForTokenClassification, HelmForTokenClassification,
        {"labels": torch.arange(18).view(2, 9) % 3}, (2, 9, 3),
    ),
    "question": (
        AutoModelForQuestionAnswering, HelmForQuestionAnswering,
        {"start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 5])}, (2, 9),
    ),
}  # fmt: skip


@some_variants
@pytest.mark.parametrize("head", HEADS)
def test_heads(variant: str, head: str, tmp_path: Path) -> None:
    auto, kind, labels, shape = HEADS[head]
    torch.manual_seed(0)
    model = auto.from_config(config(variant, num_labels=3)).train()
    assert type(model) is kind
    ids = tokens()
    optimizer = create_optimizer(model, "adamw", lr=1e-2)
    losses = []
    for _ in range(3):
        out = model(ids, **labels)
        optimizer.zero_grad()
        out.loss.backward()
        for name, p in model.named_parameters():
            assert p.grad is None or p.grad.isfinite().all(), name
        optimizer.step()
        losses.append(out.loss.item())
    assert losses[-1] < losses[0]
    scores = out.start_logits if head == "question" else out.logits
    assert scores.shape == shape
    model.eval().save_pretrained(tmp_path)
    again = auto.from_pretrained(tmp_path)
    assert torch.equal(again(ids)[0], model(ids)[0])


@some_variants
def test_a_class_is_that_of_the_last_token(variant: str) -> None:
    model = HelmForSequenceClassification(config(variant, num_labels=3)).eval().double()
    ids, mask, positions = left_padded(7, 4)
    with torch.no_grad():
        out = model(ids, attention_mask=mask, position_ids=positions).logits
        alone = model(ids[1:, -4:]).logits
    torch.testing.assert_close(out[1:], alone, rtol=0, atol=1e-9)


def tokenizer() -> PreTrainedTokenizerFast:
    words = {"<pad>": 0, "<s>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, WORDS)}}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", unk_token="<unk>",
        padding_side="left",
    )  # fmt: skip


def test_the_pipeline_for_text(tmp_path: Path) -> None:
    model = trained().float()
    model.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path), PreTrainedTokenizerFast)
    write = pipeline("text-generation", model=str(tmp_path), device="cpu")
    options = {"max_new_tokens": 5, "do_sample": False}
    text = write("w5 w6 w7", return_full_text=False, **options)[0]["generated_text"]
    ids = torch.tensor([[5, 6, 7]])
    expected = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    assert text.strip() == tokenizer().decode(expected[0, 3:])
    several = write(["w5 w6 w7", "w9"], batch_size=2, return_full_text=False, **options)
    assert several[0][0]["generated_text"] == text


def test_the_pipeline_for_classes() -> None:
    torch.manual_seed(0)
    model = HelmForSequenceClassification(config(num_labels=3)).eval()
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer(), device="cpu")
    result = classify(["w5 w6 w7", "w9 w10"])
    assert {r["label"] for r in result} <= {"LABEL_0", "LABEL_1", "LABEL_2"}
