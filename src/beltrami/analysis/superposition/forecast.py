r"""How wide a model must be for a loss, and whether to believe it.

Two laws are fitted to log L: a power law, A·m^−α, and one with a floor, A·m^−α + B with B ≥ 0. The
floor is kept where it fits better than chance would (an F-test at 5 %).

That no floor was kept does not say that there is none, and a floor makes the exponent larger. So
where one was looked for and not kept, the interval of α has those of all laws that fit hardly worse
than the best with a floor: S(B) ≤ S·(1 + t²/freedom), a profile likelihood. For each such B it has

    α(B) ± √((S·(1 + t²/freedom) − S(B))·v(B)),   v(B) the variance of α for a noise of 1

For 100/m + 0.01 at 64 to 2048 with a noise of 3 %, which hides the floor in two of three draws, the
interval of the kept law has the true exponent in half of the draws, and this one in 95 %.

The interval of the width for a target has the widths at which a law with that loss fits hardly
worse than the best, by the same test. It has no upper end where a law whose floor is the target
fits so well: then no width may ever reach it. `warnings` say when not to trust a forecast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from beltrami.analysis.intervals import t975
from beltrami.analysis.results import Result
from beltrami.analysis.superposition.exponent import (
    ROUNDING,
    ExponentWindows,
    Numbers,
    exponent_windows,
    group_means,
    pure_error,
    sorted_points,
)
from beltrami.analysis.superposition.floor_fit import (
    FloorFit,
    exp_or_inf,
    fit_floor,
    fit_given_floors,
    least_squares_through,
)
from beltrami.analysis.superposition.regime import Regime, classify_exponent
from beltrami.report.lines import Series, line_chart
from beltrami.report.picture import Picture

FOR_A_LINE, FOR_A_FLOOR = 3, 4  # different widths
ENOUGH_WIDTHS = 5
ENOUGH_SPAN = 4.0  # widest/narrowest
MOST_SPREAD = 0.2  # of exponents between windows
MOST_APART = 0.01  # of exponents' intervals; those of exact laws are points but for rounding
MOST_BEYOND = 4.0  # times the widest, and below the narrowest
# How far from the widths an interval's ends are sought; beyond is as good as no end.
FAR = 1e9
_GRID = 48
_MOST_BAND = 10.0
_SHOWN = 60  # points of a fitted curve
# Floors that are tried, as shares of the smallest loss: even ones, and nearer and nearer to it.
_EVEN, _NEAR = 31, 16
Floor = float | Literal["fit"]


@dataclass(frozen=True)
class ForecastWindow(Result):
    """The law of the widths from some width on.

    Args:
        from_width: the narrowest.
        points, distinct: losses, and different widths.
        exponent: α. low, high: its 95 % interval, as that of a `Forecast`.
        floor: B of the law, 0 for a power law.
        r_squared: of log L; NaN for losses that are all the same.
    """

    from_width: float
    points: int
    distinct: int
    exponent: float
    low: float
    high: float
    floor: float
    r_squared: float


@dataclass(frozen=True)
class Forecast(Result):
    """A law of losses over widths, and what it says of a target.

    Args:
        exponent: α, of the law that is kept. error: its standard error, as if that were certain.
        low, high: its 95 % interval: that by the error, and where a floor was looked for and not
            kept, the exponents of laws with a floor that fit hardly worse.
        log_scale: log A; A itself, `scale`, may be larger than a number can be. floor: B, 0 for a
            power law.
        floor_error: its standard error; NaN where B was not fitted or is 0.
        floor_needed: whether a floor was fitted and is better than none by more than chance.
        f_statistic: of that test, with 1 and points − 3 degrees of freedom; NaN if it was not made.
        aicc_line, aicc_floor: Akaike's criterion for few points, of both laws, less is better; NaN
            where there are too few points or none are off the law.
        r_squared: of log L.
        noise: standard deviation of log L: of runs of the same width, or else about the law.
        target: the loss asked for, NaN if none. width: where the law has it, ∞ if nowhere.
        width_low, width_high: its 95 % interval; ∞ is no end. Both are ∞ where losses do not fall,
            and NaN without a target.
        points, distinct: losses, and different widths.
        windows: the law of all widths, that of those without the narrowest, and so on: fitted
            anew, floor and all, where a floor is needed.
        spread: the largest of their exponents less the smallest.
        curvature_t: of the quadratic term of losses less the floor (`exponent_windows`).
        regime: what the exponent says of superposition.
        warnings: why the forecast is not to be trusted; empty if nothing was found.
        widths, losses: what was fitted, by width.
    """

    exponent: float
    error: float
    low: float
    high: float
    log_scale: float
    floor: float
    floor_error: float
    floor_needed: bool
    f_statistic: float
    aicc_line: float
    aicc_floor: float
    r_squared: float
    noise: float
    target: float
    width: float
    width_low: float
    width_high: float
    points: int
    distinct: int
    windows: tuple[ForecastWindow, ...]
    spread: float
    curvature_t: float
    regime: Regime
    warnings: tuple[str, ...]
    widths: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def trusted(self) -> bool:
        """Whether there are no warnings."""
        return not self.warnings

    @property
    def scale(self) -> float:
        """A, ∞ where it is too large."""
        return exp_or_inf(self.log_scale)

    @property
    def bend(self) -> ExponentWindows:
        """How the losses bend, less the floor where there is one."""
        above = [loss - self.floor for loss in self.losses]
        return exponent_windows(self.widths, above if min(above) > 0 else self.losses)

    def at(self, width: float) -> float:
        """The loss that the law has at a width."""
        if not width > 0:
            raise ValueError(f"a width is positive, got {width}")
        return exp_or_inf(self.log_scale - self.exponent * math.log(width)) + self.floor

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it: numbers that are not finite are None, and the regime two texts."""
        return {**self.as_json(), "scale": self.scale if math.isfinite(self.scale) else None}

    def plot(self) -> Picture:
        """The losses, the law with its exponent's interval, and the target with its own."""
        first, last = self.widths[0], self.widths[-1]
        ends = [w for w in (self.width, self.width_high) if first / FAR <= w <= FAR * last]
        first, last = min(first, *ends, first), max(last, *ends, last)
        steps = torch.linspace(math.log(first), math.log(last), _SHOWN, dtype=torch.float64)
        along = steps.exp().tolist()
        name = f"α = {self.exponent:.2f}" + (f", B = {self.floor:.3g}" if self.floor else "")
        law = [self.at(width) for width in along]
        lines = [
            Series("losses", self.widths, self.losses),
            Series(name, along, law, *self._band(along, law)),
        ]
        description = "Losses and the law fitted to them."
        if lines[1].low is not None:
            description += f" The band is that of exponents from {self.low:.3g} to {self.high:.3g}."
        if not math.isnan(self.target):
            low, high = max(self.width_low, first), min(self.width_high, last)
            where = [low, high] if low <= high else [first, last]
            lines.append(Series(f"target {self.target:.3g}", where, [self.target] * 2))
            description += " " + (
                f"By the law no width reaches {self.target:.3g}."
                if math.isinf(self.width)
                else f"The law reaches {self.target:.3g} at width {self.width:.3g}, with an "
                f"interval from {self.width_low:.3g} to {self.width_high:.3g}."
            )
        chart = line_chart(
            lines,
            title="Loss over width, and the forecast",
            description=description,
            x_label="Width m",
            y_label="Loss",
            x_log=True,
            y_log=True,
        )
        return Picture(chart)

    def _band(
        self, along: list[float], law: list[float]
    ) -> tuple[list[float], list[float]] | tuple[None, None]:
        """The losses of the exponents in the interval, by laws through the middle of the widths.

        Nothing where the interval has no ends; cut off at `_MOST_BAND` times the law.
        """
        if not math.isfinite(self.low + self.high):
            return None, None
        middle = sum(map(math.log, self.widths)) / len(self.widths)
        low, high = [], []
        for width, loss in zip(along, law, strict=True):
            off = math.log(width) - middle
            ends = [(self.exponent - end) * off for end in (self.low, self.high)]
            above = [exp_or_inf(end) * (loss - self.floor) + self.floor for end in ends]
            low.append(max(min(above), loss / _MOST_BAND))
            high.append(min(max(above), loss * _MOST_BAND))
        return low, high


