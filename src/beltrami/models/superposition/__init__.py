"""Toy models of superposition: more features than dimensions, and what their loss does with width.

The model and its data are those of Liu, Liu and Gore, "Superposition Yields Robust Neural Scaling"
(arXiv 2505.10465), many in one stack. `beltrami.recipes.superposition` trains them.
"""

import importlib
import warnings
from typing import Any

from beltrami.models.superposition.frequencies import (
    denser,
    empirical,
    exponential,
    linear,
    power_law,
)
from beltrami.models.superposition.readouts import Readout, ToyAutoencoder, read_out
from beltrami.models.superposition.samples import Batch, FeatureSamples
from beltrami.models.superposition.stack import Member, ToyStack

__all__ = [
    "Batch",
    "FeatureSamples",
    "Member",
    "Readout",
    "ToyAutoencoder",
    "ToyStack",
    "denser",
    "empirical",
    "exponential",
    "linear",
    "power_law",
    "read_out",
]

_MOVED = {"StackTraining": "training", "StackUpdate": "training", "schedule": "training"}


def __getattr__(name: str) -> Any:
    """Names that moved to `beltrami.recipes.superposition`; their aliases go with version 0.3."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"beltrami.recipes.superposition.{_MOVED[name]}"
    warnings.warn(f"{__name__}.{name} moved to {module}", DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module(module), name)
