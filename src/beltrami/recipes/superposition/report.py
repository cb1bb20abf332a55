"""The superposition recipe's page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from beltrami.analysis.superposition import ExponentFit, expected_kappa, welch_bound
from beltrami.analysis.superposition.overlaps import random_shares
from beltrami.recipes.outcome import Outcome, Standing
from beltrami.recipes.pages import run_facts, training_figure
from beltrami.recipes.superposition.beside import published_section
from beltrami.recipes.superposition.config import TWIN
from beltrami.recipes.superposition.measures import BINS, LONGEST, key
from beltrami.recipes.superposition.measures import HALF as SHARE
from beltrami.recipes.superposition.regimes import regimes_of
from beltrami.recipes.superposition.standings import (
    NOT_CHECKED,
    RegimeResult,
    regime_results,
    regime_tables,
    settling,
    settling_table,
    whole_trainings,
)
from beltrami.report.charts import Series, heat_map, line_chart
from beltrami.report.page import Figure, Page, Section

if TYPE_CHECKING:
    from beltrami.recipes.superposition.recipe import SuperpositionRecipe

MOST_REGIMES = 3  # of a picture
FEW_LINES = 2  # regimes, with which a picture has room for fitted lines
FEWEST_CELLS = 3  # laws that a heat map is for
FEWEST_GAMMAS = 2  # likewise; there are several widths
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


def superposition_page(recipe: SuperpositionRecipe, outcome: Outcome) -> Page:
    """The page of a finished run."""
    config, data = recipe.config, recipe.data_facts()
    groups = outcome.groups()
    sections = [
        Section("The exponents", (), (), tuple(regime_tables(recipe, outcome))),
        Section("What happens", WHAT_IT_IS),
        _settled_section(outcome),
    ]
    if figures := _maps(outcome):
        sections.append(Section("Laws and gammas", (), figures))
    for group, standings in groups.items():
        sections.append(Section(f"Features: {group}", (), _feature_figures(recipe, standings)))
    if (beside := published_section(outcome)) is not None:
        sections.append(beside)
    sections += [
        Section("How it was trained", (), (training_figure(outcome, recipe.names),)),
        Section("How it is measured", HOW_IT_IS_MEASURED),
    ]
    return Page(
        title="Superposition: how loss falls with width",
        lead=_lead(outcome),
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
            *run_facts(outcome, recipe.names),
        ),
        command=outcome.command,
        footer=f"Written by beltrami {outcome.document['beltrami']}.",
    )


def _lead(outcome: Outcome) -> str:
    """The first law's regimes, and whether the steps were enough."""
    group, standings = next(iter(outcome.groups().items()))
    twin = next(s for s in standings if s.contestant.model == TWIN)
    found = regime_results(twin)
    by_gamma = [one for one in found if one.regime.gamma is not None] or found
    ends = by_gamma[:1] + by_gamma[1:][-1:]
    said = ", ".join(f"{one.exponent.format(2)} for {one.regime.title}" for one in ends)
    checked = settling(outcome.standings)
    settled = all(one.settled for one in checked)
    rest = "" if settled else " Half the steps give other numbers: it has not converged."
    rest = rest if checked else f" {NOT_CHECKED}"
    return f"With {group}, the exponent with which the loss falls over the width is {said}.{rest}"


def _settled_section(outcome: Outcome) -> Section:
    heading = "Is it trained long enough?"
    found = settling(outcome.standings)
    if not found:
        return Section(heading, (NOT_CHECKED,))
    words = (
        "It seems so: half the steps give exponents within 0.1, and the other half changes losses "
        "of the widest models by 10 % at most."
        if all(one.settled for one in found)
        else "No. Exponents of models that are not trained to the end are too small as a rule, "
        "those of strong superposition above all. Give more --steps."
    )
    return Section(heading, (words,), (), (settling_table(found),))


