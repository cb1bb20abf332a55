"""Losses of toy models beside the published ones: which runs have such, and which do not."""

from __future__ import annotations

from typing import Any

import pytest

from beltrami.recipes.superposition.published import published
from benchmarks.superposition_losses import loss_lines


def regime(**changed: Any) -> dict[str, Any]:
    theirs = published()["losses"]["rows"][0]
    return {
        "group": "power law 1",
        "model": "linear",
        "regime": "γ = −0.556",
        "gamma": -0.556,
        "widths": published()["settings"]["widths"],
        "losses": [{"mean": 1.5 * loss, "half_width": 0.01} for loss in theirs],
    } | changed


def lines(**changed: Any) -> list[str]:
    return list(loss_lines({"findings": {"regimes": [regime(**changed)]}}))


def test_losses_stand_beside_the_published_ones() -> None:
    found = lines()
    assert "m = 10 | m = 15" in found[-3]
    cells = found[-1].split(" | ")
    assert cells[0] == "| power law 1, γ = −0.556"
    assert cells[1] == "1.0353 ± 0.0100 (0.6902, +50%)"
    assert len(cells) == 1 + len(published()["settings"]["widths"])


def test_losses_of_many_features_are_found_by_their_law() -> None:
    large = published()["large"]
    for law, title in (("power:1.2", "power law 1.2"), ("linear", "linear")):
        theirs = large["weak"][law]
        found = lines(
            group=title,
            gamma=0.1,
            widths=large["settings"]["widths"],
            losses=[{"mean": 0.999 * loss, "half_width": None} for loss in theirs],
        )
        assert f"{0.999 * theirs[0]:.4f} ({theirs[0]:.4g}, +0%)" in found[-1]


@pytest.mark.parametrize(
    "changed",
    [
        {"group": "power law 2"},
        {"gamma": 0.333},
        {"gamma": None, "regime": "rows of length 1"},
        {"model": "distance"},
        {"widths": [10, 15, 25, 39, 63, 101]},
        {"group": "power law 1, 3.43 features a sample"},
        {"group": "power law 3", "widths": published()["large"]["settings"]["widths"]},
    ],
)
def test_other_models_have_no_published_losses(changed: dict[str, Any]) -> None:
    assert lines(**changed) == []


def test_a_run_without_findings_has_no_table() -> None:
    assert list(loss_lines({"findings": {}})) == []
    assert list(loss_lines({})) == []
