"""The superposition recipe's page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from beltrami.analysis.superposition import ExponentFit, expected_kappa, welch_bound
from beltrami.analysis.superposition.overlaps import random_shares
from beltrami.recipes.pages import run_facts, training_figure
from beltrami.recipes.results import ArmResult, RunResult
from beltrami.recipes.superposition.beside import published_section
from beltrami.recipes.superposition.config import TWIN
from beltrami.recipes.superposition.measures import BINS, LONGEST, key
from beltrami.recipes.superposition.measures import HALF as SHARE
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
    "without the narrowest models, too, since a curve that bends has no one exponent.",
    "Features: the share whose row is longer than ½, and longer than 1, of the widest model. "
    "Overlap: mean squared cosine of its rows longer than 1, times m; 1 is what random directions "
    "have. Unlearned: what features with rows up to ½ would lose if they were left out, "
    "Σ (4/3·p − p²); the loss is shown as a multiple of that.",
    "Superposition is called strong where 90 % of the features or more are represented, weak where "
    "they are three a dimension or fewer, by the model of the middle width.",
)


def superposition_page(recipe: SuperpositionRecipe, run_result: RunResult) -> Page:
    """The page of a finished run."""
    config, data = recipe.config, recipe.data_facts()
    groups = run_result.groups()
    sections = [
        Section("The exponents", (), (), tuple(regime_tables(recipe, run_result))),
        Section("What happens", WHAT_IT_IS),
        _settled_section(run_result),
        Section("Laws and gammas", (), _maps(recipe, run_result)),
    ]
    for group, arm_results in groups.items():
        sections.append(Section(f"Features: {group}", (), _feature_figures(recipe, arm_results)))
    if (beside := published_section(run_result)) is not None:
        sections.append(beside)
    sections += [
        Section("How it was trained", (), (training_figure(run_result, recipe.names),)),
        Section("How it is measured", HOW_IT_IS_MEASURED),
    ]
    return Page(
        title="Superposition: how loss falls with width",
        lead=_lead(run_result),
        figures=tuple(_loss_figure(recipe, group, found) for group, found in groups.items()),
        table=None,
        sections=tuple(sections),
        facts=(
            ("Features", f"{data['features']:,}: {data['name']}"),
            ("Widths", ", ".join(map(str, recipe.settings["widths"]))),
            (
                "Training",
                f"Adam, {config.chosen('steps'):,} steps of {config.chosen('batch'):,} samples",
            ),
            *run_facts(run_result, recipe.names),
        ),
        command=run_result.command,
        footer=f"Written by beltrami {run_result.document['beltrami']}.",
    )


def _lead(run_result: RunResult) -> str:
    """The first law's regimes, and whether the steps were enough."""
    group, arm_results = next(iter(run_result.groups().items()))
    twin = next(s for s in arm_results if s.arm.model == TWIN)
    found = regime_results(twin)
    by_gamma = [one for one in found if one.regime.gamma is not None] or found
    ends = by_gamma[:1] + by_gamma[1:][-1:]
    said = ", ".join(f"{one.exponent.format(2)} for {one.regime.title}" for one in ends)
    checked = settling(run_result.arm_results)
    why = why_unsettled(checked)
    rest = f" It has not converged: {why}." if why else ""
    rest = rest if checked else f" {NOT_CHECKED}"
    return f"With {group}, the exponent with which the loss falls over the width is {said}.{rest}"


def _settled_section(run_result: RunResult) -> Section:
    heading = "Is it trained long enough?"
    found = settling(run_result.arm_results)
    if not found:
        return Section(heading, (NOT_CHECKED,))
    why = why_unsettled(found)
    words = (
        "It seems so: half the steps give exponents within 0.1, the other half changes losses of "
        "the widest models by 10 % at most, and these are not above what answering 0 always loses."
        if not why
        else f"No: {why}. Exponents of models that are not trained to the end are too small as a "
        "rule, those of strong superposition above all. Give more --steps."
    )
    return Section(heading, (words,), (), (settling_table(found),))


