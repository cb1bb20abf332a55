r"""The exponent of losses over widths: L ∝ m^−α, by least squares of log L over log m.

The exponent of a curve that bends depends on where the line is fitted: those of Liu et al. 2025
move by 0.2 to 0.35 between the windows all, m ≥ 15 and m ≥ 25. So the fit of every window that ends
at the widest is beside that of all points, and a quadratic term says whether the points bend.

Over parameters N ∝ m^k the exponent is another, L ∝ N^−αₙ = m^−kαₙ. The k of language models is
that of the 50 models of Hoffmann et al. 2022 (arXiv 2203.15556), table A9: 2.523 ± 0.026 by a fit
of log N over log m. It is less than 3, for wider models are not deeper in proportion. With
αₙ = 0.35 ± 0.02, α over width is 0.883 ± 0.051.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.intervals import t975
from beltrami.analysis.results import Result
from beltrami.checks import check_integer, check_number, check_positive
from beltrami.report.chart_frame import as_tensor

Numbers = Sequence[float] | Tensor
"""A list of numbers, or a tensor of them."""

FEWEST = 3  # points of a line that has an error, and widths of a window
ROUNDING = 1e-13  # a spread of log L below this: such points lie on their line exactly
WIDTH_POWER, WIDTH_POWER_ERROR = 2.523, 0.026  # k


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


@dataclass(frozen=True)
class ExponentWindows(Result):
    """The exponents of all windows that end at the widest.

    Args:
        fits: of all points, of those without the narrowest width, and so on down to 3 widths.
        spread: the largest of their exponents less the smallest.
        curvature: the coefficient of (log m)² in log L. curvature_error: its standard error; NaN
            without degrees of freedom to estimate it from. curvature_t: their ratio.
        concave, convex: whether the points bend down, so that the exponent grows with width, or up,
            as those do that approach a floor: the curvature is further from 0 than the 95 % point
            of Student's t.
    """

    fits: tuple[ExponentFit, ...]
    spread: float
    curvature: float
    curvature_error: float
    curvature_t: float
    concave: bool
    convex: bool


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
    if first:
        different = m.unique()
        if first >= len(different):
            raise ValueError(f"first leaves out {first} of {len(different)} widths, and none stay")
        m, loss = m[m >= different[first]], loss[m >= different[first]]
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
    curvature, error, _ = _highest_term(m.log(), loss.log(), degree=2)
    # Points on a parabola have no error; those on a line no curvature but rounding, either.
    t = curvature / error if error else math.nan
    bends = error > 0 and abs(t) > t975(len(m) - FEWEST)
    return ExponentWindows(
        fits=fits,
        spread=max(exponents) - min(exponents),
        curvature=curvature,
        curvature_error=error or math.nan,
        curvature_t=t,
        concave=bends and curvature < 0,
        convex=bends and curvature > 0,
    )


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
    """The exponent kαₙ over width, with √((k·δαₙ)² + (αₙ·δk)²), for errors that are independent.

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
    """The exponent α/k over parameters, the way back from `width_exponent`."""
    check_positive("power", power)
    return width_exponent(alpha_m, error, power=1 / power, power_error=power_error / power**2)


def parameters_for_width(
    width: float, *, like: tuple[float, float], power: float = WIDTH_POWER
) -> float:
    """N of a width, by the law N ∝ m^power through `like`, a width and its parameters."""
    _check_law(like, power, width=width)
    return float(like[1] * (width / like[0]) ** power)


def width_for_parameters(
    parameters: float, *, like: tuple[float, float], power: float = WIDTH_POWER
) -> float:
    """The width of a number of parameters, the way back from `parameters_for_width`."""
    _check_law(like, power, parameters=parameters)
    return float(like[0] * (parameters / like[1]) ** (1 / power))


def _check_law(like: tuple[float, float], power: float, **size: float) -> None:
    named = {**size, "width of like": like[0], "parameters of like": like[1], "power": power}
    for name, value in named.items():
        check_positive(name, value)


