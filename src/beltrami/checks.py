"""Checks of plain arguments: numbers, counts, choices, flags. Imports nothing of ours.

Each takes the name that a message shall show, then the value, and returns the value, so that a
constructor can check and assign in one line:

    self.size = check_integer("Lift: size", size)

Checks of tensors are in `beltrami.geometry.checks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def check_integer(name: str, value: int, low: int | None = 1, high: int | None = None) -> int:
    """An integer with low ≤ value ≤ high; None leaves a side open."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if low is not None and value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")
    if high is not None and value > high:
        raise ValueError(f"{name} must be at most {high}, got {value}")
    return value


def check_number(
    name: str,
    value: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """A finite number between low and high, which are excluded where open."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    if value < low or (open_low and value == low):
        raise ValueError(
            f"{name} must be {'above' if open_low else 'at least'} {low:g}, got {value}"
        )
    if value > high or (open_high and value == high):
        raise ValueError(
            f"{name} must be {'below' if open_high else 'at most'} {high:g}, got {value}"
        )
    return float(value)


def check_positive(name: str, value: float) -> float:
    """A number that is positive and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be positive and finite, got {value}")
    return float(value)


def check_choice(name: str, value: T, choices: Iterable[T]) -> T:
    """One of a few values."""
    allowed = tuple(choices)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value


def check_flag(name: str, value: bool) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def check_unique(name: str, values: Iterable[T]) -> list[T]:
    """A list in which nothing stands twice."""
    listed = list(values)
    seen: set[T] = set()
    for value in listed:
        if value in seen:
            raise ValueError(f"{name} must not repeat a value, got {value!r} twice")
        seen.add(value)
    return listed
