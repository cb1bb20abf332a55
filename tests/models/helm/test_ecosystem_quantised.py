"""Weights of eight and four bits; the words' matrix quantised or, as is the default, not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from transformers.utils.import_utils import is_torchao_available

from tests.models.helm import small

bnb = pytest.importorskip("bitsandbytes", reason="bitsandbytes is for Linux alone")

# bitsandbytes on a CPU multiplies four-bit matrices with multiples of 32 rows and columns.
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_key_value_heads": 4,
    "head_dim": 20,
}


def quantised(folder: Path, bits: int, **options: Any) -> Any:
    config = BitsAndBytesConfig(load_in_8bit=bits == 8, load_in_4bit=bits == 4, **options)
    return AutoModelForCausalLM.from_pretrained(folder, quantization_config=config)


@pytest.mark.parametrize("kind", ["mlr", "distance", "linear"])
@pytest.mark.parametrize(("bits", "lost"), [(8, 0.02), (4, 0.2)])
def test_logits_are_close_and_words_are_drawn(
    kind: str, bits: int, lost: float, tmp_path: Path
) -> None:
    model = small.model(**SIZES, **small.KINDS[kind])
    model.save_pretrained(tmp_path)
    expected = small.logits(model)
    for skipped in (None, ["k_proj"]):  # by default lm_head, else what is named
        loaded = quantised(tmp_path, bits, llm_int8_skip_modules=skipped)
        assert isinstance(loaded.model.layers[0].self_attn.o_proj, bnb.nn.Linear8bitLt) == (
            bits == 8
        )
        assert (type(loaded.lm_head) is torch.nn.Linear) == (skipped is None)
        found = small.logits(loaded)
        assert 0 < float((found - expected).norm() / expected.norm()) < lost
        ids = small.tokens()
        words = loaded.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False
        )
        assert torch.equal(words[:, 7], small.logits(loaded)[:, -1].argmax(-1))


def test_quantised_words_have_the_lengths_of_what_is_multiplied(tmp_path: Path) -> None:
    small.model(**SIZES).save_pretrained(tmp_path)
    loaded = quantised(tmp_path, 8, llm_int8_skip_modules=["k_proj"])
    plain = small.model(**SIZES)
    with torch.no_grad():
        plain.lm_head.weight.copy_(loaded.lm_head(torch.eye(64)).mT)  # what it multiplies by
        h = torch.randn(5, 64)
        expected = plain.word_scores(h, plain.lm_head)
        found = loaded.word_scores(h, loaded.lm_head)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_an_adapter_learns_beside_quantised_weights(tmp_path: Path) -> None:
    small.model(**SIZES).save_pretrained(tmp_path)
    loaded = quantised(tmp_path, 8)
    model = get_peft_model(loaded, LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM"))
    ids = small.tokens()
    model(input_ids=ids, labels=ids).loss.backward()
    grads = [p.grad for n, p in model.named_parameters() if "lora_B" in n]
    assert len(grads) == 14
    assert all(g is not None and g.isfinite().all() and g.any() for g in grads)


@pytest.mark.skipif(not is_torchao_available(), reason="needs torchao: pip install torchao")
@pytest.mark.parametrize("skipped", [["lm_head"], ["k_proj"]], ids=str)
def test_int8_by_torchao(skipped: list[str], tmp_path: Path) -> None:
    from torchao.quantization import Int8WeightOnlyConfig
    from transformers import TorchAoConfig

    model = small.model(**SIZES)
    model.save_pretrained(tmp_path)
    config = TorchAoConfig(Int8WeightOnlyConfig(), modules_to_not_convert=skipped)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=config)
    expected, found = small.logits(model), small.logits(loaded)
    assert 0 < float((found - expected).norm() / expected.norm()) < 0.02
