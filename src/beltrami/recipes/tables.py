"""The results of a run as tables of texts, for the page and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping

from beltrami.analysis.intervals import Interval
from beltrami.recipes.recipe import Metric
from beltrami.recipes.results import ArmResult, Comparison, RunResult
from beltrami.report.page import Cell, Row, Table


def result_tables(
    run_result: RunResult, names: Mapping[str, str], *, most: int | None = None
) -> tuple[Table, ...]:
    """A row a metric and group, a column an arm, its difference to the twin beside.

    Groups of the same arms share a table; others have one each.

    Args:
        run_result: of the run.
        names: what to call the models.
        most: rows of a table of several groups; whole metrics are left out, and the caption says
            that the report has them.
    """
    seeds = len(run_result.arm_results[0].results)
    spread = (
        f"mean ± 95% t-interval over {seeds} seeds, differences paired by seed"
        if seeds > 1
        else "one seed, so no intervals"
    )
    groups = run_result.groups()
    if len({tuple((s.arm.model, s.arm.twin) for s in arms) for arms in groups.values()}) == 1:
        return (_table(groups, names, spread, most),)
    return tuple(_table({group: arms}, names, spread, None) for group, arms in groups.items())


def _table(
    groups: Mapping[str, list[ArmResult]], names: Mapping[str, str], spread: str, most: int | None
) -> Table:
    arm_results = next(iter(groups.values()))
    columns: list[str] = []
    for arm_result in arm_results:
        name = names.get(arm_result.arm.model, arm_result.arm.model)
        columns.append(name)
        if arm_result.arm.twin:
            twin = names.get(arm_result.arm.twin, arm_result.arm.twin)
            columns.append(f"{name} − {twin}")
    rows = []
    several = len(groups) > 1
    metrics = _metrics([s for arms in groups.values() for s in arms])
    shown = metrics
    if several and most is not None:
        shown = metrics[: max(1, most // len(groups))]
    for metric in shown:
        hint = metric.hint
        for group, arms in groups.items():
            title = f"{metric.title}, {group}" if several else metric.title
            rows.append(Row(title, hint, tuple(_values(arms, metric))))
            hint = ""  # once a metric
    group = "" if several else next(iter(groups))
    caption = f"{group}: {spread}." if group else f"{spread[0].upper()}{spread[1:]}."
    if len(shown) < len(metrics):
        caption += " More measures are in the report."
    return Table(caption, tuple(columns), tuple(rows))


def _values(arm_results: list[ArmResult], metric: Metric) -> list[str | Cell]:
    """The value of each arm, followed by its difference to its twin where it has one."""
    values: list[str | Cell] = []
    for arm_result in arm_results:
        comparison = {c.metric.key: c for c in arm_result.comparisons}.get(metric.key)
        values.append("–" if comparison is None else show(comparison.value, metric.digits))
        if arm_result.arm.twin:
            values.append("–" if comparison is None else difference_cell(comparison))
    return values


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
