"""Checks that options of several recipes share; each names the option, the value, the remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def check_counts(config: object, *names: str) -> None:
    """Refuse options below 1; those that are None were not given."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ValueError(f"{option(name)} must be at least 1, got {value}")


def check_positive(config: object, *names: str) -> None:
    """Refuse options that are not positive numbers."""
    for name in names:
        value = getattr(config, name)
        if not 0 < value < float("inf"):  # false for nan, too
            raise ValueError(f"{option(name)} must be a positive number, got {value:g}")


def check_not_negative(config: object, *names: str) -> None:
    """Refuse options that are negative or infinite."""
    for name in names:
        value = getattr(config, name)
        if not 0 <= value < float("inf"):
            raise ValueError(f"{option(name)} must be 0 or more, got {value:g}")


def check_shares(config: object, *names: str) -> None:
    """Refuse options that are no share below the whole."""
    for name in names:
        value = getattr(config, name)
        if not 0 <= value < 1:
            raise ValueError(f"{option(name)} must be at least 0 and below 1, got {value:g}")


def check_learning_rates(rates: Sequence[float]) -> None:
    """Refuse a list without rates, or with one that is not a positive number."""
    if not rates or not all(0 < rate < float("inf") for rate in rates):
        raise ValueError(f"--learning-rates must be positive numbers, got {rates}")


def check_no_repeats(config: object, *names: str) -> None:
    """Refuse lists that name something twice."""
    for name in names:
        values: Sequence[Any] = getattr(config, name)
        if len(set(values)) < len(values):
            raise ValueError(f"{option(name)} names one twice: {' '.join(map(str, values))}")


def refuse_given(config: Any, names: Sequence[str], why: str) -> None:
    """Refuse options that would be ignored: those that are not what they are by default."""
    usual = type(config)()
    for name in names:
        if getattr(config, name) != getattr(usual, name):
            raise ValueError(f"{option(name)} does not apply: {why}")


def option(name: str) -> str:
    """A field's name on the command line."""
    return "--" + name.replace("_", "-")


def file_name(text: str) -> str:
    """A text made fit for the name of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)


def taxonomy_name(data: str, root: str | None) -> str:
    """What to call a taxonomy in a folder's name: its name or its file's, and the root."""
    known = Path(data).suffix == "" and "/" not in data
    return file_name((data if known else Path(data).stem) + (f"-{root}" if root else ""))
