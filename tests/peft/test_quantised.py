"""Quantised base layers, through PEFT's own backends."""

from __future__ import annotations

import pytest
import torch
from peft import get_peft_model
from torch import Tensor, nn

from tests.peft import tiny

bnb = pytest.importorskip("bitsandbytes", reason="bitsandbytes is for Linux alone")


def quantised(bits: int) -> nn.Module:
    torch.manual_seed(0)
    if bits == 8:
        layer = bnb.nn.Linear8bitLt(64, 48, bias=False, has_fp16_weights=False)
    else:
        layer = bnb.nn.Linear4bit(64, 48, bias=False, compute_dtype=torch.float32)
    layer.load_state_dict({"weight": torch.randn(48, 64) / 8})
    return nn.Sequential(layer).to("cpu")


def tokens() -> Tensor:
    return torch.randn(5, 64)


SETTINGS: list[dict] = [
    {},
    {"variant": "boost"},
    {"curvature": [0.1, 1.0], "learn_curvature": "module"},
    {"use_dora": True},
]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_an_adapter_learns_beside_a_quantised_layer(bits: int, settings: dict) -> None:
    x = tokens().requires_grad_()
    base = quantised(bits)
    expected = base(x.detach())
    model = get_peft_model(base, tiny.config(target_modules=["0"], **settings))
    out = model(x)
    assert not torch.allclose(out, expected, atol=1e-4)
    out.square().mean().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    tiny.check_gradients(model)
    with model.disable_adapter():
        torch.testing.assert_close(model(x.detach()), expected)


@pytest.mark.parametrize(("bits", "lost"), [(8, 0.02), (4, 0.2)])
def test_merging_quantises_again_and_cannot_be_undone(bits: int, lost: float) -> None:
    model = get_peft_model(quantised(bits), tiny.config(target_modules=["0"], variant="tangent"))
    x = tokens()
    expected = model(x).detach()
    model.merge_adapter()
    found = model(x).detach()
    assert 0 < float((found - expected).norm() / expected.norm()) < lost
    with pytest.raises(ValueError, match=rf"bnb {bits}bit.*lost"):
        model.unmerge_adapter()


def test_what_quantising_again_loses_is_said(caplog: pytest.LogCaptureFixture) -> None:
    model = get_peft_model(quantised(8), tiny.config(target_modules=["0"]))
    model.calibrate([tokens()])
    model.merge_adapter(merge_mode="calibrated")
    assert "percent on average" in caplog.text
    assert "quantised again" in caplog.text
