"""Weak or strong superposition, by published weights, losses and exponents."""

from __future__ import annotations

import pytest

from beltrami.analysis.superposition import (
    classify_exponent,
    classify_losses,
    classify_regime,
)
from tests.analysis.superposition.published import (
    PHI_HALF,
    STRONG,
    TOY,
    TOY_WIDTHS,
    WEAK,
    WIDTHS,
)


@pytest.mark.parametrize(
    ("gamma", "name"), [(-1.0, "strong"), (-0.556, "strong"), (0.333, "weak"), (1.0, "weak")]
)
def test_published_weights(gamma: float, name: str) -> None:
    for m, phi in zip(TOY_WIDTHS, PHI_HALF[gamma], strict=True):
        found = classify_regime(phi, 1000, m)
        assert found.name == name
        assert f"{phi:.3g} of 1000 features" in found.words


def test_weights_between() -> None:
    found = classify_regime(PHI_HALF[-0.111][3], 1000, 39)
    assert found.name == "between"
    assert "more than 3 a dimension" in str(found)


def test_few_features_tell_nothing() -> None:
    assert classify_regime(1.0, 100, 26).name == "cannot tell"
    assert classify_regime(1.0, 104, 26).name == "strong"
    assert "fewer than 4 a dimension" in classify_regime(0.2, 10, 10).words


def test_published_losses() -> None:
    assert classify_losses(WIDTHS, STRONG["exponential"]).name == "strong"
    assert classify_losses(TOY_WIDTHS, TOY).name == "strong"
    assert classify_losses(TOY_WIDTHS, TOY, data_exponent=1).name == "strong"
    assert classify_losses(WIDTHS, WEAK["linear"]).name == "weak"
    assert classify_losses(WIDTHS, WEAK["power"], first=3, data_exponent=1.2).name == "weak"
    assert classify_losses(WIDTHS, STRONG["linear"]).name == "cannot tell"  # 0.56 to 0.89


@pytest.mark.parametrize(
    ("interval", "a", "name"),
    [
        ((0.9, 1.0, 1.1), None, "strong"),
        ((0.1, 0.2, 0.3), None, "weak"),
        ((0.6, 0.8, 1.0), None, "cannot tell"),
        ((1.4, 1.5, 1.6), None, "cannot tell"),
        ((-9.0, 1.0, 9.0), None, "cannot tell"),
        ((0.9, 1.0, 1.1), 1.0, "strong"),
        ((0.9, 1.0, 1.1), 2.0, "weak"),  # a − 1, where strong would have 2(a − 1)
        ((1.8, 2.0, 2.2), 2.0, "strong"),
        ((1.3, 1.5, 1.7), 2.0, "cannot tell"),
        ((1.45, 1.5, 1.55), 2.0, "between"),
        ((0.5, 0.6, 0.7), 1.0, "between"),
        ((3.0, 3.1, 3.2), 1.0, "cannot tell"),
    ],
)
def test_exponents(interval: tuple[float, float, float], a: float | None, name: str) -> None:
    low, exponent, high = interval
    found = classify_exponent(exponent, low, high, data_exponent=a)
    assert found.name == name
    assert f"α = {exponent:.2f}, from {low:.2f} to {high:.2f}" in found.words
    assert "strong superposition has" in found.words


@pytest.mark.parametrize("a", [None, 0.5, 1.0])
def test_losses_that_rise_are_in_no_regime(a: float | None) -> None:
    found = classify_exponent(-0.15, -0.19, -0.11, data_exponent=a)
    assert found.name == "cannot tell"
    assert "losses rise" in found.words


def test_losses_that_may_not_fall_are_in_no_regime() -> None:
    assert "may not fall" in classify_exponent(0.1, -0.3, 0.5).words
    assert classify_losses([8, 16, 32, 64], [1.0, 1.02, 0.99, 1.01]).name == "cannot tell"
    assert "may not fall" in classify_exponent(0.05, -0.2, 0.3, data_exponent=1.5).words
    # But where weak superposition is known to have 0, that is what is found.
    assert classify_exponent(0.0, -0.1, 0.1, data_exponent=1.0).name == "weak"


def test_a_strong_one_names_what_looks_the_same() -> None:
    assert "a from 1.90 to 2.10" in classify_exponent(1.0, 0.9, 1.1).words


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="a share"):
        classify_regime(1.2, 10, 2)
    with pytest.raises(ValueError, match="m must be at least 1"):
        classify_regime(0.5, 10, 0)
    with pytest.raises(ValueError, match="does not have 2 in it"):
        classify_exponent(2.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="data_exponent must be finite"):
        classify_exponent(0.5, 0.0, 1.0, data_exponent=float("nan"))
