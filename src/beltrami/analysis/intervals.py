"""Means over seeds with 95% t-intervals, without scipy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from beltrami.checks import check_integer

# The 97.5% quantiles of Student's t for 1 to 10 degrees of freedom, from the usual table.
_T975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)


@dataclass(frozen=True)
class Interval:
    """mean ± half_width; half_width is None for a single value and for infinite ones."""

    mean: float
    half_width: float | None

    def format(self, digits: int = 3) -> str:
        """As people read it, for example "0.054 ± 0.002"."""
        rounded = round(self.mean, digits) + 0.0  # −0.0 + 0.0 is 0.0
        text = f"{rounded:.{digits}f}".replace("-", "−")
        if self.half_width is None:
            return text
        if 0 < self.half_width < 0.5 * 10**-digits:  # "± 0.000" would claim too much
            return f"{text} ± <{10**-digits:.{digits}f}"
        return f"{text} ± {self.half_width:.{digits}f}"


def t975(degrees: int) -> float:
    """97.5% quantile of Student's t, right to 1.2e-4 (the largest error is at 11 degrees).

    From the table up to 10 degrees of freedom, then by the Cornish-Fisher expansion around the
    normal quantile z: z + (z³+z)/4ν + (5z⁵+16z³+3z)/96ν² + (3z⁷+19z⁵+17z³−15z)/384ν³.
    """
    check_integer("degrees of freedom", degrees)
    if degrees <= len(_T975):
        return _T975[degrees - 1]
    z = 1.959964
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of independent values with its 95% t-interval."""
    if not values:
        raise ValueError("values must not be empty")
    mean = statistics.fmean(values)
    if len(values) == 1 or not math.isfinite(mean):
        return Interval(mean, None)
    error = statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, t975(len(values) - 1) * error)