def forecast(
    widths: Numbers,
    losses: Numbers,
    *,
    target: float | None = None,
    floor: float | Literal["fit"] = "fit",
    data_exponent: float | None = None,
) -> Forecast:
    """The law of losses over widths, and the width for a target.

    Args:
        widths: in any order, at least 3 different ones; several runs of a width are welcome.
        losses: one a width, positive.
        target: a loss to be reached, positive.
        floor: B, if it is known, 0 for a power law; "fit" fits it from 4 different widths on.
        data_exponent: of frequencies of features, if it is known: see `classify_exponent`.

    Raises:
        ValueError: for fewer than 3 different widths, numbers that are not finite or not positive,
            and a floor that is not below all losses.
    """
    m, loss = sorted_points(widths, losses)
    _check(m, loss, target, floor)
    laws = fit_laws(m, loss, floor)
    law = laws.chosen
    windows = _windows(m, loss, laws, floor)
    exponents = [window.exponent for window in windows]
    low, high = windows[0].low, windows[0].high
    width, width_low, width_high = math.nan, math.nan, math.nan
    if target is not None:
        width = law.width(target)
        width_low, width_high = _interval(m, loss, laws, float(target))
    among = pure_error(m, loss.log())
    result = Forecast(
        exponent=law.exponent,
        error=law.error,
        low=low,
        high=high,
        log_scale=law.log_scale + law.level + law.exponent * law.centre,
        floor=law.loss_floor,
        floor_error=law.floor_error,
        floor_needed=laws.needed,
        f_statistic=laws.f_statistic,
        aicc_line=laws.line.aicc,
        aicc_floor=math.nan if laws.floor is None else laws.floor.aicc,
        r_squared=law.r_squared,
        noise=math.sqrt(law.variance) if math.isnan(among) else among,
        target=math.nan if target is None else float(target),
        width=width,
        width_low=width_low,
        width_high=width_high,
        points=len(m),
        distinct=len(m.unique()),
        windows=windows,
        spread=max(exponents) - min(exponents),
        curvature_t=math.nan,
        regime=classify_exponent(law.exponent, low, high, data_exponent=data_exponent),
        warnings=(),
        widths=tuple(m.tolist()),
        losses=tuple(loss.tolist()),
    )
    bend = result.bend
    warnings = (
        *_data_warnings(result, wants_floor=floor == "fit"),
        *_law_warnings(result, bend),
        *_target_warnings(result),
    )
    return replace(result, curvature_t=bend.curvature_t, warnings=warnings)