def checked_points(widths: Numbers, losses: Numbers) -> tuple[Tensor, Tensor]:
    """Widths and losses as float64 of the same length, in the order given; widths are positive."""
    m, loss = as_tensor(widths, "widths"), as_tensor(losses, "losses")
    if len(m) != len(loss):
        raise ValueError(f"there are {len(m)} widths and {len(loss)} losses: give one loss a width")
    for name, values in (("widths", m), ("losses", loss)):
        if not bool(torch.isfinite(values).all()):
            bad = int((~torch.isfinite(values)).nonzero()[0])
            raise ValueError(f"{name} must be finite, got {values[bad].item()} at place {bad}")
    if len(m) and float(m.min()) <= 0:
        raise ValueError(f"widths must be positive, got {float(m.min()):g}")
    return m, loss


def sorted_points(widths: Numbers, losses: Numbers) -> tuple[Tensor, Tensor]:
    """By width, and by loss where a width was trained several times; losses are positive."""
    m, loss = checked_points(widths, losses)
    if len(loss) and float(loss.min()) <= 0:
        raise ValueError(
            f"losses must be positive, for their logarithms are fitted; got {float(loss.min()):g}"
        )
    order = loss.argsort(stable=True)
    order = order[m[order].argsort(stable=True)]
    return m[order], loss[order]


def group_means(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Different x, the means of their y, and the place of each point among them."""
    different, group = x.unique(return_inverse=True)
    sums = y.new_zeros(len(different)).index_add(0, group, y)
    return different, sums / torch.bincount(group), group


def pure_error(x: Tensor, y: Tensor) -> float:
    """Pooled standard deviation of y among equal x; NaN if none are equal."""
    different, mean, group = group_means(x, y)
    freedom = len(x) - len(different)
    if freedom == 0:
        return math.nan
    return math.sqrt(float((y - mean[group]).square().sum()) / freedom)


def _fit(m: Tensor, loss: Tensor) -> ExponentFit:
    distinct = len(m.unique())
    if len(m) < FEWEST or distinct < 2:
        raise ValueError(
            f"an exponent needs {FEWEST} points of different widths, got {len(m)} of "
            f"{distinct} widths"
        )
    x, y = m.log(), loss.log()
    slope, error, deviation = _highest_term(x, y, degree=1)
    up = y - y.mean()
    flat = float(up.abs().max()) <= ROUNDING
    share_left = deviation**2 * (len(m) - 2) / float(up.square().sum()) if not flat else math.nan
    off = t975(len(m) - 2) * error
    return ExponentFit(
        exponent=-slope,
        error=error,
        low=-slope - off,
        high=-slope + off,
        intercept=float(y.mean()) - slope * float(x.mean()),
        r_squared=1 - share_left,
        points=len(m),
        distinct=distinct,
        residual=deviation,
        pure_error=pure_error(x, y),
        widths=tuple(m.tolist()),
        losses=tuple(loss.tolist()),
    )


def _highest_term(x: Tensor, y: Tensor, degree: int) -> tuple[float, float, float]:
    """The highest term of a polynomial, its standard error, and the deviation of y about it.

    Where all points lie on the polynomial, the residuals are rounding, and both errors are 0.
    """
    x, y = x - x.mean(), y - y.mean()
    reach = float(x.abs().max())  # columns of one size: none of them is taken for rounding
    design = torch.stack([(x / reach) ** k for k in range(degree + 1)], 1)
    inverse = torch.linalg.pinv(design)
    residuals = y - design @ (inverse @ y)
    freedom = len(x) - degree - 1
    exact = freedom == 0 or float(residuals.abs().max()) <= ROUNDING
    deviation = 0.0 if exact else math.sqrt(float(residuals.square().sum()) / freedom)
    term, error = inverse[degree] @ y, deviation * torch.linalg.vector_norm(inverse[degree])
    return float(term) / reach**degree, float(error) / reach**degree, deviation
