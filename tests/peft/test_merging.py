from __future__ import annotations

import warnings

import pytest
import torch
from peft import get_peft_model
from torch import Tensor, nn

from tests.peft import tiny


def single(**settings: object) -> tuple[nn.Module, Tensor]:
    """One adapted layer, and tokens of different norms."""
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(6, 5)).double()
    model = get_peft_model(base, tiny.config(target_modules=["0"], **settings))
    layer = model.base_model.model[0]
    layer.hyplora_B["default"].weight.data.normal_(std=0.5)
    x = torch.randn(400, 6, dtype=torch.float64) * torch.rand(400, 1, dtype=torch.float64) * 3
    return model, x


MIXED: list[dict] = [
    {},
    {"curvature": [0.1, 2.0]},
    {"variant": "simplified"},
    {"reference": "repo"},
    {"learn_curvature": "module"},
]


@pytest.mark.parametrize("settings", MIXED, ids=str)
def test_calibration_finds_the_best_multiple_of_lora(settings: dict, caplog) -> None:
    model, x = single(**settings)
    layer = model.base_model.model[0]
    with model.disable_adapter():
        base = model(x)
    update = (model(x) - base).detach()
    a, b = layer.hyplora_A["default"].weight, layer.hyplora_B["default"].weight
    lora = (2 * x @ a.mT @ b.mT).detach()
    best = float((update * lora).sum() / lora.square().sum())
    (fit,) = model.calibrate([x[:150], x[150:]]).values()
    assert fit.gain == pytest.approx(best, rel=1e-6)
    left = float((update - best * lora).norm() / update.norm())
    assert fit.residual == pytest.approx(left, rel=1e-4)
    assert fit.tokens == 400
    merged = model.merge_and_unload(merge_mode="calibrated")
    assert f"{100 * left:.1f} percent on average" in caplog.text
    torch.testing.assert_close(merged(x), base + best * lora, rtol=1e-6, atol=1e-6)
    assert left > 1e-3  # else there was nothing to approximate


def test_boost_is_merged_with_its_bias(caplog: pytest.LogCaptureFixture) -> None:
    model, x = single(variant="boost")
    layer = model.base_model.model[0]
    with torch.no_grad():
        layer.hyplora_B["default"].time_weight.normal_(std=0.5)
    with model.disable_adapter():
        base = model(x)
    update = (model(x) - base).detach()
    a, b = layer.hyplora_A["default"].weight, layer.hyplora_B["default"].weight
    lora = (2 * x @ a.mT @ b.mT).detach()
    centred, flat = update - update.mean(0), lora - lora.mean(0)
    best = float((centred * flat).sum() / flat.square().sum())
    (fit,) = model.calibrate([x]).values()
    assert fit.gain == pytest.approx(best, rel=1e-6)
    left = float((centred - best * flat).norm() / update.norm())
    assert fit.residual == pytest.approx(left, rel=1e-4)
    merged = model.merge_and_unload(merge_mode="calibrated")
    found = merged(x) - base
    torch.testing.assert_close(found.mean(0), update.mean(0), rtol=1e-5, atol=1e-6)
    assert float((found - update).norm() / update.norm()) == pytest.approx(left, rel=1e-3)
    assert "had no bias" not in caplog.text


def test_a_bias_that_boost_brings_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    base = nn.Sequential(nn.Linear(6, 5, bias=False))
    model = get_peft_model(base, tiny.config(target_modules=["0"], variant="boost"))
    merged = model.merge_and_unload(merge_mode="tangent")
    assert merged[0].bias is not None
    assert "1 layers that had no bias" in caplog.text


@pytest.mark.parametrize("settings", [{}, {"variant": "boost"}, {"curvature": [0.1, 2.0]}], ids=str)
def test_tangent_is_right_for_short_tokens(settings: dict) -> None:
    """The error of its update falls with the square of the tokens' norm; boost's linearly."""
    errors = []
    for size in (1e-1, 1e-2):
        model, x = single(**settings)
        with torch.no_grad():
            for up in model.base_model.model[0].hyplora_B.values():
                if up.time_weight is not None:
                    up.time_weight.normal_(std=0.5, generator=torch.Generator().manual_seed(3))
        x = size * x
        expected = model(x)
        merged = model.merge_and_unload(merge_mode="tangent")
        with torch.no_grad():
            change = x @ merged[0].weight.mT
            errors.append(float((merged(x) - expected).norm() / change.norm()))
    assert errors[1] < errors[0] / (8 if settings.get("variant") == "boost" else 80)


def test_lora_itself_merges_exactly() -> None:
    model, x = single(variant="tangent")
    expected = model(x)
    torch.testing.assert_close(model.merge_and_unload()(x), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"use_dora": True}, {"variant": "boost"}], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_unmerging_restores_every_bit(settings: dict, bias: bool) -> None:
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(6, 5, bias=bias)).bfloat16()
    before = {k: v.clone() for k, v in base.state_dict().items()}
    model = get_peft_model(base, tiny.config(target_modules=["0"], **settings))
    x = torch.randn(9, 6).bfloat16()
    expected = model(x)
    model.merge_adapter(merge_mode="tangent")
    assert model.base_model.model[0].merged
    assert not torch.equal(model.base_model.model[0].base_layer.weight, before["0.weight"])
    model.unmerge_adapter()
    after = model.base_model.model[0].base_layer.state_dict()
    assert after.keys() == {k[2:] for k in before}
    for name, value in after.items():
        assert torch.equal(value, before[f"0.{name}"])
    assert torch.equal(model(x), expected)


