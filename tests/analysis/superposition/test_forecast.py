"""Forecasts: exact laws, honest intervals, and warnings where there is reason for one."""

from __future__ import annotations

import json
import math
import random
from typing import Literal

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beltrami.analysis.intervals import t975
from beltrami.analysis.superposition import fit_exponent, forecast
from beltrami.analysis.superposition.floor_fit import fit_floor, least_squares_through
from beltrami.analysis.superposition.forecast import exponent_interval, fit_laws
from tests.analysis.superposition.published import STRONG, TOY, TOY_WIDTHS, WEAK, WIDTHS

MANY = [2.0**i for i in range(4, 13)]
SIX = [2.0**i for i in range(6, 12)]


def law(
    widths: list[float], alpha: float, scale: float, floor: float, noise: float = 0, seed: int = 0
) -> list[float]:
    g = torch.Generator().manual_seed(seed)
    off = (noise * torch.randn(len(widths), generator=g, dtype=torch.float64)).exp().tolist()
    return [(scale * m**-alpha + floor) * o for m, o in zip(widths, off, strict=True)]


def has(warnings: tuple[str, ...], text: str) -> bool:
    return any(text in warning for warning in warnings)


@settings(max_examples=30)
@given(st.floats(0.1, 3), st.floats(1e-3, 1e3), st.floats(0.2, 0.9))
def test_exact_power_laws(alpha: float, scale: float, share: float) -> None:
    losses = law(MANY, alpha, scale, 0.0)
    target = share * losses[-1]
    found = forecast(MANY, losses, target=target)
    assert found.exponent == pytest.approx(alpha, rel=1e-9)
    assert found.scale == pytest.approx(scale, rel=1e-8)
    assert found.floor == 0
    assert not found.floor_needed
    width = (scale / target) ** (1 / alpha)
    assert (found.width_low, found.width, found.width_high) == pytest.approx((width,) * 3, rel=1e-7)
    assert found.at(width) == pytest.approx(target)
    beyond = found.width > 4 * MANY[-1]
    assert found.trusted != beyond
    assert has(found.warnings, "times beyond the widest") == beyond


@pytest.mark.slow
@settings(max_examples=30)
@given(st.floats(0.3, 2), st.floats(0.01, 100), st.floats(0.05, 2))
def test_exact_laws_with_a_floor(alpha: float, scale: float, share: float) -> None:
    """The floor is between a twentieth of what width changes, and twice that."""
    floor = share * scale * MANY[0] ** -alpha
    found = forecast(MANY, law(MANY, alpha, scale, floor), target=1.1 * floor)
    assert found.floor_needed
    assert found.exponent == pytest.approx(alpha, rel=1e-4)
    assert found.floor == pytest.approx(floor, rel=1e-4)
    assert found.width == pytest.approx((scale / (0.1 * floor)) ** (1 / alpha), rel=1e-2)
    below = forecast(MANY, law(MANY, alpha, scale, floor), target=0.9 * floor)
    assert math.isinf(below.width)
    assert has(below.warnings, "not above the floor")


@settings(max_examples=12)
@given(st.floats(1e-4, 1e4), st.floats(1e-2, 1e2), st.randoms(use_true_random=False))
def test_neither_scale_nor_order_matters(
    scale: float, wider: float, shuffle: random.Random
) -> None:
    losses = law(MANY, 0.7, 5.0, 0.05, noise=0.02)
    plain = forecast(MANY, losses, target=0.08)
    points = list(zip(MANY, losses, strict=True))
    shuffle.shuffle(points)
    found = forecast(
        [wider * m for m, _ in points], [scale * x for _, x in points], target=0.08 * scale
    )
    assert found.exponent == pytest.approx(plain.exponent, rel=1e-4)
    assert found.error == pytest.approx(plain.error, rel=1e-3)
    assert found.floor == pytest.approx(scale * plain.floor, rel=1e-3)
    assert found.width == pytest.approx(wider * plain.width, rel=1e-3)
    assert found.width_low == pytest.approx(wider * plain.width_low, rel=0.01)
    assert found.width_high == pytest.approx(wider * plain.width_high, rel=0.01)
    assert len(found.warnings) == len(plain.warnings)


