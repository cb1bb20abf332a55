r"""Exponents over width from exponents over parameters: N ∝ m^k, so L ∝ N^−αₙ is L ∝ m^−kαₙ.

The k of language models is that of the 50 models of Hoffmann et al. 2022 (arXiv 2203.15556), table
A9: 2.523 ± 0.026 by a fit of log N over log m. It is less than 3, for wider models are not deeper
in proportion. With αₙ = 0.35 ± 0.02, α over width is 0.883 ± 0.051.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from beltrami.analysis.results import Result
from beltrami.checks import check_number, check_positive

WIDTH_POWER = 2.523  # k
WIDTH_POWER_ERROR = 0.026


@dataclass(frozen=True)
class ExponentEstimate(Result):
    """An exponent and its standard error."""

    exponent: float
    error: float


def width_exponent(
    alpha_n: float,
    error: float = 0.0,
    *,
    power: float = WIDTH_POWER,
    power_error: float = WIDTH_POWER_ERROR,
) -> ExponentEstimate:
    """kαₙ, with √((k·δαₙ)² + (αₙ·δk)²), for errors that are independent.

    Args:
        alpha_n: of L ∝ N^−αₙ. error: its standard error.
        power, power_error: k of N ∝ m^k, and its standard error.
    """
    check_positive("power", power)
    check_number("error", error, low=0)
    check_number("power_error", power_error, low=0)
    return ExponentEstimate(power * alpha_n, math.hypot(power * error, alpha_n * power_error))


def parameter_exponent(
    alpha_m: float,
    error: float = 0.0,
    *,
    power: float = WIDTH_POWER,
    power_error: float = WIDTH_POWER_ERROR,
) -> ExponentEstimate:
    """The way back: α/k, with √((δα/k)² + (α·δk/k²)²).

    Args:
        alpha_m: of L ∝ m^−α. error: its standard error.
        power, power_error: as for `width_exponent`.
    """
    check_positive("power", power)
    return width_exponent(alpha_m, error, power=1 / power, power_error=power_error / power**2)


def parameters_for_width(
    width: float, *, like: tuple[float, float], power: float = WIDTH_POWER
) -> float:
    """N of a width, for models shaped as those of table A9.

    Args:
        width: m.
        like: width and parameters of a model of the family, which the law goes through.
        power: k.
    """
    check_positive("width", width)
    _check_law(like, power)
    return float(like[1] * (width / like[0]) ** power)


def width_for_parameters(
    parameters: float, *, like: tuple[float, float], power: float = WIDTH_POWER
) -> float:
    """The way back: m of a number of parameters.

    Args:
        parameters: N.
        like, power: as for `parameters_for_width`.
    """
    check_positive("parameters", parameters)
    _check_law(like, power)
    return float(like[0] * (parameters / like[1]) ** (1 / power))


def _check_law(like: tuple[float, float], power: float) -> None:
    check_positive("width of like", like[0])
    check_positive("parameters of like", like[1])
    check_positive("power", power)
