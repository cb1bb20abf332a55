"""A run's numbers beside the published ones, for its page."""

from __future__ import annotations

from collections.abc import Sequence

from beltrami.recipes.results import ArmResult, RunResult
from beltrami.recipes.superposition.config import TWIN
from beltrami.recipes.superposition.law_names import law_number
from beltrami.recipes.superposition.published import (
    SAME,
    has_large_settings,
    has_published_settings,
    published,
    published_exponent,
    published_large,
    published_losses,
    published_share,
)
from beltrami.recipes.superposition.results import RegimeResult, regime_results
from beltrami.report.page import Row, Section, Table

CAPTION = "Ours beside the published numbers, each of which is of one training."


def published_section(run_result: RunResult) -> Section | None:
    """Where the settings are the paper's; None elsewhere."""
    rows: list[Row] = []
    for arm_result in run_result.arm_results:
        if arm_result.arm.model != TWIN:
            continue
        for one in regime_results(arm_result):
            row = _grid_row(arm_result, one) or _large_row(arm_result, one)
            if row is not None:
                rough = arm_result.arm.settings.get("matrices", "")
                name = f"{arm_result.arm.group}, {one.regime.title}"
                name += f", {rough}" if rough else ""
                rows.append(Row(name, "", row))
    if not rows:
        return None
    width = published()["represented_width"]
    columns = (
        "Exponent",
        "Published",
        f"Features, m = {width}",
        "Published",
        "Losses, ours over theirs",
    )
    table = Table(CAPTION, columns, tuple(rows), head="Models")
    return Section("Beside the published figures", (), (), (table,))


def _grid_row(arm_result: ArmResult, one: RegimeResult) -> tuple[str, ...] | None:
    """Of the experiments with 1,000 features."""
    settings = arm_result.arm.settings
    law, density, gamma = settings["law"], settings["density"], one.regime.gamma
    if not has_published_settings(settings) or gamma is None or not law.startswith("power:"):
        return None
    a = law_number(law)
    sparse = abs(density - 1) <= SAME
    exponent = published_exponent(a, gamma) if sparse else None
    share = published_share(a, gamma) if sparse else None
    losses = published_losses(a, gamma, density)
    if exponent is None and losses is None:
        return None
    ours = one.shares[one.widths.index(published()["represented_width"])]
    return (
        one.exponent.format(2),
        _told(exponent),
        f"{ours:.2f}",
        _told(share),
        _ratios(one, losses),
    )


def _large_row(arm_result: ArmResult, one: RegimeResult) -> tuple[str, ...] | None:
    """Of the experiment with 10,240 features, of which losses alone are published."""
    settings = arm_result.arm.settings
    if not has_large_settings(settings) or one.regime.gamma is None:
        return None
    losses = published_large(settings["law"], one.regime.gamma)
    if losses is None:
        return None
    return one.exponent.format(2), "–", "–", "–", _ratios(one, losses)


def _told(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _ratios(one: RegimeResult, theirs: Sequence[float] | None) -> str:
    if theirs is None:
        return "–"
    off = (f"{mine.mean / their - 1:+.0%}" for mine, their in zip(one.losses, theirs, strict=True))
    return ", ".join(off).replace("-", "−")
