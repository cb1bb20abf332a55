"""The superposition recipe's page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beltrami.analysis.superposition import expected_kappa, welch_bound
from beltrami.analysis.superposition.overlaps import random_shares
from beltrami.recipes.pages import run_facts, training_figure
from beltrami.recipes.results import ArmResult, RunResult
from beltrami.recipes.superposition.config import TWIN
from beltrami.recipes.superposition.measures import BINS, HALF, LONGEST, key
from beltrami.recipes.superposition.published import published_section
from beltrami.recipes.superposition.results import (
    NOT_CHECKED,
    RegimeResult,
    regime_results,
    regime_tables,
    settling,
    settling_table,
    whole_trainings,
    why_unsettled,
)
from beltrami.report.charts import Series, heat_map, line_chart
from beltrami.report.page import Figure, Page, Section

if TYPE_CHECKING:
    from beltrami.recipes.superposition.recipe import SuperpositionRecipe

MOST_REGIMES = 3  # of a picture
FITTED = 6  # curves, up to which a picture has room for a fitted line of each
FITTED_TWICE = 2  # up to which there are two, so that a curve that bends is seen
FEWEST_CELLS = 3  # laws that a heat map is for
WHAT_IT_IS = (
    "Each sample has a few of many features, with values between 0 and 2. A model has fewer "
    "dimensions than there are features, one row of weights for each of them, and is to give the "
    "sample back: y = ReLU(x·W·Wᵀ + b).",
    "Weight decay (γ above 0) shrinks rows that are not worth their length: rare features are left "
    "out, and the loss is about what they carry. That is weak superposition; its exponent depends "
    "on how fast frequencies fall. Below 0, γ draws all rows to length 1: all features are kept, "
    "more than fit side by side, and the loss is what they overlap. That is strong superposition; "
    "directions that avoid each other as well as they can overlap by about 1/m.",
)
HOW_IT_IS_MEASURED = (
    "The loss is the squared error of a sample, the mean of the last hundred steps. The exponent "
    "is minus the slope of log loss over log width, by least squares; the table has it for windows "
    "without the narrowest models, too, since a curve that bends has no single exponent.",
    "Features: the share whose row is longer than ½, and longer than 1, of the widest model. "
    "Overlap: mean squared cosine of its rows longer than 1, times the width m; 1 is what random "
    "directions have. Unlearned: what features with rows up to ½ would lose if they were left out, "
    "Σ (4/3·p − p²); the loss is shown as a multiple of that.",
    "Superposition is called strong where 90 % of the features or more are represented, weak where "
    "they are three a dimension or fewer, by the model of the middle width.",
)


def superposition_page(recipe: SuperpositionRecipe, run_result: RunResult) -> Page:
    """The page of a finished run."""
    config, data = recipe.config, recipe.data_facts()
    groups = run_result.groups()
    beside = published_section(run_result)
    steps = f"{config.chosen.steps:,} steps of {config.chosen.batch:,} samples"
    return Page(
        title="Superposition: how loss falls with width",
        lead=_lead(run_result),
        figures=tuple(_loss_figure(group, arms) for group, arms in groups.items()),
        table=None,
        sections=(
            Section("The exponents", (), (), tuple(regime_tables(recipe, run_result))),
            Section("What happens", WHAT_IT_IS),
            _settled_section(run_result),
            Section("Laws and gammas", (), _maps(recipe, run_result)),
            *(
                Section(f"Features: {group}", (), _feature_figures(arm_results))
                for group, arm_results in groups.items()
            ),
            *([beside] if beside is not None else []),
            Section("How it was trained", (), (training_figure(run_result, recipe.names),)),
            Section("How it is measured", HOW_IT_IS_MEASURED),
        ),
        facts=(
            ("Features", f"{data['features']:,}: {data['name']}"),
            ("Widths", ", ".join(map(str, recipe.shape.widths))),
            ("Training", f"Adam, {steps}"),
            *run_facts(run_result, recipe.names),
        ),
        command=run_result.command,
        footer=f"Written by beltrami {run_result.document['beltrami']}.",
    )


def _lead(run_result: RunResult) -> str:
    """The first law's regimes, and whether the steps were enough."""
    group, arm_results = next(iter(run_result.groups().items()))
    regimes = _of_twin(arm_results)
    by_gamma = [result for result in regimes if result.regime.gamma is not None] or regimes
    ends = by_gamma[:1] + by_gamma[1:][-1:]
    exponents = ", ".join(f"{r.exponent.format(2)} for {r.regime.title}" for r in ends)
    settlings = settling(run_result.arm_results)
    why = why_unsettled(settlings)
    rest = f" It has not converged: {why}." if why else "" if settlings else f" {NOT_CHECKED}"
    return (
        f"With {group}, the exponent with which the loss falls over the width is {exponents}.{rest}"
    )


