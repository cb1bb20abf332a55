"""The published figures of the toy model, where a run has their settings.

published.json has them: numbers read from the vector graphics of the paper's figures 1, 3, 4 and 7,
each of one training, as no seeds are published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

NEAR = 0.002  # of gammas, which are rounded
SAME = 0.001  # of densities and exponents


@lru_cache(maxsize=1)
def published() -> dict[str, Any]:
    """All of them; `published.json` says where they are from."""
    text = files("beltrami.recipes.superposition").joinpath("published.json")
    found: dict[str, Any] = json.loads(text.read_text(encoding="utf-8"))
    return found


def has_published_settings(settings: Mapping[str, Any]) -> bool:
    """Whether models of a run are those of the published grid, trained as long."""
    theirs = published()["settings"]
    exact = "matrices" not in settings  # theirs are of float32
    return exact and all(settings[name] == theirs[name] for name in theirs)


def has_large_settings(settings: Mapping[str, Any]) -> bool:
    """Whether models are those of the experiment with many features, in whatever precision."""
    theirs = published()["large"]["settings"]
    return all(settings[name] == theirs[name] for name in theirs)


def published_exponent(data_exponent: float, gamma: float) -> float | None:
    """Of the grid's samples with one feature on average; None where the grid has no such cell."""
    return _cell("exponents", data_exponent, gamma)


def published_share(data_exponent: float, gamma: float) -> float | None:
    """Of features that the grid's models of width 39 represent, φ½."""
    return _cell("represented", data_exponent, gamma)


def _cell(table: str, data_exponent: float, gamma: float) -> float | None:
    grid = published()
    place = next((i for i, g in enumerate(grid["gammas"]) if abs(g - gamma) <= NEAR), None)
    rows = grid[table].items()
    row = next((values for a, values in rows if abs(float(a) - data_exponent) <= SAME), None)
    return None if place is None or row is None else float(row[place])


def published_losses(data_exponent: float, gamma: float, density: float) -> list[float] | None:
    """Of the six widths, where they are published.

    Args:
        data_exponent: of the law. gamma: of the regime. density: features a sample.
    """
    told = published()["losses"]
    if abs(data_exponent - 1) > SAME or abs(gamma - told["gamma"]) > NEAR:
        return None
    for known, row in zip(told["densities"], told["rows"], strict=True):
        if abs(known - density) <= SAME:
            return list(map(float, row))
    return None


def published_loss_of_one_width(gamma: float, density: float) -> float | None:
    """Of models of width 63 with data exponent 1, for all gammas of the grid."""
    told = published()["losses_by_gamma"]
    gammas = published()["gammas"]
    for known, row in zip(gammas, told["rows"], strict=True):
        for features, loss in zip(told["densities"], row, strict=True):
            if abs(known - gamma) <= NEAR and abs(features - density) <= SAME:
                return float(loss)
    return None


def published_large(law: str, gamma: float) -> list[float] | None:
    """Losses of the experiment with 10,240 features, of eight widths."""
    for regime in ("weak", "strong"):
        told = published()["large"][regime]
        if abs(told["gamma"] - gamma) <= NEAR and law in told:
            return list(map(float, told[law]))
    return None