FLAT = [(1115, 665.0), (1411, 1.0), (4084, 209.0), (5574, 351.0), (6649, 298.0)]


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(1, 9999), st.floats(1e-3, 1e3)),
        min_size=3,
        max_size=9,
        unique_by=lambda point: point[0],
    ),
    st.floats(1e-4, 1e4),
    st.sampled_from(["fit", 0.0]),
)
# Of laws that are all but flat, with a target above all losses: widths of 0, and next to it.
@example([(27, 176.0), (576, 340.0), (734, 810.0), (1128, 17.0), *FLAT], 1335.0, "fit")
@example(
    [(1, 191.0), (749, 489.0), (826, 942.0), (1196, 119.0), (1212, 883.0), (1434, 1.0), *FLAT[2:]],
    1688.0,
    "fit",
)
def test_any_losses_have_an_answer(
    points: list[tuple[int, float]], target: float, floor: Literal["fit"] | float
) -> None:
    """However wild: an interval in order, a picture, and JSON."""
    found = forecast([m for m, _ in points], [x for _, x in points], target=target, floor=floor)
    assert found.width_low <= found.width_high
    assert 0 <= found.floor <= max(found.losses)
    assert found.low <= found.exponent <= found.high
    json.dumps(found.as_dict(), allow_nan=False)
    found.plot()


@settings(max_examples=25)
@given(
    st.lists(st.floats(1e-200, 1e200), min_size=3, max_size=6),
    st.floats(1e-200, 1e200),
    st.integers(1, 10**9),
)
@example([900.0, 2.9, 2.8], 1.0, 1000)
@example([2e143, 3e199, 3e199, 3e199, 8e199, 1e-200], 1.0, 1)
def test_laws_too_steep_for_a_number(losses: list[float], target: float, first: int) -> None:
    """Widths next to each other, and one run that has diverged."""
    widths = [first + i for i in range(len(losses))]
    found = forecast(widths, losses, target=target, floor=0)
    middle = math.exp(math.fsum(map(math.log, losses)) / len(losses))
    centre = math.exp(math.fsum(map(math.log, widths)) / len(widths))
    assert found.at(centre) == pytest.approx(middle, rel=1e-3)
    json.dumps(found.as_dict(), allow_nan=False)
    found.plot()


def test_no_width_has_no_interval() -> None:
    found = forecast([64, 128, 256, 512], [2.0, 2.3, 2.6, 3.1], target=1.0)
    assert (found.width, found.width_low, found.width_high) == (math.inf,) * 3
    assert found.regime.name == "cannot tell"
    assert has(found.warnings, "losses do not fall")


def test_without_a_floor_it_is_the_line_of_fit_exponent() -> None:
    found = forecast(WIDTHS, STRONG["power"], floor=0)
    line = fit_exponent(WIDTHS, STRONG["power"])
    assert found.exponent == pytest.approx(line.exponent)
    assert found.error == pytest.approx(line.error)
    assert (found.low, found.high) == pytest.approx((line.low, line.high))
    assert found.scale == pytest.approx(math.exp(line.intercept))
    assert found.r_squared == pytest.approx(line.r_squared)
    assert math.isnan(found.f_statistic)


def test_the_interval_of_a_line_is_fiellers() -> None:
    """Where |ȳ − αx − log T| is t times its error: the roots of a quadratic."""
    found = forecast(TOY_WIDTHS, TOY, target=0.05, floor=0)
    x = torch.tensor(TOY_WIDTHS, dtype=torch.float64).log()
    y = torch.tensor(TOY, dtype=torch.float64).log()
    line = fit_exponent(TOY_WIDTHS, TOY)
    scatter = float((x - x.mean()).square().sum())
    up, t = float(y.mean()) - math.log(0.05), t975(4)
    # (up − α·h)² = t²s²(1/n + h²/scatter), for h = log m − x̄.
    a = line.exponent**2 - (t * line.residual) ** 2 / scatter
    b = -2 * line.exponent * up
    c = up**2 - (t * line.residual) ** 2 / len(x)
    root = math.sqrt(b * b - 4 * a * c)
    low, high = (math.exp(float(x.mean()) + (-b + sign * root) / (2 * a)) for sign in (-1, 1))
    assert found.width_low == pytest.approx(low, rel=2e-3)
    assert found.width_high == pytest.approx(high, rel=2e-3)
    assert found.width == pytest.approx(math.exp(float(x.mean()) + up / line.exponent))


def test_a_line_that_may_be_flat_has_no_upper_end() -> None:
    found = forecast(MANY, law(MANY, 0.02, 1.0, 0.0, noise=0.2), target=0.3, floor=0)
    assert math.isinf(found.width_high)
    assert has(found.warnings, "no upper bound") or has(found.warnings, "do not fall")
    assert has(found.warnings, "not above 0 for certain")
    assert has(found.warnings, "differ by no more than noise")
    rising = forecast(MANY, law(MANY, -0.5, 1.0, 0.0), target=0.3, floor=0)
    assert math.isinf(rising.width)
    assert has(rising.warnings, "none reaches the target")


