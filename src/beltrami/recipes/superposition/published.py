"""The published figures of the toy model, and a run's numbers beside them.

published.json has them: numbers read from the vector graphics of the paper's figures 1, 3, 4 and 7,
each of one training, as no seeds are published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from importlib.resources import files
from typing import Any

from beltrami.recipes.results import RunResult
from beltrami.recipes.superposition.config import TWIN
from beltrami.recipes.superposition.laws import law_number
from beltrami.recipes.superposition.measures import StackSettings
from beltrami.recipes.superposition.results import RegimeResult, regime_results, signed_percent
from beltrami.report.page import Row, Section, Table

NEAR = 0.002  # of gammas, which are rounded
SAME = 0.001  # of densities and exponents
CAPTION = "Ours beside the published numbers, each of which is of one training."


@lru_cache(maxsize=1)
def published() -> dict[str, Any]:
    """All of them; `published.json` says where they are from."""
    text = files("beltrami.recipes.superposition").joinpath("published.json")
    document: dict[str, Any] = json.loads(text.read_text(encoding="utf-8"))
    return document


def has_published_settings(settings: StackSettings) -> bool:
    """Whether models of a run are those of the published grid, trained as long."""
    theirs = published()["settings"]
    exact = settings.matrices is None  # theirs are of float32
    return exact and _agree(settings, theirs)


def has_large_settings(settings: StackSettings) -> bool:
    """Whether models are those of the experiment with many features, in whatever precision."""
    return _agree(settings, published()["large"]["settings"])


def _agree(settings: StackSettings, theirs: Mapping[str, Any]) -> bool:
    ours = asdict(settings)
    return all(
        list(ours[name]) == value if isinstance(value, list) else ours[name] == value
        for name, value in theirs.items()
    )


def published_exponent(data_exponent: float, gamma: float) -> float | None:
    """Of the grid's samples with one feature on average; None where the grid has no such cell."""
    return _cell("exponents", data_exponent, gamma)


def published_share(data_exponent: float, gamma: float) -> float | None:
    """Of features that the grid's models of width 39 represent, φ½."""
    return _cell("represented", data_exponent, gamma)


def _cell(table: str, data_exponent: float, gamma: float) -> float | None:
    rows = published()[table]
    row = _near([float(a) for a in rows], list(rows.values()), data_exponent, SAME)
    cell = _near(published()["gammas"], row, gamma, NEAR)
    return None if cell is None else float(cell)


def _near(places: list[float], values: list[Any] | None, place: float, within: float) -> Any:
    """The value whose place is near enough, or None."""
    pairs = zip(places, values or [None] * len(places), strict=True)
    return next((value for other, value in pairs if abs(other - place) <= within), None)


def published_losses(data_exponent: float, gamma: float, density: float) -> list[float] | None:
    """Of the six widths, where they are published.

    Args:
        data_exponent: of the law. gamma: of the regime. density: features a sample.
    """
    losses = published()["losses"]
    if abs(data_exponent - 1) > SAME or abs(gamma - losses["gamma"]) > NEAR:
        return None
    row: list[float] | None = _near(losses["densities"], losses["rows"], density, SAME)
    return row


def published_loss_of_one_width(gamma: float, density: float) -> float | None:
    """Of models of width 63 with data exponent 1, for all gammas of the grid."""
    losses = published()["losses_by_gamma"]
    row = _near(published()["gammas"], losses["rows"], gamma, NEAR)
    loss: float | None = _near(losses["densities"], row, density, SAME)
    return loss


def published_large(law: str, gamma: float) -> list[float] | None:
    """Losses of the experiment with 10,240 features, of eight widths."""
    regimes = [published()["large"][name] for name in ("weak", "strong")]
    regime = _near([regime["gamma"] for regime in regimes], regimes, gamma, NEAR) or {}
    return list(map(float, regime[law])) if law in regime else None


def published_section(run_result: RunResult) -> Section | None:
    """The page's section on published numbers; None where the settings are not the paper's."""
    rows = []
    for arm_result in run_result.arm_results:
        if arm_result.arm.model != TWIN:
            continue
        settings = arm_result.arm.settings
        rough = f", {settings.matrices}" if settings.matrices else ""
        for result in regime_results(arm_result):
            if (cells := _cells(result, settings)) is not None:
                rows.append(Row(f"{result.group}, {result.regime.title}{rough}", "", cells))
    if not rows:
        return None
    share = f"Features, m = {published()['represented_width']}"
    columns = ("Exponent", "Published", share, "Published", "Losses, ours over theirs")
    table = Table(CAPTION, columns, tuple(rows), head="Models")
    return Section("Beside the published figures", (), (), (table,))


def _cells(result: RegimeResult, settings: StackSettings) -> tuple[str, ...] | None:
    """A row of the table; None where nothing of a regime is published."""
    law, density, gamma = settings.law, settings.density, result.regime.gamma
    if gamma is None:
        return None
    ours, exponent, share = "–", None, None
    if has_published_settings(settings) and law.startswith("power:"):
        a = law_number(law)
        losses = published_losses(a, gamma, density)
        if abs(density - 1) <= SAME:
            exponent, share = published_exponent(a, gamma), published_share(a, gamma)
        place = result.widths.index(published()["represented_width"])
        ours = f"{result.shares[place]:.2f}"
    else:
        losses = published_large(law, gamma) if has_large_settings(settings) else None
    if exponent is None and losses is None:
        return None
    theirs = ["–" if value is None else f"{value:.2f}" for value in (exponent, share)]
    ratios = "–"
    if losses is not None:
        pairs = zip(result.losses, losses, strict=True)
        ratios = ", ".join(signed_percent(mine.mean / their - 1) for mine, their in pairs)
    return (result.exponent.format(2), theirs[0], ours, theirs[1], ratios)
