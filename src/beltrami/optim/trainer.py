"""Moved to `beltrami.train.trainer`; this alias goes with version 0.3."""

import importlib
import sys
import warnings

warnings.warn(
    "beltrami.optim.trainer moved to beltrami.train.trainer", DeprecationWarning, stacklevel=2
)
sys.modules[__name__] = importlib.import_module("beltrami.train.trainer")