def _of_twin(arm_results: Sequence[ArmResult]) -> list[RegimeResult]:
    return regime_results(next(s for s in arm_results if s.arm.model == TWIN))


def _settled_section(run_result: RunResult) -> Section:
    heading = "Is it trained long enough?"
    settlings = settling(run_result.arm_results)
    if not settlings:
        return Section(heading, (NOT_CHECKED,))
    why = why_unsettled(settlings)
    words = (
        "It seems so: half the steps give exponents within 0.1, the other half changes losses of "
        "the widest models by 10 % at most, and these are not above what answering 0 always loses."
        if not why
        else f"No: {why}. Exponents of models that are not trained to the end are too small as a "
        "rule, those of strong superposition above all. Give more --steps."
    )
    return Section(heading, (words,), (), (settling_table(settlings),))


def _loss_figure(group: str, arm_results: Sequence[ArmResult]) -> Figure:
    """Losses over widths in log-log axes, where a power law is a line, and such lines."""
    regimes = [regime_results(arm_result) for arm_result in whole_trainings(arm_results)]
    curves = [result for results in regimes for result in _spread(results)]
    fitted = len(curves) <= FITTED
    series = []
    for result in curves:
        fits = result.windows.fits
        exponent = f"m^−{fits[0].exponent:.2f}".replace("−-", "")
        losses = [i.mean for i in result.losses]
        name = f"{result.title}: {exponent}"
        series.append(Series(name, result.widths, losses, *_ends(result)))
        # The first and the last window; log-log axes need no more of a line than its ends.
        for fit in fits[:: max(1, len(fits) - 1)] if fitted else ():
            if fit is fits[0] or len(curves) <= FITTED_TWICE:
                ends = [min(fit.widths), max(fit.widths)]
                line = f"{result.title}, fit from {ends[0]:g}"
                series.append(Series(line, ends, [fit.at(m) for m in ends]))
    svg = line_chart(
        series,
        title=f"Loss by width: {group}",
        description="Squared error of a sample by the width of the model"
        + (", with fitted lines." if fitted else "."),
        x_label="Width m",
        y_label="Loss",
        x_log=True,
        y_log=True,
    )
    several = len(arm_results[0].results) > 1
    seeds = "Means over seeds with 95 % intervals, cut off at a tenth of the mean."
    caption = (seeds if several else "One seed.") + _left_out(regimes[0])
    if not fitted:
        caption += f" Fitted lines are left out, as there are more than {FITTED} curves."
    return Figure(f"Loss by width: {group}", svg, caption)


def _ends(result: RegimeResult) -> tuple[list[float] | None, list[float] | None]:
    """Of the intervals of losses; one seed has none."""
    ends = [(i.mean, i.half_width) for i in result.losses if i.half_width is not None]
    if len(ends) < len(result.losses):
        return None, None
    return [max(m - h, m / 10) for m, h in ends], [m + h for m, h in ends]


def _spread(regimes: Sequence[RegimeResult]) -> list[RegimeResult]:
    """No more than a picture can show, evenly taken."""
    if len(regimes) <= MOST_REGIMES:
        return list(regimes)
    step = (len(regimes) - 1) / (MOST_REGIMES - 1)
    return [regimes[round(i * step)] for i in range(MOST_REGIMES)]


def _left_out(regimes: Sequence[RegimeResult]) -> str:
    """A further sentence for the caption of a picture that does not show all regimes."""
    shown = _spread(regimes)
    if len(shown) == len(regimes):
        return ""
    named = ", ".join(result.regime.title for result in shown)
    return f" {len(shown)} of {len(regimes)} regimes: {named}; all are in the table."


