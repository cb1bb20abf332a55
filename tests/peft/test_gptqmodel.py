"""Layers that GPTQModel has quantised (GPTQ and AWQ), which the tests do not install."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch import Tensor, nn

from tests.peft import tiny

pytest.importorskip("gptqmodel", reason="needs GPTQModel: pip install --no-deps gptqmodel")

INPUTS, OUTPUTS, GROUP, LEVELS = 64, 96, 32, 15  # of four bits


def quantised(method: str) -> nn.Module:
    """A layer of random weights, rounded to the nearest of 16 levels in groups of 32."""
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.nn_modules.qlinear.torch_awq import AwqTorchLinear

    torch.manual_seed(0)
    plain = nn.Linear(INPUTS, OUTPUTS, bias=False)
    groups = plain.weight.detach().reshape(OUTPUTS, INPUTS // GROUP, GROUP)
    scales = (groups.amax(-1) - groups.amin(-1)) / LEVELS
    zeros = torch.round(-groups.amin(-1) / scales)
    kind = {"gptq": TorchLinear, "awq": AwqTorchLinear}[method]
    layer = kind(4, GROUP, False, False, INPUTS, OUTPUTS, bias=False, register_buffers=True)
    layer.pack(plain, scales, zeros, torch.arange(INPUTS, dtype=torch.int32) // GROUP)
    model = nn.Sequential(layer)
    found = model(torch.eye(INPUTS, dtype=torch.float16)).float().mT
    torch.testing.assert_close(found, plain.weight.detach(), rtol=0, atol=float(scales.max()))
    return model


def tokens() -> Tensor:
    return torch.randn(5, INPUTS)


SETTINGS: list[dict] = [
    {},
    {"variant": "boost"},
    {"variant": "simplified"},
    {"curvature": [0.1, 1.0], "learn_curvature": "module"},
]


@pytest.mark.parametrize("method", ["gptq", "awq"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_an_adapter_learns_beside_a_quantised_layer(
    method: str, settings: dict, tmp_path: Path
) -> None:
    x = tokens().half().requires_grad_()
    base = quantised(method)
    expected = base(x.detach())
    model = get_peft_model(base, tiny.config(target_modules=["0"], **settings))
    out = model(x)
    assert not torch.allclose(out, expected, atol=1e-2)
    out.float().square().mean().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    tiny.check_gradients(model)
    with model.disable_adapter():
        torch.testing.assert_close(model(x.detach()), expected)
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(quantised(method), tmp_path)
    torch.testing.assert_close(again(x), out)


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_merging_is_refused(method: str) -> None:
    model = get_peft_model(quantised(method), tiny.config(target_modules=["0"], variant="tangent"))
    with pytest.raises(ValueError, match="cannot be merged into"):
        model.merge_adapter()


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_dora_is_refused(method: str) -> None:
    """It needs the weight itself, which these layers do not give."""
    with pytest.raises(ValueError, match="use_dora"):
        get_peft_model(quantised(method), tiny.config(target_modules=["0"], use_dora=True))
