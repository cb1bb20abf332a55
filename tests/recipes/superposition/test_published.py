"""The published figures, and where a run stands beside them."""

from __future__ import annotations

import pytest

from beltrami.analysis.superposition import fit_exponent
from beltrami.recipes.superposition.config import SuperpositionConfig
from beltrami.recipes.superposition.published import (
    has_published_settings,
    published,
    published_exponent,
    published_large,
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
    assert published_large("power:1.2", 0.3) is None
    assert published_large("cubic", -1.0) is None


def test_the_large_experiment() -> None:
    losses = published_large("exponential:400", -1.0)
    assert losses is not None
    assert fit_exponent(published()["large"]["widths"], losses).exponent == pytest.approx(
        1.005, abs=0.001
    )


def test_only_the_papers_settings_count() -> None:
    for options, expected in (({}, True), ({"steps": 10_000}, False), ({"batch": 512}, False)):
        recipe = SuperpositionRecipe(SuperpositionConfig(preset="paper", **options))  # type: ignore[arg-type]
        linear = recipe.contestants()[0]
        assert has_published_settings(linear.settings) is expected
