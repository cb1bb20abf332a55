"""Exponents of losses over widths, their errors, and how they depend on the window."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from beltrami.analysis.superposition import exponent_windows, fit_exponent
from tests.analysis.superposition.published import STRONG, TOY, TOY_WIDTHS, WEAK, WIDTHS


@pytest.mark.parametrize(
    ("law", "first", "exponent", "error", "r_squared", "all_points"),
    [
        ("exponential", 0, 1.0055, 0.052, 0.984, 1.0055),
        ("power", 2, 0.9840, 0.096, 0.963, 0.853),
        ("linear", 2, 0.8864, 0.052, 0.987, 0.725),
    ],
)
def test_published_fits_of_figure_1d(
    law: str, first: int, exponent: float, error: float, r_squared: float, all_points: float
) -> None:
    """Power and linear were fitted without m = 8 and 16."""
    found = fit_exponent(WIDTHS, STRONG[law], first=first)
    assert found.exponent == pytest.approx(exponent, abs=5e-5)
    assert found.error == pytest.approx(error, abs=6e-4)
    assert found.r_squared == pytest.approx(r_squared, abs=6e-4)
    assert found.widths == WIDTHS[first:]
    assert fit_exponent(WIDTHS, STRONG[law]).exponent == pytest.approx(all_points, abs=6e-4)


@pytest.mark.parametrize(("law", "r_squared"), [("exponential", 0.802), ("linear", 0.867)])
def test_published_bars_of_weak_superposition(law: str, r_squared: float) -> None:
    assert fit_exponent(WIDTHS, WEAK[law]).r_squared == pytest.approx(r_squared, abs=6e-4)


def test_the_weak_power_law_is_straight_only_from_64_on() -> None:
    found = fit_exponent(WIDTHS, WEAK["power"], first=3)
    assert found.r_squared == pytest.approx(0.991, abs=6e-4)
    assert found.exponent == pytest.approx(0.446, abs=6e-4)
    assert fit_exponent(WIDTHS, WEAK["power"]).r_squared == pytest.approx(0.66, abs=6e-3)


def test_the_window_matters_in_figure_7b() -> None:
    found = exponent_windows(TOY_WIDTHS, TOY)
    assert [fit.exponent for fit in found.fits[:3]] == pytest.approx([1.06, 1.16, 1.23], abs=6e-3)
    assert [fit.points for fit in found.fits] == [6, 5, 4, 3]
    assert found.spread == pytest.approx(1.2350 - 1.0606, abs=1e-3)
    assert found.concave
    assert not found.convex


def test_against_scipy() -> None:
    found = fit_exponent(WIDTHS, STRONG["power"])
    line = stats.linregress([math.log(m) for m in WIDTHS], [math.log(x) for x in STRONG["power"]])
    assert found.exponent == pytest.approx(-line.slope)
    assert found.error == pytest.approx(line.stderr)
    assert found.intercept == pytest.approx(line.intercept)
    assert found.r_squared == pytest.approx(line.rvalue**2)
    off = stats.t.ppf(0.975, 6) * line.stderr
    assert (found.low, found.high) == pytest.approx(
        (-line.slope - off, -line.slope + off), rel=1e-4
    )


def test_the_curvature_by_its_definition() -> None:
    x = torch.tensor(TOY_WIDTHS, dtype=torch.float64).log()
    y = torch.tensor(TOY, dtype=torch.float64).log()
    design = torch.stack([x**0, x, x**2], 1)
    inverse = torch.linalg.inv(design.mT @ design)
    beta = inverse @ design.mT @ y
    left = y - design @ beta
    error = (left.square().sum() / 3 * inverse[2, 2]).sqrt()
    found = exponent_windows(TOY_WIDTHS, TOY)
    assert found.curvature == pytest.approx(beta[2].item(), rel=1e-6)
    assert found.curvature_error == pytest.approx(error.item(), rel=1e-6)
    assert found.curvature_t == pytest.approx((beta[2] / error).item(), rel=1e-6)


def test_curvature_is_found_by_chance_as_often_as_it_says() -> None:
    g = torch.Generator().manual_seed(0)
    m = torch.logspace(1, 3, 7, dtype=torch.float64)
    bends = 0
    for _ in range(400):
        loss = (0.1 * torch.randn(7, generator=g, dtype=torch.float64)).exp() / m
        found = exponent_windows(m, loss)
        bends += found.concave or found.convex
    assert 8 <= bends <= 34  # 20 ± 3σ


def test_a_floor_bends_up() -> None:
    found = exponent_windows(WIDTHS, [2 / m + 0.1 + 1e-4 * (-1) ** m for m in WIDTHS])
    assert found.convex
    assert not found.concave


@given(
    st.floats(-2, 3),
    st.floats(1e-6, 1e6),
    st.lists(st.integers(1, 100_000), min_size=3, max_size=12, unique=True),
)
def test_exact_power_laws(exponent: float, scale: float, widths: list[int]) -> None:
    found = exponent_windows(widths, [scale * m**-exponent for m in widths])
    reach = math.log(max(widths) / min(widths))
    for fit in found.fits:
        inside = math.log(fit.widths[-1] / fit.widths[0])
        assert fit.exponent == pytest.approx(exponent, abs=1e-12 / inside * max(1, reach))
    assert not found.concave or found.spread > 0


@given(st.floats(1e-6, 1e6), st.randoms(use_true_random=False))
def test_neither_scale_nor_order_matters(scale: float, shuffle: random.Random) -> None:
    points = list(zip(WIDTHS, STRONG["power"], strict=True))
    shuffle.shuffle(points)
    found = fit_exponent([m for m, _ in points], [scale * loss for _, loss in points], first=2)
    plain = fit_exponent(WIDTHS, STRONG["power"], first=2)
    assert found.exponent == pytest.approx(plain.exponent)
    assert found.error == pytest.approx(plain.error)
    assert found.intercept == pytest.approx(plain.intercept + math.log(scale))
    wider = fit_exponent([scale * m for m in WIDTHS], STRONG["power"], first=2)
    assert wider.exponent == pytest.approx(plain.exponent)


def test_several_seeds_of_a_width() -> None:
    widths = [10, 10, 20, 20, 20, 40]
    losses = [1.0, 1.2, 0.5, 0.6, 0.55, 0.3]
    found = fit_exponent(widths, losses)
    assert (found.points, found.distinct) == (6, 3)
    logs = torch.tensor(losses).double().log()
    within = logs[:2].var() + 2 * logs[2:5].var()
    assert found.pure_error == pytest.approx(math.sqrt(within / 3))
    assert math.isnan(fit_exponent(WIDTHS, (*TOY, 0.05, 0.04)).pure_error)
    later = fit_exponent(widths, losses, first=1)
    assert later.widths == (20, 20, 20, 40)  # a width is left out with all its seeds
    assert len(exponent_windows(widths, losses).fits) == 1


def test_losses_that_are_all_the_same() -> None:
    found = fit_exponent([1, 2, 3, 4], [0.7] * 4)
    assert found.exponent == pytest.approx(0, abs=1e-15)
    assert found.error == 0
    assert math.isnan(found.r_squared)


def test_losses_of_the_fitted_line() -> None:
    found = exponent_windows(TOY_WIDTHS, TOY)
    assert found.as_dict()["concave"] == 1
    assert found.fits[0].at(10) == pytest.approx(
        math.exp(found.fits[0].intercept) * 10 ** -found.fits[0].exponent
    )


@pytest.mark.parametrize(
    ("widths", "losses", "message"),
    [
        ([1, 2], [1, 1], "needs 3 points of different widths, got 2"),
        ([2, 2, 2], [1, 2, 3], "got 3 of 1 widths"),
        ([1, 2, 3], [1, 2], "3 widths and 2 losses"),
        ([1, 2, 3], [1, 0, 2], "losses must be positive.*got 0"),
        ([0, 2, 3], [1, 1, 2], "widths must be positive, got 0"),
        ([1, 2, 3], [1, math.nan, 2], "losses must be finite, got nan at place 1"),
        ([1, math.inf, 3], [1, 1, 2], "widths must be finite"),
        ([], [], "got 0 of 0 widths"),
    ],
)
def test_bad_input(widths: list[float], losses: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_exponent(widths, losses)


def test_bad_windows() -> None:
    with pytest.raises(ValueError, match="leaves out 8 of 8"):
        fit_exponent(WIDTHS, STRONG["power"], first=8)
    with pytest.raises(ValueError, match="got 2 of 2 widths"):
        fit_exponent(WIDTHS, STRONG["power"], first=6)
    with pytest.raises(ValueError, match="a window has 3 widths, and there are 2"):
        exponent_windows([1, 1, 2], [1, 1, 2])
    with pytest.raises(TypeError, match="list of numbers"):
        fit_exponent(["a"], [1])  # type: ignore[list-item]
