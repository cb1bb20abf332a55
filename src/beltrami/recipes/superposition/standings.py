"""What a run says of each regime: over all seeds, as numbers and as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beltrami.analysis.intervals import Interval, mean_interval
from beltrami.analysis.superposition import (
    ExponentWindows,
    classify_regime,
    expected_kappa,
    exponent_windows,
)
from beltrami.recipes.outcome import Outcome, Standing
from beltrami.recipes.superposition.config import HALF, TWIN
from beltrami.recipes.superposition.measures import EXPONENT, LOSS, ONE, key
from beltrami.recipes.superposition.measures import HALF as SHARE
from beltrami.recipes.superposition.regimes import Regime, regimes_of
from beltrami.recipes.tables import difference_cell, show
from beltrami.report.page import Cell, Row, Table

if TYPE_CHECKING:
    from beltrami.recipes.superposition.recipe import SuperpositionRecipe

MOVED = 0.1  # of an exponent between half and all steps, above which a training is not at its end
SETTLED = 0.1  # of a loss, as a share
SHOWN_WINDOWS = 3
MOST_TIMES = 20  # of the loss to what is unlearned, beyond which the one is not the other


@dataclass(frozen=True)
class RegimeResult:
    """One regime of one stack, over all seeds.

    Args:
        regime: which. windows: exponents of all seeds' losses together, by window.
        exponent: mean over seeds.
        losses, shares, above_one, overlaps: means over seeds, one a width.
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


def regime_results(standing: Standing) -> list[RegimeResult]:
    """Of all regimes of a contestant."""
    settings = standing.contestant.settings
    widths = tuple(settings["widths"])
    found = []
    for regime in regimes_of(settings):
        curves = {
            name: [result.curves[key(name, regime)] for result in standing.results]
            for name in (LOSS, SHARE, ONE, "overlap", "unlearned")
        }
        pooled = [float(v) for one in curves[LOSS] for v in one]
        found.append(
            RegimeResult(
                regime,
                widths,
                exponent_windows(list(widths) * len(standing.results), pooled),
                standing.comparison(key(EXPONENT, regime)).value,
                tuple(mean_interval(list(column)) for column in zip(*curves[LOSS], strict=True)),
                *(_means(curves[name]) for name in (SHARE, ONE, "overlap", "unlearned")),
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


def regime_tables(recipe: SuperpositionRecipe, outcome: Outcome) -> list[Table]:
    """A table a law and density: a row a regime and a way to read features."""
    seeds = len(outcome.standings[0].results)
    spread = f"Exponents: mean ± 95% t-interval over {seeds} seeds" if seeds > 1 else "One seed"
    return [
        Table(
            f"{group}. {spread}; “from” leaves out narrower models.",
            _columns(standings[0]),
            tuple(_rows(recipe, standings)),
            head="Models",
        )
        for group, standings in outcome.groups().items()
    ]


def _columns(standing: Standing) -> tuple[str, ...]:
    widths = standing.contestant.settings["widths"]
    later = [f"from m = {m}" for m in widths[1 : min(SHOWN_WINDOWS, len(widths) - 2)]]
    return (
        "Exponent",
        "− linear",
        *later,
        "R²",
        f"Loss, m = {widths[-1]}",
        "Features",
        "Overlap · m",
        "Loss/unlearned",
        "Superposition",
    )


def _rows(recipe: SuperpositionRecipe, standings: Sequence[Standing]) -> list[Row]:
    n = recipe.config.chosen("features")
    rows = []
    for standing in standings:
        model = standing.contestant.model
        for one in regime_results(standing):
            name = recipe.names[model]
            title = one.regime.title if model == TWIN else f"{one.regime.title}, {name}"
            compared = standing.comparison(key(EXPONENT, one.regime))
            later = one.windows.fits[1 : min(SHOWN_WINDOWS, len(one.widths) - 2)]
            middle = len(one.widths) // 2
            said = classify_regime(one.shares[middle], n, one.widths[middle])
            values: tuple[str | Cell, ...] = (
                show(one.exponent, 2),
                "–" if model == TWIN else difference_cell(compared),
                *(_number(fit.exponent) for fit in later),
                f"{one.windows.fits[0].r_squared:.3f}",
                show(one.losses[-1], 4),
                f"{one.shares[-1]:.1%}",
                _number(one.overlaps[-1] * one.widths[-1]),
                _number(_over_unlearned(one)),
                said.name,
            )
            rows.append(Row(title, "", values))
    return rows


def _over_unlearned(one: RegimeResult) -> float:
    """The widest model's loss as a multiple; NaN where nearly all is learned."""
    loss, unlearned = one.losses[-1].mean, one.unlearned[-1]
    return loss / unlearned if unlearned > loss / MOST_TIMES else math.nan


def _number(value: float) -> str:
    return f"{value:.2f}".replace("-", "−") if math.isfinite(value) else "–"


def unsettled(outcome: Outcome) -> list[str]:
    """What half the steps change, in words; none where nothing says that more are needed."""
    found = []
    for group, standings in outcome.groups().items():
        by_model = {s.contestant.model: s for s in standings}
        if HALF not in by_model:
            continue
        whole, half = regime_results(by_model[TWIN]), regime_results(by_model[HALF])
        for now, before in zip(whole, half, strict=True):
            moved = now.exponent.mean - before.exponent.mean
            fell = before.losses[-1].mean / now.losses[-1].mean - 1
            if abs(moved) > MOVED or fell > SETTLED:
                found.append(
                    f"{group}, {now.regime.title}: from half the steps to all, the exponent moved "
                    f"from {before.exponent.mean:.2f} to {now.exponent.mean:.2f}, and the loss of "
                    f"the widest model fell by {1 - 1 / (1 + fell):.0%}"
                )
    return found


def kappa_line(n: int, widths: Sequence[int]) -> list[float]:
    """κ² of the features that a strong model represents well, one a width."""
    return [expected_kappa(n, m) for m in widths]
