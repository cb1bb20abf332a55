"""Moved to `beltrami.train.finite`; this alias goes with version 0.3."""

import importlib
import sys
import warnings

warnings.warn(
    "beltrami.optim.finite moved to beltrami.train.finite", DeprecationWarning, stacklevel=2
)
sys.modules[__name__] = importlib.import_module("beltrami.train.finite")
