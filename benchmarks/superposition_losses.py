"""Losses of toy models by width, beside the published ones: for the pages of runs that are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from beltrami.analysis.intervals import Interval
from beltrami.recipes.superposition.config import TWIN
from beltrami.recipes.superposition.laws import law_title
from beltrami.recipes.superposition.published import published, published_large, published_losses


def loss_lines(document: dict[str, Any]) -> Iterator[str]:
    """A table of a run whose widths are those of a published experiment; nothing of others."""
    rows = []
    for regime in document.get("findings", {}).get("regimes", []):
        theirs = _published_losses(regime) if regime["model"] == TWIN else None
        if theirs is not None:
            ours = [Interval(**loss) for loss in regime["losses"]]
            rows.append((f"{regime['group']}, {regime['regime']}", regime["widths"], ours, theirs))
    if not rows:
        return
    widths = rows[0][1]
    yield ""
    yield "Losses by width, and in brackets the published ones, of one training each."
    yield ""
    yield "| models | " + " | ".join(f"m = {m}" for m in widths) + " |"
    yield "|---" * (len(widths) + 1) + "|"
    for title, _, ours, theirs in rows:
        cells = (
            f"{mine.format(4)} ({their:.4g}, {_percent(mine.mean / their - 1)})"
            for mine, their in zip(ours, theirs, strict=True)
        )
        yield f"| {title} | " + " | ".join(cells) + " |"


def _percent(share: float) -> str:
    return f"{round(100 * share):+d}%".replace("-", "−")


def _published_losses(regime: dict[str, Any]) -> Sequence[float] | None:
    """Of the same widths, law and gamma; however long the run's own models were trained."""
    grid, gamma = published(), regime["gamma"]
    if gamma is None:
        return None
    if regime["widths"] == grid["settings"]["widths"]:
        # Denser samples are another group.
        return published_losses(1, gamma, 1) if regime["group"] == law_title("power:1") else None
    if regime["widths"] == grid["large"]["settings"]["widths"]:
        laws = [law for law in grid["large"]["strong"] if law != "gamma"]
        named = [law for law in laws if law_title(law) == regime["group"]]
        return published_large(named[0], gamma) if named else None
    return None
