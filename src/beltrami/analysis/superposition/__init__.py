"""Superposition: more features than dimensions, and what it does to losses as models widen.

After Liu, Liu and Gore, "Superposition Yields Robust Neural Scaling", 2025 (arXiv 2505.10465):
which features weights represent, how much rows overlap, exponents of losses over widths with their
errors, and a forecast that says when it is not to be trusted.
"""

from beltrami.analysis.superposition.exponent import (
    ExponentEstimate,
    ExponentFit,
    ExponentWindows,
    exponent_windows,
    fit_exponent,
    parameter_exponent,
    parameters_for_width,
    width_exponent,
    width_for_parameters,
)
from beltrami.analysis.superposition.features import (
    expected_kappa,
    represented,
    unlearned_loss,
    welch_bound,
)
from beltrami.analysis.superposition.forecast import Forecast, ForecastWindow, forecast
from beltrami.analysis.superposition.joint_fit import JointFit, Offset, fit_losses
from beltrami.analysis.superposition.overlaps import Overlaps, overlaps
from beltrami.analysis.superposition.padding import unused_rows
from beltrami.analysis.superposition.regime import (
    Regime,
    classify_exponent,
    classify_losses,
    classify_regime,
)
from beltrami.analysis.superposition.row_blocks import Rows

__all__ = [
    "ExponentEstimate",
    "ExponentFit",
    "ExponentWindows",
    "Forecast",
    "ForecastWindow",
    "JointFit",
    "Offset",
    "Overlaps",
    "Regime",
    "Rows",
    "classify_exponent",
    "classify_losses",
    "classify_regime",
    "expected_kappa",
    "exponent_windows",
    "fit_exponent",
    "fit_losses",
    "forecast",
    "overlaps",
    "parameter_exponent",
    "parameters_for_width",
    "represented",
    "unlearned_loss",
    "unused_rows",
    "welch_bound",
    "width_exponent",
    "width_for_parameters",
]
