r"""Which law losses follow, how sure its exponent is, and whether it depends on the window.

Two laws are fitted to log L: a power law, A·m^−α, and one with a floor, A·m^−α + B with B ≥ 0. The
floor is kept where it fits better than chance would (an F-test at 5 %).

That no floor was kept does not say that there is none, and a floor makes the exponent larger. So
where one was looked for and not kept, the interval of α has those of all laws that fit hardly worse
than the best with a floor: S(B) ≤ S·(1 + t²/freedom), a profile likelihood. For each such B it has

    α(B) ± √((S·(1 + t²/freedom) − S(B))·v(B)),   v(B) the variance of α for a noise of 1

For 100/m + 0.01 at 64 to 2048 with a noise of 3 %, which hides the floor in two of three draws, the
interval of the kept law has the true exponent in half of the draws, and this one in 95 %.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from beltrami.analysis.intervals import t975
from beltrami.analysis.results import Result
from beltrami.analysis.superposition.exponent import ROUNDING
from beltrami.analysis.superposition.floor_fit import FloorFit, fit_floor, fit_given_floors

FOR_A_LINE, FOR_A_FLOOR = 3, 4  # different widths
# Floors that are tried, as shares of the smallest loss: even ones, and nearer and nearer to it.
_EVEN, _NEAR = 31, 16
Floor = float | Literal["fit"]


@dataclass(frozen=True)
class ForecastWindow(Result):
    """The law of the widths from some width on.

    Args:
        from_width: the narrowest.
        points, distinct: losses, and different widths.
        exponent: α. low, high: its 95 % interval, as that of a `Forecast`.
        floor: B of the law, 0 for a power law.
        r_squared: of log L; NaN for losses that are all the same.
    """

    from_width: float
    points: int
    distinct: int
    exponent: float
    low: float
    high: float
    floor: float
    r_squared: float

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it: numbers that are not finite are None."""
        return {k: v if math.isfinite(v) else None for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Laws:
    """The power law, the law with a floor where it was fitted, and which of both to keep."""

    line: FloorFit  # without a floor, or with the one that was given
    floor: FloorFit | None
    needed: bool
    f_statistic: float

    @property
    def chosen(self) -> FloorFit:
        """The law with a floor where it is needed."""
        return self.floor if self.needed and self.floor is not None else self.line


def fit_laws(m: Tensor, loss: Tensor, floor: Floor) -> Laws:
    """Both laws, and the choice; with a floor given, or too few widths for one, the line alone."""
    known = 0.0 if isinstance(floor, str) else float(floor)
    line = fit_floor(m, loss, floor=known)
    enough = len(m.unique()) >= FOR_A_FLOOR
    if not (isinstance(floor, str) and enough):
        return Laws(line, None, False, math.nan)
    curved = fit_floor(m, loss, floor=None)
    freedom = len(m) - 3
    if is_exact(line, len(m)) or curved.floor == 0:
        return Laws(line, curved, False, 0.0)
    variance = curved.squares / freedom
    f = math.inf if is_exact(curved, len(m)) else (line.squares - curved.squares) / variance
    return Laws(line, curved, f > t975(freedom) ** 2, f)


def is_exact(law: FloorFit, points: int) -> bool:
    """Whether the residuals are rounding."""
    return law.squares <= points * ROUNDING**2


def standard_errors(law: FloorFit, points: int) -> tuple[float, float]:
    """Standard errors of α and of B, the latter NaN where B was not fitted."""
    exact = is_exact(law, points)
    variance = 0.0 if exact else law.squares / (points - law.parameters)
    alpha, floor = (
        0.0 if exact else math.sqrt(variance * float(law.covariance[i, i]))
        for i in (1, law.parameters - 1)
    )
    return alpha, floor if law.floor_is_fitted else math.nan


def r_squared(loss: Tensor, law: FloorFit) -> float:
    """R² of log L; NaN for losses that are all the same."""
    y = loss.log()
    total = float((y - y.mean()).square().sum())
    return 1 - law.squares / total if total > len(y) * ROUNDING**2 else math.nan


def most_squares(best: FloorFit, points: int) -> float:
    """The squares of a law that fits hardly worse than the best: S·(1 + t²/freedom)."""
    freedom = points - best.parameters
    return best.squares * (1 + t975(freedom) ** 2 / freedom)


def exponent_interval(m: Tensor, loss: Tensor, law: FloorFit, laws: Laws) -> tuple[float, float]:
    """The 95 % interval of α, which allows for a floor; see the head of this file.

    Args:
        m, loss: what was fitted.
        law: of `laws`, whose α it is about.
        laws: both.
    """
    error, _ = standard_errors(law, len(m))
    if math.isinf(error):  # a floor that is all but the loss leaves an exponent without any bounds
        return -math.inf, math.inf
    off = t975(len(m) - law.parameters) * error
    low, high = law.exponent - off, law.exponent + off
    if law is laws.floor or laws.floor is None or is_exact(law, len(m)):
        return low, high
    near = 0.1 ** torch.linspace(1, 4, _NEAR, dtype=torch.float64)
    shares = torch.cat([torch.linspace(0, 0.9, _EVEN, dtype=torch.float64), 1 - near[1:]])
    fits = fit_given_floors(m, loss, shares * float(loss.min()))
    spare = most_squares(laws.floor, len(m)) - fits.squares
    good = spare >= 0
    if not bool(good.any()):
        return low, high
    ends = (spare * fits.variance)[good].sqrt()
    exponents = fits.exponents[good]
    return min(low, float((exponents - ends).min())), max(high, float((exponents + ends).max()))


def law_windows(m: Tensor, loss: Tensor, laws: Laws, floor: Floor) -> tuple[ForecastWindow, ...]:
    """The law of all widths, that of those without the narrowest, and so on.

    Where a floor was kept, each window is fitted anew, floor and all, with the same choice: a floor
    of all widths would hide that the widest have another, or none. Such windows have 4 widths or
    more. Else they are lines, of 3 or more, with the floor that was given or none.

    Args:
        m, loss: by width.
        laws: of all widths. floor: as for `fit_laws`.
    """
    different = m.unique()
    fewest = FOR_A_FLOOR if laws.needed else FOR_A_LINE
    windows = []
    for start in different[: len(different) - fewest + 1]:
        widths, losses = m[m >= start], loss[m >= start]
        own = laws if len(widths) == len(m) else fit_laws(widths, losses, floor)
        law = own.chosen if laws.needed else own.line
        low, high = exponent_interval(widths, losses, law, own)
        windows.append(
            ForecastWindow(
                from_width=float(start),
                points=len(widths),
                distinct=len(widths.unique()),
                exponent=law.exponent,
                low=low,
                high=high,
                floor=law.loss_floor,
                r_squared=r_squared(losses, law),
            )
        )
    return tuple(windows)
