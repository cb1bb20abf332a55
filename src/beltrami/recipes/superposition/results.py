"""What a run says of each regime: over all seeds, as numbers and as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from beltrami.analysis.intervals import Interval, mean_interval
from beltrami.analysis.superposition import ExponentWindows, classify_regime, exponent_windows
from beltrami.diagnosis.numbers import finite
from beltrami.recipes.results import ArmResult, RunResult, interval_json
from beltrami.recipes.superposition.config import HALVES, NAMES, TWIN
from beltrami.recipes.superposition.measures import (
    EXPONENT,
    HALF,
    LOSS,
    ONE,
    OVERLAP,
    UNLEARNED,
    Regime,
    key,
)
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
        group, model, features: of the arm. regime: which.
        windows: exponents of all seeds' losses together, by window.
        exponent: mean over seeds; of one seed with the interval of its fit.
        losses, shares, above_one: means over seeds, one a width.
            above_one is NaN where all rows have length 1.
        overlaps: mean squared cosines of rows longer than 1, or of all that have length 1, one a
            width; NaN of fewer than two.
        unlearned: what features that are not represented must lose, one a width.
    """

    group: str
    model: str
    features: int
    regime: Regime
    widths: tuple[int, ...]
    windows: ExponentWindows
    exponent: Interval
    losses: tuple[Interval, ...]
    shares: tuple[float, ...]
    above_one: tuple[float, ...]
    overlaps: tuple[float, ...]
    unlearned: tuple[float, ...]

    @property
    def title(self) -> str:
        """The regime, and how features are read where that is not the twin's way."""
        return self.regime.title + ("" if self.model == TWIN else f", {NAMES[self.model]}")

    @property
    def superposition(self) -> str:
        """Weak or strong, by the model of the middle width."""
        middle = len(self.widths) // 2
        return classify_regime(self.shares[middle], self.features, self.widths[middle]).name

    def as_json(self) -> dict[str, Any]:
        """As metrics.json has it."""
        names = ("exponent", "error", "r_squared")
        windows = [
            {"from": width, **{name: finite(getattr(fit, name)) for name in names}}
            for width, fit in zip(self.widths, self.windows.fits, strict=False)
        ]
        return {
            "group": self.group,
            "model": self.model,
            "regime": self.regime.title,
            "gamma": self.regime.gamma,
            "superposition": self.superposition,
            "widths": list(self.widths),
            "losses": [interval_json(loss) for loss in self.losses],
            "exponent": interval_json(self.exponent),
            "windows": windows,
            "represented": list(map(finite, self.shares)),
            "above_one": list(map(finite, self.above_one)),
            "overlaps": list(map(finite, self.overlaps)),
            "unlearned": list(map(finite, self.unlearned)),
        }


def regime_results(arm_result: ArmResult) -> list[RegimeResult]:
    """Of all regimes of an arm."""
    arm, results = arm_result.arm, arm_result.results
    widths = arm.settings.widths
    regimes = []
    for regime in arm.settings.regimes:
        curves = {
            name: [result.curves[key(name, regime)] for result in results]
            for name in (LOSS, HALF, ONE, OVERLAP, UNLEARNED)
        }
        windows = exponent_windows(widths * len(results), [v for c in curves[LOSS] for v in c])
        exponent = arm_result.comparison(key(EXPONENT, regime)).value
        if exponent.half_width is None:
            exponent = Interval(exponent.mean, windows.fits[0].high - windows.fits[0].exponent)
        losses = tuple(mean_interval(column) for column in zip(*curves[LOSS], strict=True))
        means = (_means(curves[name]) for name in (HALF, ONE, OVERLAP, UNLEARNED))
        features = arm.settings.features
        regimes.append(
            RegimeResult(
                arm.group, arm.model, features, regime, widths, windows, exponent, losses, *means
            )
        )
    return regimes