@pytest.mark.slow
@pytest.mark.parametrize(("floor", "given"), [(0.0, 0.0), (0.1, "fit")])
def test_intervals_hold_as_often_as_they_say(floor: float, given: float | str) -> None:
    target, alpha, scale = 0.2, 0.8, 5.0
    true = (scale / (target - floor)) ** (1 / alpha)
    holds = exponents = 0
    for seed in range(40):
        losses = law(MANY, alpha, scale, floor, noise=0.03, seed=seed)
        found = forecast(MANY, losses, target=target, floor=given)  # type: ignore[arg-type]
        holds += found.width_low <= true <= found.width_high
        exponents += found.low <= alpha <= found.high
    assert 34 <= holds <= 40  # 38 ± 3σ
    assert 34 <= exponents <= 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alpha", "scale", "floor", "noise"),
    [(1.0, 100.0, 0.01, 0.03), (1.0, 100.0, 0.0, 0.03), (0.3, 5.0, 0.0, 0.02)],
)
def test_exponents_allow_for_a_floor_that_was_not_found(
    alpha: float, scale: float, floor: float, noise: float
) -> None:
    """The interval of the kept law has the first exponent in half of the draws alone."""
    draws, holds = 150, 0
    m = torch.tensor(SIX, dtype=torch.float64)
    for seed in range(draws):
        loss = torch.tensor(law(SIX, alpha, scale, floor, noise, seed), dtype=torch.float64)
        laws = fit_laws(m, loss, "fit")
        low, high = exponent_interval(m, loss, laws.chosen, laws)
        holds += low <= alpha <= high
    assert 0.9 * draws <= holds


def test_the_interval_has_laws_that_fit_hardly_worse() -> None:
    """Each floor's exponents by hand; with a floor given there is nothing to allow for."""
    losses = law(SIX, 1.0, 100.0, 0.01, noise=0.03, seed=0)
    found, alone = forecast(SIX, losses), forecast(SIX, losses, floor=0.0)
    assert not found.floor_needed
    assert (found.exponent, found.error) == (alone.exponent, alone.error)
    assert found.low <= alone.low
    assert found.high > alone.high + 0.05
    m, loss = (torch.tensor(values, dtype=torch.float64) for values in (SIX, losses))
    most = fit_floor(m, loss, floor=None).squares * (1 + t975(3) ** 2 / 3)
    ends = []
    for share in torch.linspace(0, 0.9, 31, dtype=torch.float64).tolist():
        one = fit_floor(m, loss, floor=share * min(losses))
        if one.squares <= most:
            off = math.sqrt((most - one.squares) * float(one.covariance[1, 1]))
            ends += [one.exponent - off, one.exponent + off]
    assert found.low == pytest.approx(min(*ends, alone.low), rel=1e-6)
    assert found.high == pytest.approx(max(*ends, alone.high), rel=1e-6)
    assert f"to {found.high:.2f}" in found.regime.words


def mixture(widths: list[float]) -> list[float]:
    """Two power laws, which look like one with a floor that is none."""
    return [100 / m**1.5 + 3 / m**0.3 for m in widths]


def test_windows_are_fitted_anew_floor_and_all() -> None:
    """A floor of all widths would make their exponents alike."""
    found = forecast(SIX, mixture(SIX))
    assert found.floor_needed
    assert [window.from_width for window in found.windows] == [64, 128, 256]  # to four widths
    for window in found.windows:
        some = [m for m in SIX if m >= window.from_width]
        alone = forecast(some, mixture(some))
        assert window.exponent == pytest.approx(alone.exponent)
        assert window.floor == pytest.approx(alone.floor)
        assert (window.low, window.high) == pytest.approx((alone.low, alone.high))
    assert found.windows[0].floor == found.floor > 0.15
    assert found.windows[-1].floor == 0
    assert found.spread == pytest.approx(0.185, abs=1e-3)