def _loss_figure(
    recipe: SuperpositionRecipe, group: str, arm_results: Sequence[ArmResult]
) -> Figure:
    """Losses over widths in log-log axes, where a power law is a line, and such lines."""
    arms = whole_trainings(arm_results)
    curves = [(s, one) for s in arms for one in _spread(regime_results(s))]
    fitted = len(curves) <= FITTED
    series = []
    for arm_result, one in curves:
        model = arm_result.arm.model
        name = one.regime.title + ("" if model == TWIN else f", {recipe.names[model]}")
        exponent = f"m^−{one.windows.fits[0].exponent:.2f}".replace("−-", "")
        losses = [i.mean for i in one.losses]
        series.append(Series(f"{name}: {exponent}", one.widths, losses, *_ends(one)))
        if fitted:
            fits = one.windows.fits
            ends = fits[:: max(1, len(fits) - 1)]  # the first and the last
            shown = ends if len(curves) <= FITTED_TWICE else ends[:1]
            series += [_fitted_line(fit, name) for fit in shown]
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
    several = len(arms[0].results) > 1
    seeds = "Means over seeds with 95 % intervals, cut off at a tenth of the mean."
    caption = (seeds if several else "One seed.") + _left_out(regime_results(arms[0]))
    if not fitted:
        caption += f" Fitted lines are left out, as there are more than {FITTED} curves."
    return Figure(f"Loss by width: {group}", svg, caption)


def _ends(one: RegimeResult) -> tuple[list[float] | None, list[float] | None]:
    """Of the intervals of losses; one seed has none."""
    half = [i.half_width for i in one.losses if i.half_width is not None]
    if len(half) < len(one.losses):
        return None, None
    mean = [i.mean for i in one.losses]
    low = [max(m - h, m / 10) for m, h in zip(mean, half, strict=True)]
    return low, [m + h for m, h in zip(mean, half, strict=True)]


def _fitted_line(fit: ExponentFit, name: str) -> Series:
    """The line of a window; log-log axes need no more of it than its ends."""
    ends = [min(fit.widths), max(fit.widths)]
    return Series(f"{name}, fit from {ends[0]:g}", ends, [fit.at(m) for m in ends])


def _spread(found: Sequence[RegimeResult]) -> list[RegimeResult]:
    """No more than a picture can show, evenly taken."""
    if len(found) <= MOST_REGIMES:
        return list(found)
    step = (len(found) - 1) / (MOST_REGIMES - 1)
    return [found[round(i * step)] for i in range(MOST_REGIMES)]


def _left_out(found: Sequence[RegimeResult]) -> str:
    """One more sentence for the caption of a picture that does not show all regimes."""
    shown = _spread(found)
    if len(shown) == len(found):
        return ""
    named = ", ".join(one.regime.title for one in shown)
    return f" {len(shown)} of {len(found)} regimes: {named}; all are in the table."


def _maps(recipe: SuperpositionRecipe, run_result: RunResult) -> tuple[Figure, ...]:
    """Exponents by law and gamma, and shares of features by width and gamma."""
    figures = []
    controls = [s for s in run_result.arm_results if s.arm.model == TWIN]
    results = [regime_results(s) for s in controls]
    if len(controls) >= FEWEST_CELLS:
        svg = heat_map(
            [[one.exponent.mean for one in found] for found in results],
            rows=[s.arm.group for s in controls],
            columns=_gammas(results[0]),
            title="Exponents by law and gamma",
            description="Minus the slope of log loss over log width.",
            x_label="γ",
            y_label="Frequencies",
        )
        figures.append(Figure("Exponents", svg, "Fits over all widths, means over seeds."))
    whole = whole_trainings(run_result.arm_results)
    return (*figures, *(_share_map(s, recipe.names[s.arm.model]) for s in whole))