def _check(m: Tensor, loss: Tensor, target: float | None, floor: Floor) -> None:
    different = len(m.unique())
    if different < FOR_A_LINE:
        raise ValueError(f"a forecast needs {FOR_A_LINE} different widths, got {different}")
    if target is not None and not 0 < target < math.inf:
        raise ValueError(f"target must be positive and finite, got {target}")
    if isinstance(floor, str) and floor != "fit":
        raise ValueError(f'floor must be a number or "fit", got {floor!r}')
    if not isinstance(floor, str) and not 0 <= floor < float(loss.min()):
        raise ValueError(
            f"floor must be at least 0 and below all losses, got {floor} for losses from "
            f"{float(loss.min()):g}"
        )


@dataclass(frozen=True)
class Laws:
    """The power law, the law with a floor where it was fitted, and which of both to keep."""

    line: FloorFit  # without a floor, or with the one that was given
    floor: FloorFit | None
    needed: bool
    f_statistic: float

    @property
    def chosen(self) -> FloorFit:
        """The law with a floor where it is needed."""
        return self.floor if self.needed and self.floor is not None else self.line


def fit_laws(m: Tensor, loss: Tensor, floor: Floor) -> Laws:
    """Both laws, and the choice; with a floor given, or too few widths for one, the line alone."""
    line = fit_floor(m, loss, floor=0.0 if isinstance(floor, str) else float(floor))
    if not isinstance(floor, str) or len(m.unique()) < FOR_A_FLOOR:
        return Laws(line, None, False, math.nan)
    curved = fit_floor(m, loss, floor=None)
    if line.exact or curved.floor == 0:
        return Laws(line, curved, False, 0.0)
    f = math.inf if curved.exact else (line.squares - curved.squares) / curved.variance
    return Laws(line, curved, f > t975(curved.freedom) ** 2, f)