def test_dora_is_merged_with_its_magnitudes() -> None:
    model, x = single(use_dora=True, variant="tangent")
    with torch.no_grad():
        model.base_model.model[0].hyplora_magnitude["default"].weight.mul_(1.5)
    expected = model(x)
    torch.testing.assert_close(model.merge_and_unload()(x), expected, rtol=1e-5, atol=1e-5)


def test_merging_without_saying_how() -> None:
    model, x = single()
    before = model(x)
    for call in (model.merge_and_unload, model.merge_adapter):
        with pytest.raises(ValueError, match=r"cannot be merged exactly.*calibrate"):
            call()
        with pytest.raises(ValueError, match="not calibrated"):
            call(merge_mode="calibrated")
        with pytest.raises(ValueError, match=r"merge_mode must be one of.*'exact'"):
            call(merge_mode="exact")
    assert torch.equal(model(x), before)


def test_repo_has_no_tangent() -> None:
    model, _ = single(reference="repo")
    with pytest.raises(ValueError, match="not smooth"):
        model.merge_and_unload(merge_mode="tangent")


def test_nothing_is_merged_if_one_layer_cannot_be() -> None:
    model = get_peft_model(tiny.MLP(), tiny.config(target_modules=["first", "second"]))
    x = torch.randn(5, 6, dtype=torch.float64)
    model.calibrate([x])
    del model.base_model.model.second.hyplora_calibration["default"]
    before = model(x)
    with pytest.raises(ValueError, match="not calibrated"):
        model.merge_and_unload(merge_mode="calibrated")
    assert not model.base_model.model.first.merged
    assert torch.equal(model(x), before)


def test_calibration_leaves_the_model_as_it_was() -> None:
    model = get_peft_model(tiny.llama(), tiny.config(dropout=0.3))
    model.add_adapter("other", tiny.config())
    model.train()
    fits = model.calibrate([{"input_ids": tiny.tokens()}], adapter_names=["other"])
    assert len(fits) == 2 * len(tiny.TARGETS)
    assert model.training
    assert model.active_adapters == ["default"]
    assert all("other" not in n for n, p in model.named_parameters() if p.requires_grad)
    assert any(p.requires_grad for p in model.parameters())
    model.requires_grad_(False)
    model.calibrate([{"input_ids": tiny.tokens()}], adapter_names=["other"])
    assert not any(p.requires_grad for p in model.parameters())
    assert not any(getattr(m, "observing", False) for m in model.modules())


def test_calibration_counts_no_padding() -> None:
    model = get_peft_model(tiny.llama(), tiny.config())
    ids = tiny.tokens(2, 6)
    padded = torch.cat([ids, torch.zeros(2, 3, dtype=torch.int64)], 1)
    mask = (torch.arange(9) < 6).long().expand(2, 9)
    plain = model.calibrate([{"input_ids": ids}])
    found = model.calibrate([{"input_ids": padded, "attention_mask": mask}])
    for name, fit in plain.items():
        assert found[name].tokens == fit.tokens == 12
        assert found[name].gain == pytest.approx(fit.gain, rel=1e-5)


def test_a_changed_adapter_is_calibrated_again() -> None:
    model, x = single()
    model.calibrate([x])
    with torch.no_grad():
        model.base_model.model[0].hyplora_B["default"].weight.mul_(3.0)
    with pytest.raises(ValueError, match="changed since"):
        model.merge_and_unload(merge_mode="calibrated")


def test_calibrating_lora_itself_merges_it() -> None:
    model, x = single(variant="tangent")
    expected = model(x)
    merged = model.merge_and_unload(merge_mode="calibrated")
    torch.testing.assert_close(merged(x), expected, rtol=1e-6, atol=1e-6)


def test_unmerging_follows_the_model() -> None:
    base = nn.Sequential(nn.Linear(6, 5))
    model = get_peft_model(base, tiny.config(target_modules=["0"]))
    model.merge_adapter(merge_mode="tangent")
    model.bfloat16()
    model.unmerge_adapter()
    assert model(torch.randn(2, 6).bfloat16()).dtype == torch.bfloat16


def test_calibration_on_nothing() -> None:
    model, _ = single()
    with pytest.raises(ValueError, match="no batches"):
        model.calibrate([])


def test_safe_merge_finds_broken_adapters() -> None:
    model, _ = single()
    with torch.no_grad():
        model.base_model.model[0].hyplora_B["default"].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        model.merge_and_unload(safe_merge=True, merge_mode="tangent")


def test_an_embedding_is_merged_into_its_table() -> None:
    torch.manual_seed(0)
    base = nn.Sequential(nn.Embedding(7, 5))
    model = get_peft_model(base, tiny.config(target_modules=["0"], variant="tangent"))
    ids = torch.arange(7)
    expected = model(ids)
    torch.testing.assert_close(model.merge_and_unload()(ids), expected, rtol=1e-5, atol=1e-6)


def test_unloading_gives_the_base_model_back() -> None:
    model = get_peft_model(tiny.llama(), tiny.config(norm_source="residual"))
    plain = model.unload()
    assert not any("hyplora" in n for n, _ in plain.named_parameters())
    assert not any(m._forward_pre_hooks for m in plain.modules())
    ids = tiny.tokens()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(plain(ids).logits, tiny.llama()(ids).logits)


@pytest.mark.parametrize("settings", [{}, {"variant": "boost"}], ids=str)
def test_calibration_on_padding_alone(settings: dict) -> None:
    model = get_peft_model(tiny.llama(), tiny.config(task_type="CAUSAL_LM", **settings))
    ids = tiny.tokens()
    with pytest.raises(ValueError, match="no tokens"):
        model.calibrate([{"input_ids": ids, "attention_mask": torch.zeros_like(ids)}])
