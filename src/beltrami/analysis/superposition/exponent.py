r"""The exponent of losses over widths: L ∝ m^−α, by least squares of log L over log m.

The exponent of a curve that bends depends on where the line is fitted: those of Liu et al. 2025
move by 0.2 to 0.35 between the windows all, m ≥ 15 and m ≥ 25. So the fit of every window that ends
at the widest is beside that of all points, and a quadratic term says whether the points bend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.intervals import t975
from beltrami.analysis.results import Result
from beltrami.analysis.superposition.points import (
    Numbers,
    group_means,
    loss_chart,
    sorted_points,
)
from beltrami.checks import check_integer
from beltrami.report.lines import Series
from beltrami.report.picture import Picture

FEWEST = 3  # points of a line that has an error
SHOWN = 5  # windows of a picture
# A spread of log L below this is rounding: such points lie on their line exactly.
ROUNDING = 1e-13


@dataclass(frozen=True)
class ExponentFit(Result):
    """A power law fitted to losses.

    Args:
        exponent: α, of L = exp(intercept)·m^−α. error: its standard error.
        low, high: its 95 % t-interval.
        intercept: log L at m = 1.
        r_squared: of log L; NaN for losses that are all the same.
        points: how many were fitted. distinct: how many widths they have.
        residual: standard deviation of log L about the line, with points − 2 degrees of freedom.
        pure_error: standard deviation of log L among runs of the same width, pooled; NaN if no
            width was trained twice. Where `residual` is much larger, the line is wrong.
        widths, losses: those fitted, by width.
    """

    exponent: float
    error: float
    low: float
    high: float
    intercept: float
    r_squared: float
    points: int
    distinct: int
    residual: float
    pure_error: float
    widths: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()

    def at(self, width: float) -> float:
        """The fitted loss of a width."""
        return math.exp(self.intercept - self.exponent * math.log(width))

    def plot(self) -> Picture:
        """The points and the line."""
        return _picture([self])


@dataclass(frozen=True)
class ExponentWindows(Result):
    """The exponents of all windows that end at the widest.

    Args:
        fits: of all points, of those without the narrowest width, and so on down to 3 widths.
        spread: the largest of their exponents less the smallest.
        curvature: the coefficient of (log m)² in log L. curvature_error: its standard error; NaN
            without degrees of freedom to estimate it from.
        curvature_t: their ratio.
        concave: whether the points bend down, so that the exponent grows with width: the curvature
            is negative, and further from 0 than the 95 % point of Student's t.
        convex: whether they bend up, as those do that approach a floor.
    """

    fits: tuple[ExponentFit, ...]
    spread: float
    curvature: float
    curvature_error: float
    curvature_t: float
    concave: bool
    convex: bool

    def plot(self) -> Picture:
        """The points, and the lines of at most 5 windows, from the longest to the shortest."""
        last = len(self.fits) - 1
        places = {round(last * i / (SHOWN - 1)) for i in range(SHOWN)}
        return _picture([self.fits[place] for place in sorted(places)])


def fit_exponent(widths: Numbers, losses: Numbers, *, first: int = 0) -> ExponentFit:
    """The least-squares line of log L over log m.

    Args:
        widths: m, in any order; a width may occur several times, once a seed.
        losses: one a width, positive.
        first: how many of the narrowest widths to leave out, each with all its points.

    Raises:
        ValueError: for fewer than 3 points or 2 widths, losses that are not positive, and numbers
            that are not finite.
    """
    check_integer("first", first, 0)
    m, loss = sorted_points(widths, losses)
    different = m.unique()
    if first:
        if first >= len(different):
            raise ValueError(f"first leaves out {first} of {len(different)} widths, and none stay")
        wide = m >= different[first]
        m, loss = m[wide], loss[wide]
    return _fit(m, loss)


def exponent_windows(widths: Numbers, losses: Numbers) -> ExponentWindows:
    """The fit of all points, and of each window of at least 3 widths that ends at the widest.

    Args:
        widths, losses: as for `fit_exponent`.

    Raises:
        ValueError: as `fit_exponent`, and for fewer than 3 different widths.
    """
    m, loss = sorted_points(widths, losses)
    different = m.unique()
    if len(different) < FEWEST:
        raise ValueError(f"a window has {FEWEST} widths, and there are {len(different)}")
    starts = different[: len(different) - FEWEST + 1]
    fits = tuple(_fit(m[m >= start], loss[m >= start]) for start in starts)
    exponents = [fit.exponent for fit in fits]
    curvature, error = _curvature(m.log(), loss.log())
    t = curvature / error if error > 0 else math.nan
    bends = len(m) > FEWEST and abs(t) > t975(len(m) - FEWEST)
    return ExponentWindows(
        fits=fits,
        spread=max(exponents) - min(exponents),
        curvature=curvature,
        curvature_error=error,
        curvature_t=t,
        concave=bends and curvature < 0,
        convex=bends and curvature > 0,
    )


def _fit(m: Tensor, loss: Tensor) -> ExponentFit:
    distinct = len(m.unique())
    if len(m) < FEWEST or distinct < 2:
        raise ValueError(
            f"an exponent needs {FEWEST} points of different widths, got {len(m)} of "
            f"{distinct} widths"
        )
    x, y = m.log(), loss.log()
    across, up = x - x.mean(), y - y.mean()
    scatter = float(across.square().sum())
    slope = float((across * up).sum()) / scatter
    residuals = up - slope * across
    # Where all points lie on the line, the residuals are rounding, and no error.
    exact = float(residuals.abs().max()) <= ROUNDING
    squares = 0.0 if exact else float(residuals.square().sum())
    flat = float(up.abs().max()) <= ROUNDING
    deviation = math.sqrt(squares / (len(m) - 2))
    error = deviation / math.sqrt(scatter)
    off = t975(len(m) - 2) * error
    return ExponentFit(
        exponent=-slope,
        error=error,
        low=-slope - off,
        high=-slope + off,
        intercept=float(y.mean()) - slope * float(x.mean()),
        r_squared=math.nan if flat else 1 - squares / float(up.square().sum()),
        points=len(m),
        distinct=distinct,
        residual=deviation,
        pure_error=pure_error(x, y),
        widths=tuple(m.tolist()),
        losses=tuple(loss.tolist()),
    )


def pure_error(x: Tensor, y: Tensor) -> float:
    """Pooled standard deviation of y among equal x; NaN if none are equal."""
    different, mean, group = group_means(x, y)
    freedom = len(x) - len(different)
    if freedom == 0:
        return math.nan
    return math.sqrt(float((y - mean[group]).square().sum()) / freedom)


def _curvature(x: Tensor, y: Tensor) -> tuple[float, float]:
    """The quadratic term of y over x, and its standard error."""
    x = x - x.mean()
    design = torch.stack([torch.ones_like(x), x, x.square()], 1)
    q, r = torch.linalg.qr(design)
    terms = torch.linalg.solve_triangular(r, (q.mT @ y)[:, None], upper=True)[:, 0]
    freedom = len(x) - 3
    residuals = y - design @ terms
    if freedom == 0 or float(residuals.abs().max()) <= ROUNDING:
        # Points on a parabola have no error; those on a line no curvature but rounding, either.
        return float(terms[2]), math.nan
    variance = float(residuals.square().sum()) / freedom
    return float(terms[2]), math.sqrt(variance) / abs(float(r[2, 2]))


def _picture(fits: Sequence[ExponentFit]) -> Picture:
    """The points of the first, longest fit, and the lines of all."""
    lines = [Series("losses", fits[0].widths, fits[0].losses)]
    for fit in fits:
        ends = fit.widths[0], fit.widths[-1]
        name = f"m ≥ {ends[0]:g}: α = {fit.exponent:.2f} ± {fit.error:.2f}"
        lines.append(Series(name, ends, [fit.at(width) for width in ends]))
    description = "Losses, and power laws fitted to them."
    return loss_chart(lines, title="Loss over width", description=description)
