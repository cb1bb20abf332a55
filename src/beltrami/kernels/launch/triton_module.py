"""Fused kernels are imported on first use, and only where there is Triton."""

from __future__ import annotations

import functools
import importlib.util
from types import ModuleType


@functools.cache
def triton_module(name: str) -> ModuleType | None:
    """The module of that name in this package; None where Triton is not installed."""
    if importlib.util.find_spec("triton") is None:
        return None
    return importlib.import_module(f"beltrami.kernels.{name}")