def exponent_interval(m: Tensor, loss: Tensor, law: FloorFit, laws: Laws) -> tuple[float, float]:
    """The 95 % interval of the α of one of the laws, which allows for a floor, as the head says."""
    if math.isinf(law.error):  # a floor that is all but the loss leaves α without any bounds
        return -math.inf, math.inf
    off = t975(law.freedom) * law.error
    low, high = law.exponent - off, law.exponent + off
    if law is laws.floor or laws.floor is None or law.exact:
        return low, high
    near = 0.1 ** torch.linspace(1, 4, _NEAR, dtype=torch.float64)
    shares = torch.cat([torch.linspace(0, 0.9, _EVEN, dtype=torch.float64), 1 - near[1:]])
    exponents, squares, variance = fit_given_floors(m, loss, shares * float(loss.min()))
    spare = laws.floor.most_squares - squares
    ends = (spare * variance).sqrt()  # NaN where a law fits worse
    good = spare >= 0
    below, above = (exponents - ends)[good].tolist(), (exponents + ends)[good].tolist()
    return min([low, *below]), max([high, *above])


def _windows(m: Tensor, loss: Tensor, laws: Laws, floor: Floor) -> tuple[ForecastWindow, ...]:
    """The law of all widths, that of those without the narrowest, and so on.

    Where a floor was kept, each window is fitted anew, floor and all, with the same choice: a floor
    of all widths would hide that the widest have another, or none. Such windows have 4 widths or
    more. Else they are lines, of 3 or more, with the floor that was given or none.
    """
    different = m.unique()
    fewest = FOR_A_FLOOR if laws.needed else FOR_A_LINE
    windows = []
    for start in different[: len(different) - fewest + 1]:
        widths, losses = m[m >= start], loss[m >= start]
        own = laws if len(widths) == len(m) else fit_laws(widths, losses, floor)
        law = own.chosen if laws.needed else own.line
        size = float(start), len(widths), len(widths.unique())
        ends = exponent_interval(widths, losses, law, own)
        window = ForecastWindow(*size, law.exponent, *ends, law.loss_floor, law.r_squared)
        windows.append(window)
    return tuple(windows)


def _interval(m: Tensor, loss: Tensor, laws: Laws, target: float) -> tuple[float, float]:
    """Widths at which a law through the target fits hardly worse than the best.

    Worse by no more than t² of the variance that the largest law leaves: the 95 % interval of a
    profile likelihood, which for a line is Fieller's.
    """
    best = laws.line if laws.floor is None else laws.floor
    middle = laws.chosen.width(target)
    fixed = None if best.parameters == 3 else best.loss_floor
    # Laws that rise have the target where models are narrower.
    if laws.chosen.exponent <= 0 or (fixed is not None and target <= fixed):
        return math.inf, math.inf
    if laws.chosen.exact:
        return middle, middle

    def fits(logs: Tensor) -> Tensor:
        squares = least_squares_through(m, loss, logs.exp(), target, floor=fixed)
        return squares <= best.most_squares

    first, last = math.log(float(m[0]) / FAR), math.log(float(m[-1]) * FAR)
    grid = torch.linspace(first, last, _GRID, dtype=torch.float64)
    if 0 < middle < math.inf and first < math.log(middle) < last:
        # The estimate itself fits, however narrow the interval about it is.
        near = math.log(middle) + torch.linspace(-2, 2, _GRID + 1, dtype=torch.float64) ** 3
        grid = torch.cat([grid, near]).sort().values
    good = fits(grid)
    # With a floor given, or none, a law must fall to reach the target, however far out.
    endless = bool(good[-1]) or (fixed is None and bool(fits(torch.tensor([math.inf]))))
    if not bool(good.any()):
        return (math.inf, math.inf) if endless else (middle, middle)
    low, high = int(good.nonzero()[0]), int(good.nonzero()[-1])
    below = 0.0 if low == 0 else _end(fits, float(grid[low - 1]), float(grid[low]))
    above = math.inf if endless else _end(fits, float(grid[high + 1]), float(grid[high]))
    return below, above


