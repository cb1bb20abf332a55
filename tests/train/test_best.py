from __future__ import annotations

import torch
from torch import nn

from beltrami.train.best import BestState


def set_weight(model: nn.Linear, value: float) -> None:
    with torch.no_grad():
        model.weight.fill_(value)


def test_the_best_state_comes_back() -> None:
    model = nn.Linear(2, 1)
    best = BestState(model)
    for step, (weight, score) in enumerate([(1.0, 0.3), (2.0, 0.7), (3.0, 0.7), (4.0, 0.1)]):
        set_weight(model, weight)
        best.update(score, step)
    best.restore()
    assert model.weight[0, 0] == 2.0  # the first of two equals
    assert (best.score, best.step) == (0.7, 1)


def test_its_state_goes_on_elsewhere() -> None:
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    best, later = BestState(model), BestState(other)
    set_weight(model, 5.0)
    best.update(0.5, 3)
    later.load_state_dict(best.state_dict())
    set_weight(other, 1.0)
    later.update(0.4, 4)
    later.restore()
    assert other.weight[0, 0] == 5.0
    assert later.step == 3


def test_without_a_score_nothing_is_restored() -> None:
    model = nn.Linear(2, 1)
    before = model.weight.clone()
    BestState(model).restore()
    assert torch.equal(model.weight, before)
