"""Each check returns what fits, and names the argument, the value and what would fit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beltrami.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_number,
    check_positive,
    check_unique,
)


@given(st.integers())
def test_integers_between_bounds(value: int) -> None:
    if 1 <= value <= 9:
        assert check_integer("n", value, 1, 9) == value
    else:
        with pytest.raises(ValueError, match=r"^n must be at (least 1|most 9), got "):
            check_integer("n", value, 1, 9)
    assert check_integer("n", value, None) == value


@given(st.floats())
def test_positive_numbers(value: float) -> None:
    if 0 < value < math.inf:
        assert check_positive("c", value) == value
    else:
        with pytest.raises(ValueError, match=r"c must be positive and finite"):
            check_positive("c", value)


@given(st.floats(), st.booleans(), st.booleans())
def test_numbers_between_bounds(value: float, open_low: bool, open_high: bool) -> None:
    inside = (value > 0 or (not open_low and value == 0)) and (
        value < 1 or (not open_high and value == 1)
    )
    if inside:
        assert (
            check_number("p", value, low=0, high=1, open_low=open_low, open_high=open_high) == value
        )
    else:
        with pytest.raises(ValueError, match=r"^p must be "):
            check_number("p", value, low=0, high=1, open_low=open_low, open_high=open_high)


@pytest.mark.parametrize("bad", [True, "1", None, [1]])
def test_types(bad: object) -> None:
    for check in (check_integer, check_number, check_positive):
        with pytest.raises(TypeError, match=r"^n must be "):
            check("n", bad)  # type: ignore[operator]


def test_choices_flags_and_repeats() -> None:
    assert check_choice("form", "a", ("a", "b")) == "a"
    with pytest.raises(ValueError, match="form must be one of 'a', 'b'; got 'c'"):
        check_choice("form", "c", ("a", "b"))
    assert check_flag("bias", False) is False
    with pytest.raises(TypeError, match="bias must be True or False, got 0"):
        check_flag("bias", 0)  # type: ignore[arg-type]
    assert check_unique("labels", iter("ab")) == ["a", "b"]
    with pytest.raises(ValueError, match="labels must not repeat a value, got 'a' twice"):
        check_unique("labels", "aba")
