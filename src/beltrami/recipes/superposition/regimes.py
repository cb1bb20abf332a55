"""The regimes of a run: what each gamma is called, and the members of its stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beltrami.models.superposition import Member

UNIT = "unit"
_WIDE_RATE, _WIDE_FROM = 0.02, 8  # of the paper's experiment with many features


@dataclass(frozen=True)
class Regime:
    """All widths at one gamma.

    Args:
        key: in names of metrics. title: for people. gamma: None for rows of length 1.
    """

    key: str
    title: str
    gamma: float | None


def regimes_of(settings: Mapping[str, Any]) -> list[Regime]:
    """One a gamma, and one more for rows of length 1."""
    found = [
        Regime(f"{gamma:g}", f"γ = {gamma:g}".replace("-", "−"), gamma)
        for gamma in settings["gammas"]
    ]
    return [*found, Regime(UNIT, "rows of length 1", None)] if settings["unit"] else found


def members_of(settings: Mapping[str, Any]) -> list[Member]:
    """A model for every regime and width, in this order."""
    return [
        Member(
            width,
            regime.gamma or 0.0,
            unit=regime.gamma is None,
            rate=_rate(settings, width),
            bias_rate=2 / width if settings["rates"] == "by width" else settings["rates"],
        )
        for regime in regimes_of(settings)
        for width in settings["widths"]
    ]


def _rate(settings: Mapping[str, Any], width: int) -> float:
    if settings["rates"] == "by width":
        return _WIDE_RATE * float((_WIDE_FROM / width) ** 0.25)
    return float(settings["rates"])
