"""Checks of options that several commands share, and names made of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from beltrami.checks import check_integer, check_unique
from beltrami.checks import check_positive as check_positive_number


def check_counts(config: object, *names: str) -> None:
    """Refuse options below 1; those that are None were not given."""
    for name in names:
        if (value := getattr(config, name)) is not None:
            check_integer(flag(name), value)


def check_positive(config: object, *names: str) -> None:
    """Refuse options that are not positive numbers."""
    for name in names:
        check_positive_number(flag(name), getattr(config, name))


def check_no_repeats(config: object, *names: str) -> None:
    """Refuse lists that name something twice."""
    for name in names:
        check_unique(flag(name), getattr(config, name))


def refuse_given(config: Any, names: Sequence[str], why: str) -> None:
    """Refuse options that would be ignored: those that are not what they are by default."""
    defaults = type(config)()
    for name in names:
        if getattr(config, name) != getattr(defaults, name):
            raise ValueError(f"{flag(name)} does not apply: {why}")


def flag(name: str) -> str:
    """An option's name on the command line."""
    return "--" + name.replace("_", "-")


def file_name(text: str) -> str:
    """A text made fit for the name of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)
