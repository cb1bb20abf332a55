"""What a run says of each regime: over all seeds, as numbers and as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from beltrami.analysis.intervals import Interval, mean_interval
from beltrami.analysis.superposition import (
    ExponentWindows,
    classify_regime,
    exponent_windows,
)
from beltrami.diagnosis.numbers import finite
from beltrami.recipes.results import ArmResult, RunResult, interval_json
from beltrami.recipes.superposition.config import HALVES, NAMES, TWIN
from beltrami.recipes.superposition.measures import EXPONENT, LOSS, ONE, OVERLAP, key
from beltrami.recipes.superposition.measures import HALF as SHARE
from beltrami.recipes.superposition.regimes import Regime, regimes_of
from beltrami.recipes.tables import difference_cell, show
from beltrami.report.page import Cell, Row, Table

if TYPE_CHECKING:
    from beltrami.recipes.superposition.recipe import SuperpositionRecipe

MOVED = 0.1  # of an exponent between half and all steps, above which a training is not at its end
SETTLED = 0.1  # of a loss, as a share
SQUARE = 4 / 3  # mean of a feature's value squared, which answering 0 loses of each that is there
NOISE = 0.05  # by which a loss of the last steps' samples may be above it; decay may leave all out
SHOWN_WINDOWS = 3
SINGLE = "± is the 95% interval of the fit of one seed"
NOT_CHECKED = "Whether the steps were enough was not checked: --no-check-steps."
MOST_TIMES = 20  # of the loss to what is unlearned, beyond which the one is not the other


@dataclass(frozen=True)
class RegimeResult:
    """One regime of one stack, over all seeds.

    Args:
        regime: which. windows: exponents of all seeds' losses together, by window.
        exponent: mean over seeds; of one seed with the interval of its fit.
        losses, shares, above_one: means over seeds, one a width.
            above_one is NaN where all rows have length 1.
        overlaps: mean squared cosines of rows longer than 1, or of all that have length 1, one a
            width; NaN of fewer than two.
        unlearned: what features that are not represented must lose, one a width.
    """

    regime: Regime
    widths: tuple[int, ...]
    windows: ExponentWindows
    exponent: Interval
    losses: tuple[Interval, ...]
    shares: tuple[float, ...]
    above_one: tuple[float, ...]
    overlaps: tuple[float, ...]
    unlearned: tuple[float, ...]


def regime_results(arm_result: ArmResult) -> list[RegimeResult]:
    """Of all regimes of an arm."""
    settings = arm_result.arm.settings
    widths = tuple(settings["widths"])
    found = []
    for regime in regimes_of(settings):
        curves = {
            name: [result.curves[key(name, regime)] for result in arm_result.results]
            for name in (LOSS, SHARE, ONE, OVERLAP, "unlearned")
        }
        pooled = [float(v) for one in curves[LOSS] for v in one]
        windows = exponent_windows(list(widths) * len(arm_result.results), pooled)
        exponent = arm_result.comparison(key(EXPONENT, regime)).value
        if exponent.half_width is None:
            exponent = Interval(exponent.mean, windows.fits[0].high - windows.fits[0].exponent)
        found.append(
            RegimeResult(
                regime,
                widths,
                windows,
                exponent,
                tuple(mean_interval(list(column)) for column in zip(*curves[LOSS], strict=True)),
                *(_means(curves[name]) for name in (SHARE, ONE, OVERLAP, "unlearned")),
            )
        )
    return found


def _means(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Over seeds; a number below 0 stands for none, and is none of the mean's."""
    found = []
    for column in zip(*curves, strict=True):
        known = [v for v in column if v >= 0]
        found.append(math.fsum(known) / len(known) if known else math.nan)
    return tuple(found)


def regime_tables(recipe: SuperpositionRecipe, run_result: RunResult) -> list[Table]:
    """A table a law and density: a row a regime and a way to read features."""
    seeds = len(run_result.arm_results[0].results)
    spread = f"± is a 95% interval, over {seeds} seeds" if seeds > 1 else SINGLE
    unchecked = "" if recipe.config.check_steps else f" {NOT_CHECKED}"
    tables = []
    for group, arm_results in run_result.groups().items():
        shown = whole_trainings(arm_results)
        compared = len(shown) > 1
        tables.append(
            Table(
                f"{group}. {spread}; “from” leaves out narrower models.{unchecked}",
                _columns(shown[0], compared),
                tuple(row for s in shown for row in _rows(recipe, s, compared)),
                head="Models",
            )
        )
    return tables


def _columns(arm_result: ArmResult, compared: bool) -> tuple[str, ...]:
    widths = arm_result.arm.settings["widths"]
    return (
        "Superposition",
        "Exponent",
        *(["− linear"] if compared else []),
        *(f"from {m}" for m in widths[1 : min(SHOWN_WINDOWS, len(widths) - 2)]),
        "R²",
        f"Loss at {widths[-1]}",
        "Features",
        "above 1",
        "Overlap · m",
        "/ unlearned",
    )


def _rows(recipe: SuperpositionRecipe, arm_result: ArmResult, compared: bool) -> Iterator[Row]:
    n, model = recipe.config.chosen("features"), arm_result.arm.model
    for one in regime_results(arm_result):
        name = one.regime.title if model == TWIN else f"{one.regime.title}, {recipe.names[model]}"
        difference = arm_result.comparison(key(EXPONENT, one.regime))
        middle = len(one.widths) // 2
        values: list[str | Cell] = [
            classify_regime(one.shares[middle], n, one.widths[middle]).name,
            show(one.exponent, 2),
        ]
        if compared:
            values.append("–" if model == TWIN else difference_cell(difference))
        later = one.windows.fits[1 : min(SHOWN_WINDOWS, len(one.widths) - 2)]
        values += [
            *(_number(fit.exponent) for fit in later),
            _number(one.windows.fits[0].r_squared, 3),
            show(one.losses[-1], 4),
            f"{one.shares[-1]:.1%}",
            f"{one.above_one[-1]:.1%}" if math.isfinite(one.above_one[-1]) else "–",
            _number(one.overlaps[-1] * one.widths[-1]),
            _number(_over_unlearned(one)),
        ]
        yield Row(name, "", tuple(values))


