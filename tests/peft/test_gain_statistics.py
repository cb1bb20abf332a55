from __future__ import annotations

import pytest
import torch
from peft import get_peft_model
from torch import nn

from beltrami.geometry import Lorentz
from beltrami.peft import HypLoraConfig, measure_gains


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        out: torch.Tensor = self.second(torch.tanh(self.first(x)))
        return out


def adapted(**settings: object) -> nn.Module:
    torch.manual_seed(0)
    config = HypLoraConfig(r=2, target_modules=["first", "second"], init_weights=False, **settings)  # type: ignore[arg-type]
    return get_peft_model(Two().double(), config, autocast_adapter_dtype=False)


def test_against_the_five_steps() -> None:
    """|log0(BA·exp0(x))| / |BAx| with the library's own maps."""
    model = adapted(curvature=2.0)
    x = torch.randn(3, 4, 6, dtype=torch.float64)
    gains = measure_gains(model, [{"x": x}])
    layer = model.base_model.model.first  # type: ignore[union-attr]
    a, b = layer.hyplora_A["default"].weight, layer.hyplora_B["default"].weight
    space = Lorentz(2.0 / 6)  # a token of mean square 1 has length 1
    point = space.exp0(x.flatten(0, 1))
    turned = space.log0(point @ a.mT @ b.mT)
    expected = turned.norm(dim=-1) / (x.flatten(0, 1) @ a.mT @ b.mT).norm(dim=-1)
    name = next(name for name in gains if name.endswith("first"))
    torch.testing.assert_close(gains[name], expected.detach(), rtol=1e-10, atol=0)


@pytest.mark.parametrize("variant", ["boost", "simplified", "tangent"])
def test_every_variant_has_gains(variant: str) -> None:
    gains = measure_gains(adapted(variant=variant), [{"x": torch.randn(2, 6).double()}])
    assert len(gains) == 2
    for values in gains.values():
        assert values.shape == (2,)
        assert bool((values > 0).all())
        if variant == "tangent":
            torch.testing.assert_close(values, torch.ones_like(values))


def test_masked_tokens_and_still_adapters_do_not_count() -> None:
    model = adapted()
    model.train()
    x, mask = torch.randn(2, 3, 6).double(), torch.tensor([[1, 1, 0], [1, 0, 0]])
    gains = measure_gains(model, [{"x": x, "attention_mask": mask}])
    assert {len(values) for values in gains.values()} == {3}
    assert model.training
    model.base_model.model.first.hyplora_B["default"].weight.data.zero_()  # type: ignore[union-attr]
    assert len(measure_gains(model, [{"x": x}])) == 1
    with pytest.raises(ValueError, match="no HypLoRA adapter named 'other'"):
        measure_gains(model, [{"x": x}], adapter="other")


def test_an_adapter_that_is_not_active() -> None:
    model = adapted()
    model.add_adapter("other", HypLoraConfig(r=2, target_modules=["first"]))  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"'other' is not active; call set_adapter\('other'\)"):
        measure_gains(model, [{"x": torch.ones(1, 6).double()}], adapter="other")


def test_adapters_that_do_nothing() -> None:
    model = adapted()
    with model.disable_adapter(), pytest.raises(ValueError, match="disabled or merged"):  # type: ignore[operator]
        measure_gains(model, [{"x": torch.ones(1, 6).double()}])