def _share_map(arm_result: ArmResult, readout: str) -> Figure:
    """φ½ of all models of a law and a read-out."""
    found = regime_results(arm_result)
    svg = heat_map(
        [[one.shares[i] for one in found] for i in range(len(found[0].widths))],
        rows=[f"m = {m}" for m in found[0].widths],
        columns=_gammas(found),
        title=f"Represented features by width and gamma, {readout} read-out",
        description="The share of features whose row is longer than one half.",
        x_label="γ",
        y_label="Width",
        limits=(0.0, 1.0),
    )
    heading = f"Represented features: {arm_result.arm.group}, {readout} read-out"
    return Figure(heading, svg, "Share with rows above ½, means over seeds.")


def _gammas(found: Sequence[RegimeResult]) -> list[str]:
    """Names of columns."""
    return [one.regime.key.replace("-", "−") for one in found]


def _feature_figures(
    recipe: SuperpositionRecipe, arm_results: Sequence[ArmResult]
) -> tuple[Figure, ...]:
    """Lengths of rows, their overlaps, and overlaps by width."""
    twin = next(s for s in arm_results if s.arm.model == TWIN)
    found = regime_results(twin)
    shown, rest = _spread(found), _left_out(found)
    widths = shown[0].widths
    m = widths[len(widths) // 2]
    curves = twin.results[0].curves
    lengths = [i * LONGEST / BINS for i in range(BINS + 1)]
    cosines = [i / BINS for i in range(BINS + 1)]
    pairs = {one.regime: curves[key("cosines", one.regime)] for one in shown}
    random = random_shares(m, tuple(cosines))
    highest = max(v for values in (*pairs.values(), random) for v in values)
    most = max(curves[key(SHARE, one.regime)][len(widths) // 2] for one in shown)
    n = recipe.config.chosen("features")
    rows = max(2, round(most * n))
    figures = [
        Figure(
            "Lengths of rows",
            line_chart(
                [
                    Series(one.regime.title, lengths, [*curves[key("lengths", one.regime)], 0.0])
                    for one in shown
                ],
                title="Lengths of rows",
                description=f"How many rows of the model of width {m} have which length.",
                x_label=f"Length, m = {m}",
                y_label="Rows",
                step=True,
            ),
            f"First seed; the last bin has all that are longer.{rest}",
        ),
        Figure(
            "Overlaps of rows",
            line_chart(
                [
                    *(Series(r.title, cosines, [*values, 0.0]) for r, values in pairs.items()),
                    Series("random directions", cosines, [*random, 0.0]),
                    _spike(rows, m, highest),
                ],
                title="Overlaps of rows",
                description="Shares of the cosines of pairs of rows that are longer than one half.",
                x_label=f"|cos|, m = {m}",
                y_label="Share of pairs",
                step=True,
            ),
            "First seed, rows above ½; equiangular is as far apart as "
            f"{rows} can be at once.{rest}",
        ),
        Figure(
            "Overlap by width",
            line_chart(
                [
                    *(Series(one.regime.title, one.widths, one.overlaps) for one in shown),
                    Series("1/m", widths, [1 / m for m in widths]),
                    Series("κ²", widths, [expected_kappa(n, m) for m in widths]),
                ],
                title="Mean squared overlap by width",
                description="Of rows longer than 1, beside random and equiangular directions.",
                x_label="Width m",
                y_label="Mean squared cosine",
                x_log=True,
                y_log=True,
            ),
            f"Rows longer than 1; κ² is Welch's bound of ν = min(n, m²/2) directions.{rest}",
        ),
    ]
    return tuple(figures)


def _spike(rows: int, m: int, height: float) -> Series:
    """All pairs at the same |cos|, that of Welch's bound; as high as the picture has room for."""
    at = math.sqrt(welch_bound(rows, m))
    return Series("equiangular", [at, at + 0.5 / BINS], [height, 0.0])
