from __future__ import annotations

import pytest
import torch
from peft import get_peft_model

from beltrami.peft import loraplus_groups
from tests.peft import tiny


def test_b_learns_faster_and_curvatures_are_not_decayed() -> None:
    model = get_peft_model(tiny.llama(), tiny.config(learn_curvature="module"))
    groups = loraplus_groups(model, 1e-3, ratio=8.0, weight_decay=0.1)
    names = {id(p): n for n, p in model.named_parameters()}
    for group in groups:
        for p in group["params"]:
            name = names[id(p)]
            assert group["lr"] == (8e-3 if "hyplora_B" in name else 1e-3)
            assert group["weight_decay"] == (0.0 if "curvature" in name else 0.1)
    listed = [id(p) for group in groups for p in group["params"]]
    assert sorted(listed) == sorted(id(p) for p in model.parameters() if p.requires_grad)
    torch.optim.AdamW(groups)


@pytest.mark.parametrize("settings", [{"lr": 0.0}, {"lr": 1e-3, "ratio": -1.0}])
def test_bad_rates(settings: dict) -> None:
    with pytest.raises(ValueError, match="positive"):
        loraplus_groups(torch.nn.Linear(2, 2), **settings)
