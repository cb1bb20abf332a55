from __future__ import annotations

import pytest
import torch
from torch import nn

from beltrami.recipes.hyplora.bottleneck import Bottleneck, add_bottlenecks, target_names


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.ModuleDict({"up": nn.Linear(4, 12), "down": nn.Linear(12, 4)})
        self.head = nn.Linear(4, 9)

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.block["down"](self.block["up"](x)))
        return out


@pytest.mark.parametrize("series", [True, False])
def test_formula(series: bool) -> None:
    layer = Bottleneck(nn.Linear(4, 6), 3, series=series, scaling=2.0)
    nn.init.normal_(layer.up.weight)
    x = torch.randn(5, 4)
    y = layer.base(x)
    seen = y if series else x
    added = torch.tanh(seen @ layer.down.weight.mT) @ layer.up.weight.mT
    torch.testing.assert_close(layer(x), y + (added if series else 2 * added))


@pytest.mark.parametrize("series", [True, False])
def test_only_bottlenecks_are_trained_and_they_are_as_large_as_lora(series: bool) -> None:
    torch.manual_seed(0)
    model, x = Model(), torch.randn(2, 4)
    before = model(x)
    add_bottlenecks(model, ["all-linear"], 6, series=series, scaling=1.0)
    assert torch.equal(model(x), before)
    trained = {n: p.numel() for n, p in model.named_parameters() if p.requires_grad}
    assert {n.rpartition(".")[0].rpartition(".")[2] for n in trained} == {"down", "up"}
    assert not any(n.startswith("head") or ".base." in n for n in trained)
    assert sum(trained.values()) == 2 * 6 * (4 + 12)


def test_targets() -> None:
    model = Model()
    assert target_names(model, ["down"]) == ["block.down"]
    assert target_names(model, ["all-linear"]) == ["block.up", "block.down"]
    with pytest.raises(ValueError, match="the model has only down, up"):
        target_names(model, ["q_proj", "own"])
