r"""Power laws with a floor: L = A·m^−α + B, by least squares of log L, with B ≥ 0.

Logarithms, so that a loss of 0.06 counts as much as one of 0.7, and so that B = 0 is the line of
`exponent.py`. Fits start from several floors at once; the line itself is always among the results,
so that a floor is never worse than none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.superposition.least_squares import (
    COARSE,
    CONVERGED,
    Model,
    covariance,
    descend,
)

# Floors to start from, as shares of the smallest loss.
STARTS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 0.995)
_ENDLESS = 1e6  # of log m, in place of ∞


@dataclass(frozen=True)
class FloorFit:
    """A·z^−α + B at z = m/exp(centre), with losses divided by exp(level).

    Args:
        log_scale, exponent, floor: log A, α and B.
        centre, level: means of log m and of log L.
        squares: sum of squared residuals of log L.
        parameters: how many were fitted: 3, or 2 with a floor that was given.
        covariance: of those, for a variance of 1.
    """

    log_scale: float
    exponent: float
    floor: float
    centre: float
    level: float
    squares: float
    parameters: int
    covariance: Tensor

    @property
    def floor_is_fitted(self) -> bool:
        """Whether B is a parameter of the fit."""
        return self.parameters == 3

    @property
    def loss_floor(self) -> float:
        """B in the unit of the losses."""
        return self.floor * math.exp(self.level)

    def width(self, loss: float) -> float:
        """m at which a loss is reached; ∞ at and below the floor, and where losses do not fall."""
        above = loss * math.exp(-self.level) - self.floor
        if above <= 0 or self.exponent <= 0:
            return math.inf
        return exp_or_inf(self.centre + (self.log_scale - math.log(above)) / self.exponent)


def exp_or_inf(power: float) -> float:
    """exp, ∞ where that is larger than a number can be."""
    return math.exp(power) if power < math.log(1e300) else math.inf


def fit_floor(m: Tensor, loss: Tensor, *, floor: float | None) -> FloorFit:
    """The best fit, with B free or given.

    Args:
        m, loss: positive, float64.
        floor: B, below all losses; None fits it.
    """
    centre, level = float(m.log().mean()), float(loss.log().mean())
    x, y = m.log() - centre, loss.log() - level
    if floor is None:
        start = _lines_from_floors(x, y)
    else:
        start = _lines(x, y, torch.tensor([floor * math.exp(-level)], dtype=torch.float64))
    parameters = 3 if floor is None else 2
    model = _law(x, y, parameters)

    def project(p: Tensor) -> Tensor:
        """A floor of at least 0."""
        return torch.cat([p[:, :2], torch.where(p[:, 2:] > 0, p[:, 2:], 0.0)], -1)

    fits, squares = descend(model, start, project=project)
    # The line without a floor is exact: its own descent may only have gained rounding.
    first = model(start[:1])[0].square().sum()
    if not bool(squares[0] < first * (1 - CONVERGED.gain)):
        squares[0], fits[0] = first, start[0]
    best = fits[int(squares.argmin())]
    jacobian = model(best[None])[1][0]
    scale, exponent, best_floor = best.tolist()
    left = float(squares.min())
    return FloorFit(
        scale, exponent, best_floor, centre, level, left, parameters, covariance(jacobian)
    )


@dataclass(frozen=True)
class GivenFloors:
    """The best laws of several floors, (k,) each.

    Args:
        exponents: α. squares: sums of squared residuals of log L.
        variance: of α, for a variance of 1; ∞ where the losses do not tell it.
    """

    exponents: Tensor
    squares: Tensor
    variance: Tensor


def fit_given_floors(m: Tensor, loss: Tensor, floors: Tensor) -> GivenFloors:
    """What `fit_floor` finds of each floor, all at once.

    Args:
        m, loss: positive, float64.
        floors: (k,), below all losses.
    """
    x, y = m.log() - m.log().mean(), loss.log() - loss.log().mean()
    model = _law(x, y, 2)
    start = _lines(x, y, floors * (-loss.log().mean()).exp())
    fits, squares = descend(model, start, stop=COARSE)
    share, slope = model(fits)[1].unbind(-1)  # (k, n)
    # What of the slope's column the other does not explain: its inverse is the variance.
    off = slope - share * ((share * slope).sum(-1) / share.square().sum(-1))[:, None]
    return GivenFloors(fits[:, 1], squares, 1 / off.square().sum(-1))


def least_squares_through(
    m: Tensor, loss: Tensor, widths: Tensor, target: float, *, floor: float | None
) -> Tensor:
    """Squares of log L, (k,), by the best law that has the loss `target` at each width.

    A width of ∞ asks for a floor at the target. With B free, laws have 0 ≤ B ≤ target.

    Args:
        m, loss: positive, float64.
        widths: (k,), positive.
        target: positive, above the floor.
        floor: B; None fits it.
    """
    centre = m.log().mean()
    x, y = m.log() - centre, loss.log() - math.log(target)
    # So far out that a power law is 0 there, where ∞ itself would make NaN of 0·∞.
    ahead = torch.where(torch.isfinite(widths), widths.log() - centre, _ENDLESS)
    if floor is None:
        return torch.minimum(_through(x, y, ahead, 0.0), _through_with_floor(x, y, ahead))
    return _through(x, y, ahead, floor / target)


def _law(x: Tensor, y: Tensor, parameters: int) -> Model:
    """log(exp(log A − αx) + B) − y and its derivatives by the first of (log A, α, B)."""

    def model(p: Tensor) -> tuple[Tensor, Tensor]:
        power = (p[:, :1] - p[:, 1:2] * x).exp()
        value = power + p[:, 2:]
        share = power / value
        jacobian = torch.stack([share, -x * share, 1 / value], -1)
        return value.log() - y, jacobian[..., :parameters]

    return model


def _through(x: Tensor, y: Tensor, ahead: Tensor, share: float) -> Tensor:
    """By laws (1 − β)·exp(−α(x − ahead)) + β of a given β, which have but their α."""
    away = x - ahead[:, None]  # (k, n)
    slope = -(away * y).sum(-1) / away.square().sum(-1)  # exact without a floor

    def model(p: Tensor) -> tuple[Tensor, Tensor]:
        power = (1 - share) * (-p * away).exp()
        return (power + share).log() - y, (-away * power / (power + share))[..., None]

    return descend(model, slope[:, None], stop=COARSE)[1]


def _through_with_floor(x: Tensor, y: Tensor, ahead: Tensor) -> Tensor:
    """By laws exp(u − αx) + 1 − exp(u − α·ahead), whose floor is what the target leaves.

    With u and α, not α and the floor: of a target far ahead, the floor is 1 but for a little.
    """
    starts = _lines_from_floors(x, y)[::2, :2]  # (s, 2)
    k, s = len(ahead), len(starts)
    h = ahead.repeat_interleave(s)[:, None]

    def project(p: Tensor) -> Tensor:
        """A floor of at least 0: u ≤ α·ahead."""
        return torch.stack([torch.minimum(p[:, 0], p[:, 1] * h[:, 0]), p[:, 1]], -1)

    def model(p: Tensor) -> tuple[Tensor, Tensor]:
        power, tip = (p[:, :1] - p[:, 1:] * x).exp(), (p[:, :1] - p[:, 1:] * h).exp()
        value = power + 1 - tip
        jacobian = torch.stack([power - tip, h * tip - x * power], -1) / value[..., None]
        return value.log() - y, jacobian

    start = project(starts.repeat(k, 1))
    return descend(model, start, project=project, stop=COARSE)[1].reshape(k, s).amin(-1)


def _lines_from_floors(x: Tensor, y: Tensor) -> Tensor:
    """(log A, α, B) to start from, (s, 3): lines through log(L − B) for several floors."""
    return _lines(x, y, float(y.min().exp()) * torch.tensor(STARTS, dtype=torch.float64))


def _lines(x: Tensor, y: Tensor, floors: Tensor) -> Tensor:
    # Without a floor the logarithm itself, whose loss may be smaller than a number can be.
    above = torch.where(floors[:, None] == 0, y, (y.exp() - floors[:, None]).log())
    slope = (above * x).sum(-1) / x.square().sum()
    return torch.stack([above.mean(-1), -slope, floors], -1)
