"""The published figures, and where a run stands beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from beltrami.analysis.superposition import fit_exponent
from beltrami.recipes.registry import create
from beltrami.recipes.runner import run
from beltrami.recipes.superposition.config import SuperpositionConfig
from beltrami.recipes.superposition.published import (
    has_large_settings,
    has_published_settings,
    published,
    published_exponent,
    published_large,
    published_loss_of_one_width,
    published_losses,
)
from beltrami.recipes.superposition.recipe import SuperpositionRecipe


def test_the_losses_have_the_exponent_of_the_grid() -> None:
    """Two figures of the paper, read apart from each other."""
    losses = published_losses(1.0, -0.556, 1.0)
    assert losses == [0.6902, 0.5647, 0.358, 0.2018, 0.1165, 0.06367]
    widths = published()["settings"]["widths"]
    grid = published_exponent(1.0, -0.556)
    assert grid == pytest.approx(fit_exponent(widths, losses).exponent, abs=0.02)


def test_cells_that_are_not_there() -> None:
    assert published_exponent(1.0, -0.5) is None
    assert published_exponent(0.3, -0.556) is None
    assert published_exponent(0.0, 1.0) == 0.06
    assert published_losses(1.0, -0.556, 2.0) is None
    assert published_losses(1.5, -0.556, 1.0) is None
    assert published_loss_of_one_width(-0.556, 1.0) == 0.116  # which the other figure has, too
    assert published_loss_of_one_width(1.0, 7.485) == 4.055
    assert published_loss_of_one_width(0.5, 1.0) is None
    assert published_loss_of_one_width(-1.0, 2.0) is None
    assert published_large("power:1.2", 0.3) is None
    assert published_large("cubic", -1.0) is None


def test_the_large_experiment() -> None:
    losses = published_large("exponential:400", -1.0)
    assert losses is not None
    assert fit_exponent(
        published()["large"]["settings"]["widths"], losses
    ).exponent == pytest.approx(1.005, abs=0.001)


def test_only_the_papers_settings_count() -> None:
    others = (
        {"tf32": True},
        {"steps": 10_000},
        {"batch": 512},
        {"learning_rate": 0.3},
        {"warm_up": 0.5},
    )
    for options, expected in (({}, True), *((other, False) for other in others)):
        recipe = SuperpositionRecipe(SuperpositionConfig(preset="paper", **options))
        linear = recipe.arms()[0]
        assert has_published_settings(linear.settings) is expected
    large = SuperpositionRecipe(SuperpositionConfig(preset="paper-large", laws=("linear",)))
    assert has_large_settings(large.arms()[0].settings)
    assert not has_published_settings(large.arms()[0].settings)
    rough = SuperpositionRecipe(SuperpositionConfig(preset="paper-large", tf32=True))
    assert has_large_settings(rough.arms()[0].settings)  # its row says TF32


def test_a_page_beside_the_published_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both experiments, with their settings made small."""
    small = {"features": 30, "widths": [2, 3, 4, 5, 6, 7], "batch": 20, "steps": 12}
    monkeypatch.setitem(published(), "settings", small)
    monkeypatch.setitem(published(), "represented_width", 4)
    monkeypatch.setitem(published()["large"], "settings", {"features": 31})
    theirs = [1.0] * 6
    monkeypatch.setitem(published()["large"]["strong"], "linear", theirs)
    base = SuperpositionConfig(
        widths=(2, 3, 4, 5, 6, 7), batch=20, steps=12, seeds=1, jobs=1, device="cpu",
        check_steps=False,
    )  # fmt: skip
    laws = ("power:1", "linear")
    run(create(replace(base, features=30, laws=laws, gammas=(-0.556, 0.2), out=tmp_path / "a")))
    page = (tmp_path / "a/report.html").read_text()
    assert "Beside the published figures" in page
    rows = page.split("Beside the published figures")[1].split("</table>")[0]
    assert rows.count("power law 1, γ = −0.556") == 1
    assert "1.06" in rows
    assert "linear" not in rows
    assert "γ = 0.2" not in rows  # no such cell
    run(create(replace(base, features=31, laws=laws, gammas=(-1.0, 0.2), out=tmp_path / "b")))
    rows = (tmp_path / "b/report.html").read_text().split("Beside the published figures")[1]
    assert "linear, γ = −1" in rows.split("</table>")[0]
