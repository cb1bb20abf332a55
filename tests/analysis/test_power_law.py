"""Power laws: the most likely exponent, where it begins, and what is none."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from beltrami.analysis.power_law import _drawn, _Fit, power_law_fit


def law(n: int, exponent: float, xmin: int, seed: int = 0) -> Tensor:
    """Drawn by summing probabilities, not by the code under test."""
    x = torch.arange(xmin, 200_000, dtype=torch.float64)
    p = x**-exponent
    g = torch.Generator().manual_seed(seed)
    u = torch.rand(n, generator=g, dtype=torch.float64)
    return xmin + torch.searchsorted((p / p.sum()).cumsum(0), u).clamp(max=len(x) - 1)


def zeta(exponent: float, first: int) -> Tensor:
    """Σ x^−α from the first x on."""
    return torch.special.zeta(*torch.tensor([exponent, first], dtype=torch.float64))


@pytest.mark.parametrize("exponent", [1.9, 2.5, 3.2])
@pytest.mark.parametrize("xmin", [1, 6])
def test_the_exponent_of_a_power_law(exponent: float, xmin: int) -> None:
    found = power_law_fit(law(20_000, exponent, xmin), xmin=xmin, draws=0)
    assert found.exponent == pytest.approx(exponent, abs=4 * found.error)
    assert (found.tail, found.count) == (20_000, 20_000)
    assert math.isnan(found.p_value)


@pytest.mark.parametrize(("exponent", "xmin", "error"), [(3.5, 1, 0.0325), (2.5, 1, 0.0169)])
def test_the_error_is_that_of_whole_numbers(exponent: float, xmin: int, error: float) -> None:
    """Of 10,000; (α − 1)/√n, which holds where xmin is large, is up to a quarter less."""
    found = power_law_fit(law(10_000, exponent, xmin), xmin=xmin, draws=0)
    assert found.error == pytest.approx(error, rel=0.05)
    large = power_law_fit(law(10_000, 2.5, 50), xmin=50, draws=0)
    assert large.error == pytest.approx((large.exponent - 1) / 100, rel=0.01)


def test_the_likelihood_is_largest_there() -> None:
    counts = law(500, 2.2, 3)
    found = power_law_fit(counts, xmin=3, draws=0)

    def likelihood(exponent: float) -> float:
        whole = zeta(exponent, 3)
        return float(-len(counts) * whole.log() - exponent * counts.double().log().sum())

    best = likelihood(found.exponent)
    assert all(best >= likelihood(found.exponent + off) for off in (-0.01, -1e-4, 1e-4, 0.01))


def test_where_it_begins() -> None:
    """Above 20; below, all counts are equally likely."""
    g = torch.Generator().manual_seed(1)
    counts = torch.cat([torch.randint(1, 20, (8000,), generator=g), law(8000, 2.5, 20)])
    found = power_law_fit(counts, draws=20)
    assert 17 <= found.xmin <= 30
    assert found.exponent == pytest.approx(2.5, abs=0.1)
    assert found.p_value > 0.1


def test_a_power_law_is_not_refused_and_others_are() -> None:
    """p-values of power laws are spread evenly from 0 to 1."""
    found = [power_law_fit(law(3000, 2.3, 1, seed), draws=30).p_value for seed in range(12)]
    assert 0.3 < sum(found) / len(found) < 0.7
    g = torch.Generator().manual_seed(2)
    geometric = torch.empty(3000, dtype=torch.float64).geometric_(0.05, generator=g).long()
    assert power_law_fit(geometric, xmin=1, draws=40).p_value < 0.1


def test_the_distance_by_its_definition() -> None:
    counts = torch.tensor([1] * 12 + [2] * 5 + [3, 3, 7])
    found = power_law_fit(counts, xmin=1, draws=0)
    x = torch.arange(1, 9, dtype=torch.float64)
    probability = x**-found.exponent / zeta(found.exponent, 1)
    shares = torch.bincount(counts, minlength=9)[1:].double() / len(counts)
    expected = (shares.cumsum(0) - probability.cumsum(0)).abs().max()
    assert found.distance == pytest.approx(float(expected))


def test_drawn_numbers_have_the_law() -> None:
    """Also beyond the table, which here ends at 300."""
    exponent = torch.tensor(1.5, dtype=torch.float64)
    survival = torch.special.zeta(exponent, torch.arange(4.0, 20_000).double())
    survival = survival / survival[0].clone()
    u = torch.rand(400_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = _drawn(_Fit(1.5, 4, 100, 0.0), survival[:297], u)
    assert int(x.min()) == 4
    for value in (4, 5, 10, 100, 299, 300, 301, 400, 3000, 19_000):
        share, expected = float((x >= value).double().mean()), float(survival[value - 4])
        assert share == pytest.approx(expected, abs=4 * math.sqrt(expected / 400_000))


def test_a_seed_repeats_and_progress_ends() -> None:
    counts, told = law(400, 2.0, 1), []  # type: Tensor, list[float]
    first = power_law_fit(counts, draws=10, seed=1, tick=told.append)
    assert first == power_law_fit(counts, draws=10, seed=1)
    assert told[-1] == 1
    assert first.as_dict()["exponent"] == first.exponent


@pytest.mark.parametrize(
    ("counts", "options", "message"),
    [
        (torch.ones(20), {}, "counts must be integers .* got torch.float32"),
        (torch.ones(4, 5, dtype=torch.int64), {}, r"shape \(4, 5\)"),
        (torch.arange(20), {}, "positive, got 0"),
        (torch.arange(1, 6), {}, "needs 10 counts, got 5"),
        (torch.arange(1, 21), {"xmin": 15}, "needs 10 counts of at least 15, got 6"),
        (torch.full((20,), 3), {}, "all counts are 3"),
        (torch.tensor([1] * 5 + [7] * 20), {"xmin": 7}, "all counts of at least 7 are 7"),
        (torch.arange(1, 21), {"xmin": 0}, "xmin must be at least 1, got 0"),
        (torch.arange(1, 21), {"draws": -1}, "draws must be at least 0"),
    ],
)
def test_bad_input(counts: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        power_law_fit(counts, **options)