def _over_unlearned(one: RegimeResult) -> float:
    """The widest model's loss as a multiple; NaN where nearly all is learned."""
    loss, unlearned = one.losses[-1].mean, one.unlearned[-1]
    return loss / unlearned if unlearned > loss / MOST_TIMES else math.nan


def _number(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}".replace("-", "−") if math.isfinite(value) else "–"


@dataclass(frozen=True)
class Settling:
    """What the second half of the steps changed, in one regime.

    Args:
        group, model, regime: where. before, after: exponents with half the steps and with all.
        change: of the widest model's loss, as a share of what it was.
        over_zero: that loss as a multiple of what answering 0 always loses, Σ 4/3·p.
    """

    group: str
    model: str
    regime: str
    before: float
    after: float
    change: float
    over_zero: float

    @property
    def steady(self) -> bool:
        """Whether half the steps give about the same numbers."""
        return abs(self.after - self.before) <= MOVED and abs(self.change) <= SETTLED

    @property
    def learned(self) -> bool:
        """Whether the model is no worse than none: at its start it may be steady, too."""
        return self.over_zero <= 1 + NOISE

    @property
    def settled(self) -> bool:
        """Whether nothing says that more steps are needed."""
        return self.steady and self.learned

    def as_json(self) -> dict[str, Any]:
        """Under the names of the fields."""
        names = ("before", "after", "change", "over_zero")
        numbers = {name: finite(getattr(self, name)) for name in names}
        return {**asdict(self), **numbers, "settled": self.settled}


def whole_trainings(arm_results: Sequence[ArmResult]) -> list[ArmResult]:
    """Without those of half the steps."""
    return [s for s in arm_results if s.arm.model not in HALVES.values()]


def settling(arm_results: Sequence[ArmResult]) -> list[Settling]:
    """Of all regimes; none where half the steps were not trained."""
    found = []
    by_name = {(s.arm.group, s.arm.model): s for s in arm_results}
    for (group, readout), arm_result in by_name.items():
        shorter = by_name.get((group, HALVES.get(readout, "")))
        if shorter is None:
            continue
        zero = SQUARE * arm_result.arm.settings["density"]
        pairs = zip(regime_results(arm_result), regime_results(shorter), strict=True)
        for now, before in pairs:
            loss = now.losses[-1].mean
            change = loss / before.losses[-1].mean - 1
            exponents = before.exponent.mean, now.exponent.mean
            place = group, readout, now.regime.title
            found.append(Settling(*place, *exponents, change, loss / zero))
    return found


def findings_json(arm_results: Sequence[ArmResult]) -> dict[str, Any]:
    """For metrics.json: regimes with their exponents by window, and what half the steps gave."""
    regimes = []
    for arm_result in whole_trainings(arm_results):
        arm = arm_result.arm
        for one in regime_results(arm_result):
            place = len(one.widths) // 2
            features = arm.settings["features"]
            regimes.append(
                {
                    "group": arm.group,
                    "model": arm.model,
                    "regime": one.regime.title,
                    "gamma": one.regime.gamma,
                    "superposition": classify_regime(
                        one.shares[place], features, one.widths[place]
                    ).name,
                    "widths": list(one.widths),
                    "losses": [interval_json(loss) for loss in one.losses],
                    "exponent": interval_json(one.exponent),
                    "windows": [
                        {
                            "from": width,
                            "exponent": finite(fit.exponent),
                            "error": finite(fit.error),
                            "r_squared": finite(fit.r_squared),
                        }
                        for width, fit in zip(one.widths, one.windows.fits, strict=False)
                    ],
                    "represented": [finite(v) for v in one.shares],
                    "above_one": [finite(v) for v in one.above_one],
                    "overlaps": [finite(v) for v in one.overlaps],
                    "unlearned": [finite(v) for v in one.unlearned],
                }
            )
    settled = settling(arm_results)
    convergence = {
        "settled": all(one.settled for one in settled) if settled else None,
        "regimes": [one.as_json() for one in settled],
    }
    return {"regimes": regimes, "convergence": convergence}


def why_unsettled(found: Sequence[Settling]) -> str:
    """What says that more steps are needed, as words after a colon; empty where nothing does."""
    reasons = []
    if not all(one.steady for one in found):
        reasons.append("half the steps give other numbers")
    if not all(one.learned for one in found):
        reasons.append("models lose more than answering 0 always would")
    return ", and ".join(reasons)


def _converged(found: Sequence[Settling]) -> str:
    if why := why_unsettled(found):
        return f"Not converged: {why}. Give more --steps."
    return "Trained long enough, as far as half the steps tell."


def settling_table(found: Sequence[Settling]) -> Table:
    """A row a regime."""
    return Table(
        _converged(found),
        ("Exponent, half", "all steps", "Loss", "/ answering 0", "Settled"),
        tuple(
            Row(
                f"{one.group}, {one.regime}",
                "" if one.model == TWIN else NAMES[one.model],
                (
                    _number(one.before),
                    _number(one.after),
                    f"{one.change:+.0%}".replace("-", "−"),
                    _number(one.over_zero),
                    "yes" if one.settled else "no",
                ),
            )
            for one in found
        ),
        head="Models",
    )
