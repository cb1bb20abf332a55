"""Exponents over width from those over parameters."""

from __future__ import annotations

import pytest

from beltrami.analysis.superposition import (
    parameter_exponent,
    parameters_for_width,
    width_exponent,
    width_for_parameters,
)


def test_the_exponent_of_chinchilla() -> None:
    """0.35 ± 0.02 over parameters (Hoffmann et al. 2022); 0.883 ± 0.051 in Liu et al. 2025."""
    found = width_exponent(0.35, 0.02)
    assert found.exponent == pytest.approx(0.883, abs=5e-4)
    assert found.error == pytest.approx(0.051, abs=5e-4)


def test_errors_by_small_changes() -> None:
    step = 1e-6
    one = width_exponent(0.35 + step).exponent - width_exponent(0.35).exponent
    other = (
        width_exponent(0.35, power=2.5 + step).exponent - width_exponent(0.35, power=2.5).exponent
    )
    found = width_exponent(0.35, 0.03, power=2.5, power_error=0.2)
    expected = ((one / step * 0.03) ** 2 + (other / step * 0.2) ** 2) ** 0.5
    assert found.error == pytest.approx(expected, rel=0.01)


def test_there_and_back() -> None:
    there = width_exponent(0.35, 0.02, power_error=0.0)
    back = parameter_exponent(there.exponent, there.error, power_error=0.0)
    assert (back.exponent, back.error) == pytest.approx((0.35, 0.02))
    like = (1024.0, 4e8)
    assert parameters_for_width(2048, like=like) == pytest.approx(4e8 * 2**2.523)
    assert width_for_parameters(parameters_for_width(777, like=like), like=like) == pytest.approx(
        777
    )
    assert parameters_for_width(1024, like=like) == 4e8


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="error must be at least 0"):
        width_exponent(0.3, -0.1)
    with pytest.raises(ValueError, match="power must be positive"):
        parameter_exponent(0.3, power=0.0)
    with pytest.raises(ValueError, match="width must be positive"):
        parameters_for_width(0, like=(1.0, 1.0))
    with pytest.raises(ValueError, match="parameters of like must be positive"):
        width_for_parameters(5, like=(1.0, float("nan")))
