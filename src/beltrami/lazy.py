"""Packages whose names load on first use (PEP 562), so that importing them stays light."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    >>> __getattr__, __dir__ = lazy(__name__, {"train": "beltrami.train.loop"})

    Args:
        package: its name.
        names: the module of each name, or the name's own module, `{"nn": "beltrami.nn"}`.
    """

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(names[name])
        return module if names[name] == f"{package}.{name}" else getattr(module, name)

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return load, listed
