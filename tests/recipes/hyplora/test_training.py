from __future__ import annotations

import pytest
import torch
from torch import nn

from beltrami.recipes.hyplora.methods import FineTuned
from beltrami.recipes.hyplora.training import rate_at


def test_rates_rise_then_fall_to_nothing() -> None:
    rates = [rate_at(step, 20, 5) for step in range(20)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5] == pytest.approx(1.0)
    assert rates == sorted(rates[:5]) + sorted(rates[5:], reverse=True)
    assert 0 < rates[-1] < 0.1
    assert rate_at(0, 1, 40) == 1.0  # a training of one step
    assert rate_at(0, 4, 0) == 1.0


def test_the_state_is_what_is_trained() -> None:
    inner = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    inner[0].requires_grad_(False)
    inner.register_buffer("seen", torch.ones(1))
    model = FineTuned(inner)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    assert set(state) == {"model.1.weight", "model.1.bias", "model.seen"}
    nn.init.zeros_(inner[1].weight)
    model.load_state_dict(state)
    assert bool((inner[1].weight != 0).all())
    with pytest.raises(KeyError, match="not the state"):
        model.load_state_dict({"model.1.weight": state["model.1.weight"]})
