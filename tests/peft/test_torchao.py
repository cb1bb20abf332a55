"""Models that transformers has quantised by torchao, which the tests do not install."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel, TorchAoConfig

from tests.peft import tiny

pytest.importorskip("torchao", reason="needs torchao: pip install torchao")


@pytest.fixture(name="folder")
def fixture_folder(tmp_path: Path) -> Path:
    tiny.llama().save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def quantised(folder: Path) -> PreTrainedModel:
    from torchao.quantization import Int8WeightOnlyConfig

    told = TorchAoConfig(Int8WeightOnlyConfig())
    return AutoModelForCausalLM.from_pretrained(folder, quantization_config=told)


@pytest.mark.parametrize("settings", [{}, {"variant": "boost"}, {"curvature": [0.1, 1.0]}], ids=str)
def test_an_adapter_learns_beside_int8_weights(settings: dict, folder: Path) -> None:
    ids = tiny.tokens()
    base = quantised(folder)
    with torch.no_grad():
        expected = base(input_ids=ids).logits
    model = get_peft_model(base, tiny.config(task_type="CAUSAL_LM", **settings))
    out = model(input_ids=ids, labels=ids)
    assert not torch.allclose(out.logits, expected, atol=1e-4)
    out.loss.backward()
    tiny.check_gradients(model)
    with model.disable_adapter(), torch.no_grad():
        torch.testing.assert_close(model(input_ids=ids).logits, expected)
    model.save_pretrained(folder.parent / "adapter")
    again = PeftModel.from_pretrained(quantised(folder), folder.parent / "adapter")
    with torch.no_grad():
        torch.testing.assert_close(again(input_ids=ids).logits, out.logits)