def _maps(recipe: SuperpositionRecipe, run_result: RunResult) -> tuple[Figure, ...]:
    """Exponents by law and gamma, and shares of features by width and gamma."""
    figures = []
    laws = [_of_twin(arm_results) for arm_results in run_result.groups().values()]
    if len(laws) >= FEWEST_CELLS:
        svg = heat_map(
            [[result.exponent.mean for result in regimes] for regimes in laws],
            rows=list(run_result.groups()),
            columns=_gammas(laws[0]),
            title="Exponents by law and gamma",
            description="Minus the slope of log loss over log width.",
            x_label="γ",
            y_label="Frequencies",
        )
        figures.append(Figure("Exponents", svg, "Fits over all widths, means over seeds."))
    for arm_result in whole_trainings(run_result.arm_results):
        regimes, readout = regime_results(arm_result), recipe.names[arm_result.arm.model]
        svg = heat_map(
            list(zip(*(result.shares for result in regimes), strict=True)),
            rows=[f"m = {m}" for m in regimes[0].widths],
            columns=_gammas(regimes),
            title=f"Represented features by width and gamma, {readout} read-out",
            description="The share of features whose row is longer than one half.",
            x_label="γ",
            y_label="Width",
            limits=(0.0, 1.0),
        )
        heading = f"Represented features: {arm_result.arm.group}, {readout} read-out"
        figures.append(Figure(heading, svg, "Share with rows above ½, means over seeds."))
    return tuple(figures)


def _gammas(regimes: Sequence[RegimeResult]) -> list[str]:
    return [result.regime.key.replace("-", "−") for result in regimes]


def _feature_figures(arm_results: Sequence[ArmResult]) -> tuple[Figure, ...]:
    """Lengths of rows, their overlaps, and overlaps by width."""
    twin = next(s for s in arm_results if s.arm.model == TWIN)
    regimes = regime_results(twin)
    shown, rest = _spread(regimes), _left_out(regimes)
    n, widths = shown[0].features, shown[0].widths
    m = widths[len(widths) // 2]
    bins = [i / BINS for i in range(BINS + 1)]

    def curves(name: str) -> dict[str, Sequence[float]]:
        first_seed = twin.results[0].curves
        return {r.regime.title: first_seed[key(name, r.regime)] for r in shown}

    lengths = [
        Series(title, [LONGEST * x for x in bins], [*counts, 0.0])
        for title, counts in curves("lengths").items()
    ]
    cosines = {**curves("cosines"), "random directions": random_shares(m, tuple(bins))}
    most = max(shares[len(widths) // 2] for shares in curves(HALF).values())
    rows = max(2, round(most * n))
    # All pairs at the same |cos|, that of Welch's bound; as high as the picture has room for.
    welch, highest = math.sqrt(welch_bound(rows, m)), max(map(max, cosines.values()))
    spike = Series("equiangular", [welch, welch + 0.5 / BINS], [highest, 0.0])

    def figure(heading: str, series: Sequence[Series], caption: str, **options: Any) -> Figure:
        svg = line_chart(series, **{"title": heading, **options})
        return Figure(heading, svg, f"{caption}{rest}")

    return (
        figure(
            "Lengths of rows",
            lengths,
            "First seed; the last bin has all that are longer.",
            description=f"How many rows of the model of width {m} have which length.",
            x_label=f"Length, m = {m}",
            y_label="Rows",
            step=True,
        ),
        figure(
            "Overlaps of rows",
            [*(Series(name, bins, [*shares, 0.0]) for name, shares in cosines.items()), spike],
            f"First seed, rows above ½; equiangular is as far apart as {rows} can be at once.",
            description="Shares of the cosines of pairs of rows that are longer than one half.",
            x_label=f"|cos|, m = {m}",
            y_label="Share of pairs",
            step=True,
        ),
        figure(
            "Overlap by width",
            [
                *(Series(result.regime.title, widths, result.overlaps) for result in shown),
                Series("1/m", widths, [1 / m for m in widths]),
                Series("κ²", widths, [expected_kappa(n, m) for m in widths]),
            ],
            "Rows longer than 1; κ² is Welch's bound of ν = min(n, m²/2) directions.",
            title="Mean squared overlap by width",
            description="Of rows longer than 1, beside random and equiangular directions.",
            x_label="Width m",
            y_label="Mean squared cosine",
            x_log=True,
            y_log=True,
        ),
    )
