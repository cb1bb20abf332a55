"""Every `cases_*` module of this folder, found by name so that a new one joins by existing."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.accuracy.grid import Case


def all_cases() -> dict[str, list[Case]]:
    """Cases by the name of the geometry module they measure."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        module = importlib.import_module(f"tests.accuracy.{path.stem}")
        found[path.stem.removeprefix("cases_")] = module.CASES
    return found