def _end(fits: Callable[[Tensor], Tensor], outside: float, inside: float) -> float:
    """Where an interval ends between two logarithms of widths."""
    for _ in range(2):
        between = torch.linspace(inside, outside, _GRID, dtype=torch.float64)
        good = fits(between).tolist()
        last = good.index(False) if False in good else len(good) - 1
        inside, outside = float(between[max(0, last - 1)]), float(between[last])
    return math.exp((inside + outside) / 2)


def _data_warnings(result: Forecast, *, wants_floor: bool) -> Iterator[str]:
    if result.distinct < ENOUGH_WIDTHS:
        yield f"there are {result.distinct} different widths, fewer than {ENOUGH_WIDTHS}"
    if wants_floor and result.distinct < FOR_A_FLOOR:
        yield (
            f"a floor needs {FOR_A_FLOOR} different widths: only a power law without one was fitted"
        )
    span = result.widths[-1] / result.widths[0]
    if span < ENOUGH_SPAN:
        yield f"the widest is {span:.2g} times the narrowest, less than {ENOUGH_SPAN:g} times"
    m, loss = torch.tensor([result.widths, result.losses], dtype=torch.float64)
    widths, means, _ = group_means(m, loss.log())
    steps = means.diff()
    for place in (steps > ROUNDING).nonzero()[:1, 0].tolist():
        yield (
            f"losses do not always fall: from width {widths[place]:g} to {widths[place + 1]:g} "
            "they rise"
        )
    difference = math.sqrt(2) * result.noise  # the standard deviation of that of two losses
    if float(steps.abs().median()) < difference:
        yield (
            "losses of neighbouring widths differ by no more than noise, or than they are off the "
            f"law: half of them by less than {difference:.2g} of their size"
        )


def _law_warnings(result: Forecast, bend: ExponentWindows) -> Iterator[str]:
    if result.low <= 0:
        yield (
            f"the exponent, {result.exponent:.2f}, is not above 0 for certain: its interval begins "
            f"at {result.low:.2f}"
        )
    exponents = [window.exponent for window in result.windows]
    # A few widths near a floor keep none, and have a lower exponent: of laws with a floor and a
    # noise of 1 to 3 %, most have exponents that are 0.2 apart. So with a fitted floor a window and
    # all widths must each have an exponent outside the other's interval.
    more_than_chance = not result.floor_needed or any(
        not window.low <= result.exponent <= window.high
        and not result.low <= window.exponent <= result.high
        for window in result.windows
    )
    if result.spread > MOST_SPREAD and more_than_chance:
        yield (
            f"the exponent depends on which widths are fitted: from {min(exponents):.2f} to "
            f"{max(exponents):.2f}, by more than {MOST_SPREAD:g}"
        )
    for window in result.windows:
        if max(window.low - result.high, result.low - window.high) > MOST_APART:
            yield (
                f"from width {window.from_width:g} on the exponent is another: {window.low:.2f} to "
                f"{window.high:.2f}, and that of all widths {result.low:.2f} to {result.high:.2f}"
            )
            break
    if bend.concave or bend.convex:
        way = "down: they fall faster" if bend.concave else "up: they fall more slowly"
        yield (
            f"losses bend {way} than a power law with increasing width (t = {bend.curvature_t:.1f})"
        )


def _target_warnings(result: Forecast) -> Iterator[str]:
    if math.isnan(result.target):
        return
    if result.target <= result.floor:
        yield (
            f"the target, {result.target:.3g}, is not above the floor, {result.floor:.3g}: no "
            "width reaches it by this law"
        )
    elif math.isinf(result.width):
        yield "losses do not fall with width, so that none reaches the target"
    elif math.isinf(result.width_high):
        yield (
            "the width for the target has no upper bound: that no width reaches it is not ruled out"
        )
    if MOST_BEYOND * result.widths[-1] < result.width < math.inf:
        yield (
            f"the target is {result.width / result.widths[-1]:.3g} times beyond the widest, more "
            f"than {MOST_BEYOND:g} times"
        )
    if MOST_BEYOND * result.width < result.widths[0]:
        yield (
            f"the width for the target, {result.width:.3g}, is more than {MOST_BEYOND:g} times "
            f"below the narrowest, {result.widths[0]:g}"
        )