def test_windows_that_contradict_all_widths() -> None:
    found = forecast(MANY, mixture(MANY))
    assert found.floor_needed
    assert has(found.warnings, "depends on which widths are fitted")
    assert has(found.warnings, "from width 128 on the exponent is another: 0.34 to 0.46")
    # By less than 0.2, and all the same for certain.
    small = forecast(MANY, [100 / m**1.5 + 10 / m**0.5 for m in MANY])
    assert small.spread < 0.2
    assert has(small.warnings, "on the exponent is another")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alpha", "scale", "floor", "noise"),
    [
        (0.8, 5.0, 0.1, 0.03),
        (0.8, 5.0, 0.1, 0.01),
        (1.0, 100.0, 0.5, 0.02),
        (1.0, 100.0, 0.0, 0.03),
    ],
)
def test_windows_of_true_laws_seldom_warn(
    alpha: float, scale: float, floor: float, noise: float
) -> None:
    draws, warned = 40, 0
    for seed in range(draws):
        said = forecast(SIX, law(SIX, alpha, scale, floor, noise, seed)).warnings
        warned += has(said, "depends on which widths") or has(said, "exponent is another")
    assert warned <= 0.1 * draws


@pytest.mark.parametrize("floor", [0.0, 0.1, 1.0])
def test_windows_of_exact_laws_never_warn(floor: float) -> None:
    for widths in (SIX, MANY):
        found = forecast(widths, law(widths, 0.8, 5.0, floor))
        assert found.trusted
        assert found.spread < 1e-4


def test_a_target_far_below_the_narrowest() -> None:
    losses = law(MANY, 1.0, 30.0, 0.0)
    for target, warns in ((1e3, True), (30 / 3.9, True), (30 / 4.1, False), (1e-2, False)):
        found = forecast(MANY, losses, target=target)
        assert has(found.warnings, "times below the narrowest, 16") == warns


def test_a_floor_at_the_target_is_not_ruled_out() -> None:
    losses = law(MANY, 0.8, 5.0, 0.1, noise=0.03)
    found = forecast(MANY, losses, target=0.101)
    assert found.floor_needed
    assert math.isinf(found.width_high)
    assert found.width_low > MANY[-1]
    assert found.width_low < found.width
    assert found.as_dict()["width_high"] is None
    known = forecast(MANY, losses, target=0.101, floor=0.1)
    assert known.floor == pytest.approx(0.1)
    assert math.isnan(known.floor_error)
    hopeless = forecast(MANY, losses, target=0.09, floor=0.1)
    assert math.isinf(hopeless.width_low)
    assert has(hopeless.warnings, "not above the floor")


def test_a_floor_is_asked_for_no_more_often_than_chance() -> None:
    needed = 0
    m = torch.tensor(MANY, dtype=torch.float64)
    for seed in range(60):
        loss = torch.tensor(law(MANY, 0.8, 5.0, 0.0, noise=0.05, seed=seed), dtype=torch.float64)
        found = fit_laws(m, loss, "fit")
        needed += found.needed
        assert not found.needed or found.f_statistic > t975(6) ** 2
    assert needed <= 6  # 1.5 expected: noise that bends down asks for none
    clear = forecast(MANY, law(MANY, 0.8, 5.0, 0.5, noise=0.05))
    assert clear.floor_needed
    assert clear.aicc_floor < clear.aicc_line
    assert clear.floor == pytest.approx(0.5, abs=4 * clear.floor_error)


def test_a_floor_never_fits_worse_than_none() -> None:
    m = torch.tensor(MANY, dtype=torch.float64)
    for seed in range(20):
        floor = (0.0, 0.3)[seed % 2]
        loss = torch.tensor(law(MANY, 0.8, 5.0, floor, noise=0.3, seed=seed), dtype=torch.float64)
        line, best = fit_floor(m, loss, floor=0.0), fit_floor(m, loss, floor=None)
        assert best.squares <= line.squares * (1 + 1e-12)
        near = [
            fit_floor(m, loss, floor=float(b) * float(loss.min()))
            for b in torch.linspace(0, 0.99, 30)
        ]
        assert best.squares <= min(one.squares for one in near) * (1 + 1e-6)


def test_laws_through_a_point() -> None:
    """The best of them goes through the best law's own point, and ∞ is a floor at the target."""
    m = torch.tensor(MANY, dtype=torch.float64)
    loss = torch.tensor(law(MANY, 0.8, 5.0, 0.1, noise=0.05), dtype=torch.float64)
    best = fit_floor(m, loss, floor=None)
    through = best.width(0.2)
    widths = torch.tensor([through / 2, through, 2 * through, 1e30, math.inf], dtype=torch.float64)
    left = least_squares_through(m, loss, widths, 0.2, floor=None)
    assert float(left[1]) == pytest.approx(best.squares, rel=1e-6)
    assert float(left.min()) == pytest.approx(best.squares, rel=1e-6)
    assert float(left[3]) == pytest.approx(float(left[4]), rel=0.02)
    at_floor = fit_floor(m, loss, floor=0.1)
    assert float(least_squares_through(m, loss, widths[4:], 0.1, floor=None)) == pytest.approx(
        at_floor.squares, rel=1e-6
    )