def _loss_figure(recipe: SuperpositionRecipe, group: str, standings: Sequence[Standing]) -> Figure:
    series = []
    contestants = whole_trainings(standings)
    alone = len(contestants) == 1
    fitted = alone and len(regimes_of(recipe.settings)) <= FEW_LINES
    for standing in contestants:
        model = standing.contestant.model
        for one in _spread(regime_results(standing)):
            exponent = f"m^−{one.windows.fits[0].exponent:.2f}".replace("−-", "")
            own = "" if model == TWIN else f", {recipe.names[model]}"
            name = f"{one.regime.title}{own}: {exponent}"
            series.append(Series(name, one.widths, [i.mean for i in one.losses], *_ends(one)))
            if fitted:
                fits = one.windows.fits
                for fit in fits[:: max(1, len(fits) - 1)]:  # the first and the last
                    series.append(_fitted_line(fit, one.regime.title))
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
    several = len(contestants[0].results) > 1
    caption = "Means over seeds with 95 % intervals, cut off at a tenth of the mean."
    return Figure(f"Loss by width: {group}", svg, caption if several else "One seed.")


def _ends(one: RegimeResult) -> tuple[list[float] | None, list[float] | None]:
    """Of the intervals of losses; one seed has none."""
    half = [i.half_width for i in one.losses if i.half_width is not None]
    if len(half) < len(one.losses):
        return None, None
    mean = [i.mean for i in one.losses]
    low = [max(m - h, m / 10) for m, h in zip(mean, half, strict=True)]
    return low, [m + h for m, h in zip(mean, half, strict=True)]


def _fitted_line(fit: ExponentFit, regime: str) -> Series:
    """The line of a window, over the widths that it has."""
    widths = sorted(set(fit.widths))
    name = f"{regime}, fit from {widths[0]:g}"
    return Series(name, widths, [fit.at(m) for m in widths])


def _spread(found: Sequence[RegimeResult]) -> list[RegimeResult]:
    """No more than a picture can show, evenly taken."""
    if len(found) <= MOST_REGIMES:
        return list(found)
    step = (len(found) - 1) / (MOST_REGIMES - 1)
    return [found[round(i * step)] for i in range(MOST_REGIMES)]


def _maps(outcome: Outcome) -> tuple[Figure, ...]:
    """Exponents by law and gamma, and shares of features by width and gamma."""
    figures = []
    controls = [s for s in outcome.standings if s.contestant.model == TWIN]
    results = [regime_results(s) for s in controls]
    titles = [one.regime.key.replace("-", "−") for one in results[0]]
    if len(controls) >= FEWEST_CELLS:
        svg = heat_map(
            [[one.exponent.mean for one in found] for found in results],
            rows=[s.contestant.group for s in controls],
            columns=titles,
            title="Exponents by law and gamma",
            description="Minus the slope of log loss over log width.",
            x_label="γ",
            y_label="Frequencies",
        )
        figures.append(Figure("Exponents", svg, "Fits over all widths, means over seeds."))
    if len(titles) >= FEWEST_GAMMAS:
        for standing, found in zip(controls, results, strict=True):
            svg = heat_map(
                [[one.shares[i] for one in found] for i in range(len(found[0].widths))],
                rows=[f"m = {m}" for m in found[0].widths],
                columns=titles,
                title="Represented features by width and gamma",
                description="The share of features whose row is longer than one half.",
                x_label="γ",
                y_label="Width",
                limits=(0.0, 1.0),
            )
            heading = f"Represented features: {standing.contestant.group}"
            figures.append(Figure(heading, svg, "Share with rows above ½, means over seeds."))
    return tuple(figures)


def _feature_figures(
    recipe: SuperpositionRecipe, standings: Sequence[Standing]
) -> tuple[Figure, ...]:
    """Lengths of rows, their overlaps, and overlaps by width."""
    twin = next(s for s in standings if s.contestant.model == TWIN)
    shown = _spread(regime_results(twin))
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
            "First seed; the last bin has all that are longer.",
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
            f"First seed, rows above ½; equiangular is as far apart as {rows} can be at once.",
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
            "Rows longer than 1; κ² is Welch's bound of ν = min(n, m²/2) directions.",
        ),
    ]
    return tuple(figures)


def _spike(rows: int, m: int, height: float) -> Series:
    """All pairs at the same |cos|, that of Welch's bound; as high as the picture has room for."""
    at = math.sqrt(welch_bound(rows, m))
    return Series("equiangular", [at, at + 0.5 / BINS], [height, 0.0])
