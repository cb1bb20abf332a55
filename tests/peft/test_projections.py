from __future__ import annotations

import pytest
import torch

from beltrami.peft.config import CURVATURE_BOUNDS
from beltrami.peft.projections import (
    TOKEN_REACH,
    CurvatureRouter,
    DownLookup,
    DownProjection,
    LearnedCurvature,
    ResidualUnit,
)


def test_learned_curvatures_start_where_they_are_told_and_stay_bounded() -> None:
    module = LearnedCurvature((0.1, 2.0))
    module.reset_parameters()
    assert [c.item() for c in module()] == pytest.approx([0.1, 2.0], rel=1e-7)
    low, high = CURVATURE_BOUNDS
    with torch.no_grad():
        module.weight.copy_(torch.tensor([-1e6, 1e6]))
    down, up = (float(c.detach()) for c in module())
    assert low < down < 1.01 * low
    assert high > up > high / 1.01
    assert [n for n, _ in module.named_parameters()] == ["weight"]


def test_a_router_starts_even_handed() -> None:
    u = torch.randn(5, 4)
    several, one = CurvatureRouter(4, 3), CurvatureRouter(4, 1)
    for router in (several, one):
        router.reset_parameters()
    torch.testing.assert_close(several(u), torch.full((5, 3), 1 / 3))
    torch.testing.assert_close(one(u), torch.ones(5, 1))
    with torch.no_grad():
        one.weight.fill_(100.0)
    assert one(u).log().abs().max() <= TOKEN_REACH + 1e-6


def test_a_lookup_is_the_projection_of_one_hot_tokens() -> None:
    lookup, down = DownLookup(7, 3), DownProjection(7, 3)
    with torch.no_grad():
        lookup.weight.normal_()
        down.weight.copy_(lookup.weight)
    ids = torch.tensor([[0, 3], [6, 6]])
    x = torch.nn.functional.one_hot(ids, 7).float()
    after, seen = down(x)
    torch.testing.assert_close(lookup(ids), seen.u)
    torch.testing.assert_close(seen.n2, torch.ones(2, 2, 1))
    assert seen.time_in is None
    assert torch.equal(after, x)


def test_the_first_batch_in_training_fixes_the_unit() -> None:
    unit = ResidualUnit()
    torch.testing.assert_close(
        unit.eval()(torch.tensor([[1.0], [4.0], [0.0]])), torch.tensor([[0.5], [2.0], [0.0]])
    )
    unit.train()(torch.tensor([[8.0], [8.0]]))
    for mode in (True, False):
        found = unit.train(mode)(torch.tensor([[2.0], [4.0]]))
        torch.testing.assert_close(found, torch.tensor([[0.25], [0.5]]))
    unit.reset_parameters()
    assert unit(torch.zeros(2, 1)).isfinite().all()


def test_one_long_token_is_not_the_unit() -> None:
    """As the first token of a language model is, by orders of magnitude."""
    stream = torch.ones(200, 1)
    stream[0] = 1e4
    found = ResidualUnit().train()(stream)
    torch.testing.assert_close(found[1:], torch.ones(199, 1), rtol=0.05, atol=0)


def test_what_is_computed_again_is_the_same() -> None:
    """Also in double precision, where the unit that is kept is rounded."""
    torch.manual_seed(0)
    unit, stream = ResidualUnit().train(), torch.rand(5, 1, dtype=torch.float64)
    assert torch.equal(unit(stream), unit(stream))