def _means(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Over seeds; a number below 0 stands for none, and is none of the mean's."""
    columns = [[v for v in column if v >= 0] for column in zip(*curves, strict=True)]
    return tuple(math.fsum(known) / len(known) if known else math.nan for known in columns)


def regime_tables(recipe: SuperpositionRecipe, run_result: RunResult) -> list[Table]:
    """A table a law and density: a row a regime and a way to read features."""
    seeds = len(run_result.arm_results[0].results)
    spread = f"± is a 95% interval, over {seeds} seeds" if seeds > 1 else SINGLE
    unchecked = "" if recipe.config.check_steps else f" {NOT_CHECKED}"
    tables = []
    for group, arm_results in run_result.groups().items():
        arms = whole_trainings(arm_results)
        compared = len(arms) > 1
        widths = arms[0].arm.settings.widths
        columns = (
            "Superposition",
            "Exponent",
            *(["− linear"] if compared else []),
            *(f"from {m}" for m in widths[1 : min(SHOWN_WINDOWS, len(widths) - 2)]),
            "R²",
            f"Loss at {widths[-1]}",
            "Features",
            "Longer than 1",
            "Overlap × width",
            "Loss ÷ unlearned",
        )
        rows = tuple(row for arm_result in arms for row in _rows(arm_result, compared))
        caption = f"{group}. {spread}; “from” leaves out narrower models.{unchecked}"
        tables.append(Table(caption, columns, rows, head="Models"))
    return tables


def _rows(arm_result: ArmResult, compared: bool) -> Iterator[Row]:
    for result in regime_results(arm_result):
        values: list[str | Cell] = [result.superposition, show(result.exponent, 2)]
        if compared:
            comparison = arm_result.comparison(key(EXPONENT, result.regime))
            values.append("–" if result.model == TWIN else difference_cell(comparison))
        fits, loss, unlearned = result.windows.fits, result.losses[-1], result.unlearned[-1]
        # Where nearly all is learned, the loss is not what is unlearned.
        times = loss.mean / unlearned if unlearned > loss.mean / MOST_TIMES else math.nan
        above_one = result.above_one[-1]
        values += [
            *(_number(fit.exponent) for fit in fits[1:SHOWN_WINDOWS]),
            _number(fits[0].r_squared, 3),
            show(loss, 4),
            f"{result.shares[-1]:.1%}",
            f"{above_one:.1%}" if math.isfinite(above_one) else "–",
            _number(result.overlaps[-1] * result.widths[-1]),
            _number(times),
        ]
        yield Row(result.title, "", tuple(values))


def _number(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}".replace("-", "−") if math.isfinite(value) else "–"


def signed_percent(share: float) -> str:
    """Such as "+4%" or "−12%"."""
    return f"{share:+.0%}".replace("-", "−")


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
        values = {k: finite(v) if isinstance(v, float) else v for k, v in asdict(self).items()}
        return {**values, "settled": self.settled}


def whole_trainings(arm_results: Sequence[ArmResult]) -> list[ArmResult]:
    """Without those of half the steps."""
    return [s for s in arm_results if s.arm.model not in HALVES.values()]


def settling(arm_results: Sequence[ArmResult]) -> list[Settling]:
    """Of all regimes; none where half the steps were not trained."""
    settlings = []
    by_name = {(s.arm.group, s.arm.model): s for s in arm_results}
    for (group, readout), arm_result in by_name.items():
        shorter = by_name.get((group, HALVES.get(readout, "")))
        if shorter is None:
            continue
        zero = SQUARE * arm_result.arm.settings.density
        pairs = zip(regime_results(arm_result), regime_results(shorter), strict=True)
        for now, before in pairs:
            loss = now.losses[-1].mean
            change = loss / before.losses[-1].mean - 1
            exponents = before.exponent.mean, now.exponent.mean
            place = group, readout, now.regime.title
            settlings.append(Settling(*place, *exponents, change, loss / zero))
    return settlings


def findings_json(arm_results: Sequence[ArmResult]) -> dict[str, Any]:
    """For metrics.json: regimes with their exponents by window, and what half the steps gave."""
    settlings = settling(arm_results)
    return {
        "regimes": [
            result.as_json()
            for arm_result in whole_trainings(arm_results)
            for result in regime_results(arm_result)
        ],
        "convergence": {
            "settled": all(s.settled for s in settlings) if settlings else None,
            "regimes": [s.as_json() for s in settlings],
        },
    }


def why_unsettled(settlings: Sequence[Settling]) -> str:
    """What says that more steps are needed, as words after a colon; empty where nothing does."""
    reasons = []
    if not all(s.steady for s in settlings):
        reasons.append("half the steps give other numbers")
    if not all(s.learned for s in settlings):
        reasons.append("models lose more than answering 0 always would")
    return ", and ".join(reasons)


def settling_table(settlings: Sequence[Settling]) -> Table:
    """A row a regime."""
    why = why_unsettled(settlings)
    enough = "Trained long enough, as far as half the steps tell."
    rows = tuple(
        Row(
            f"{s.group}, {s.regime}",
            "" if s.model == TWIN else NAMES[s.model],
            (
                _number(s.before),
                _number(s.after),
                signed_percent(s.change),
                _number(s.over_zero),
                "yes" if s.settled else "no",
            ),
        )
        for s in settlings
    )
    columns = ("Exponent, half", "all steps", "Loss", "/ answering 0", "Settled")
    caption = f"Not converged: {why}. Give more --steps." if why else enough
    return Table(caption, columns, rows, head="Models")