def test_published_losses() -> None:
    found = forecast(TOY_WIDTHS, TOY, target=0.05)
    assert found.exponent == pytest.approx(1.06, abs=6e-3)
    assert has(found.warnings, "bend down")
    # A floor that six losses do not rule out would leave an exponent above those of strong ones.
    assert found.regime.name == "cannot tell"
    assert forecast(TOY_WIDTHS, TOY, floor=0).regime.name == "strong"
    linear = forecast(WIDTHS, STRONG["linear"])
    assert has(linear.warnings, "depends on which widths are fitted")
    weak = forecast(WIDTHS, WEAK["power"])
    assert has(weak.warnings, "from width 8 to 16 they rise")
    assert not weak.trusted


def test_few_or_narrow_widths() -> None:
    three = forecast([8, 16, 24], [1.0, 0.52, 0.33], target=0.3)
    assert has(three.warnings, "there are 3 different widths, fewer than 5")
    assert has(three.warnings, "a floor needs 4 different widths")
    assert has(three.warnings, "the widest is 3 times the narrowest")
    assert math.isnan(three.aicc_floor)
    assert not has(forecast([8, 16, 24], [1.0, 0.52, 0.33], floor=0).warnings, "a floor needs")


def test_several_seeds_of_a_width() -> None:
    widths = [m for m in MANY for _ in range(3)]
    losses = law(widths, 0.8, 5.0, 0.1, noise=0.02)
    found = forecast(widths, losses, target=0.2)
    assert (found.points, found.distinct) == (27, 9)
    assert found.noise == pytest.approx(0.02, rel=0.4)
    assert found.width == pytest.approx((5 / 0.1) ** 1.25, rel=0.1)
    assert found.trusted


def test_as_json_and_as_a_picture() -> None:
    found = forecast(TOY_WIDTHS, TOY, target=0.05, data_exponent=1.0)
    told = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert told["regime"]["name"] == "strong"
    assert told["points"] == 6
    assert told["warnings"] == list(found.warnings)
    assert told["losses"] == list(TOY)
    svg = found.plot().svg
    assert "target 0.05" in svg
    assert "reaches 0.05 at width 139" in svg
    assert f"The band is that of exponents from {found.low:.3g} to {found.high:.3g}." in svg
    assert svg.count('<path class="band') == 1
    assert "target" not in forecast(TOY_WIDTHS, TOY).plot().svg
    for target in (0.9, 0.3, 1e-9):  # before the data, among them, and far beyond
        forecast(TOY_WIDTHS, TOY, target=target).plot()
    losses = law(MANY, 0.8, 5.0, 0.1, noise=0.03)
    assert "no width reaches 0.05" in forecast(MANY, losses, target=0.05).plot().svg


@pytest.mark.parametrize(
    ("widths", "losses", "options", "message"),
    [
        ([1, 2], [2, 1], {}, "needs 3 different widths, got 2"),
        ([1, 1, 2, 2], [2, 2, 1, 1], {}, "needs 3 different widths, got 2"),
        ([1, 2, 3], [2, 1, 0], {}, "losses must be positive"),
        ([1, 2, 3], [2, 1, math.nan], {}, "losses must be finite"),
        ([-1, 2, 3], [2, 1, 1], {}, "widths must be positive"),
        ([1, 2, 3], [2, 1], {}, "3 widths and 2 losses"),
        ([1, 2, 3], [3, 2, 1], {"target": 0.0}, "target must be positive"),
        ([1, 2, 3], [3, 2, 1], {"target": math.inf}, "target must be positive and finite"),
        ([1, 2, 3], [3, 2, 1], {"floor": 1.0}, "below all losses"),
        ([1, 2, 3], [3, 2, 1], {"floor": -1.0}, "at least 0"),
        ([1, 2, 3], [3, 2, 1], {"floor": "free"}, 'a number or "fit"'),
    ],
)
def test_bad_input(
    widths: list[float], losses: list[float], options: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        forecast(widths, losses, **options)  # type: ignore[arg-type]


def test_a_width_is_positive() -> None:
    with pytest.raises(ValueError, match="a width is positive"):
        forecast(TOY_WIDTHS, TOY).at(0)
