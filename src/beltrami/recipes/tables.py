"""The results of a run as tables of texts, for the page and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping

from beltrami.analysis.intervals import Interval
from beltrami.recipes.recipe import Metric
from beltrami.recipes.results import ArmResult, Comparison, RunResult
from beltrami.report.page import Cell, Row, Table


def result_tables(run_result: RunResult, names: Mapping[str, str]) -> tuple[Table, ...]:
    """One table a group: a row a metric, a column an arm, its difference to the twin beside.

    Args:
        run_result: of the run.
        names: what to call the models.
    """
    seeds = len(run_result.arm_results[0].results)
    spread = (
        f"mean ± 95% t-interval over {seeds} seeds, differences paired by seed"
        if seeds > 1
        else "one seed, so no intervals"
    )
    return tuple(
        _table(group, arm_results, names, spread)
        for group, arm_results in run_result.groups().items()
    )


def _table(
    group: str, arm_results: list[ArmResult], names: Mapping[str, str], spread: str
) -> Table:
    columns: list[str] = []
    for arm_result in arm_results:
        name = names.get(arm_result.arm.model, arm_result.arm.model)
        columns.append(name)
        if arm_result.arm.twin:
            twin = names.get(arm_result.arm.twin, arm_result.arm.twin)
            columns.append(f"{name} − {twin}")
    rows = []
    for metric in _metrics(arm_results):
        values: list[str | Cell] = []
        for arm_result in arm_results:
            comparison = {c.metric.key: c for c in arm_result.comparisons}.get(metric.key)
            values.append("–" if comparison is None else show(comparison.value, metric.digits))
            if arm_result.arm.twin:
                values.append("–" if comparison is None else difference_cell(comparison))
        rows.append(Row(metric.title, metric.hint, tuple(values)))
    caption = f"{group}: {spread}." if group else f"{spread[0].upper()}{spread[1:]}."
    return Table(caption, tuple(columns), tuple(rows))


def _metrics(arm_results: list[ArmResult]) -> list[Metric]:
    """What any of them was measured by; a construction without training has no loss, say."""
    longest = max((arm_result.comparisons for arm_result in arm_results), key=len)
    metrics = {c.metric.key: c.metric for c in longest}
    for arm_result in arm_results:
        for comparison in arm_result.comparisons:
            metrics.setdefault(comparison.metric.key, comparison.metric)
    return list(metrics.values())


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
