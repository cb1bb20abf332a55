"""A run's standings as tables of texts, for the page and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping

from beltrami.analysis.intervals import Interval
from beltrami.recipes.outcome import Comparison, Outcome, Standing
from beltrami.recipes.recipe import Metric
from beltrami.report.page import Cell, Row, Table


def standing_tables(outcome: Outcome, names: Mapping[str, str]) -> tuple[Table, ...]:
    """One table a group: a row a metric, a column a contestant, its difference to the twin beside.

    Args:
        outcome: of the run.
        names: what to call the models.
    """
    seeds = len(outcome.standings[0].results)
    spread = (
        f"mean ± 95% t-interval over {seeds} seeds, differences paired by seed"
        if seeds > 1
        else "one seed, so no intervals"
    )
    return tuple(
        _table(group, standings, names, spread) for group, standings in outcome.groups().items()
    )


def _table(group: str, standings: list[Standing], names: Mapping[str, str], spread: str) -> Table:
    columns: list[str] = []
    for standing in standings:
        name = names.get(standing.contestant.model, standing.contestant.model)
        columns.append(name)
        if standing.contestant.twin:
            twin = names.get(standing.contestant.twin, standing.contestant.twin)
            columns.append(f"{name} − {twin}")
    rows = []
    for metric in _metrics(standings):
        values: list[str | Cell] = []
        for standing in standings:
            found = {c.metric.key: c for c in standing.comparisons}.get(metric.key)
            values.append("–" if found is None else show(found.value, metric.digits))
            if standing.contestant.twin:
                values.append("–" if found is None else difference_cell(found))
        rows.append(Row(metric.title, metric.hint, tuple(values)))
    caption = f"{group}: {spread}." if group else f"{spread[0].upper()}{spread[1:]}."
    return Table(caption, tuple(columns), tuple(rows))


def _metrics(standings: list[Standing]) -> list[Metric]:
    """What any of them was measured by; a construction without training has no loss, say."""
    longest = max((standing.comparisons for standing in standings), key=len)
    found = {c.metric.key: c.metric for c in longest}
    for standing in standings:
        for comparison in standing.comparisons:
            found.setdefault(comparison.metric.key, comparison.metric)
    return list(found.values())


def show(interval: Interval, digits: int) -> str:
    """An interval as people read it; ∞ for an infinite mean."""
    return interval.format(digits) if math.isfinite(interval.mean) else "∞"


def difference_cell(comparison: Comparison) -> Cell:
    """The difference to the twin with its sign and, where there is an interval, a verdict."""
    gap = comparison.difference
    if gap is None or not math.isfinite(gap.mean):
        return Cell("–")
    text = gap.format(comparison.metric.digits)
    positive = text[0] != "−" and float(text.split()[0]) > 0
    verdict = comparison.verdict
    shown = f"+{text}" if positive else text
    if verdict == "better":
        return Cell(shown, "better")
    if verdict == "worse":
        return Cell(shown, "worse")
    return Cell(shown, "no difference") if verdict == "no difference" else Cell(shown)
