r"""Power laws with a floor: L = A·m^−α + B, by least squares of log L, with B ≥ 0.

Logarithms, so that a loss of 0.06 counts as much as one of 0.7, and so that B = 0 is the line of
`exponent.py`. Fits start from several floors at once; the line itself is always among the results,
so that a floor is never worse than none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.intervals import t975
from beltrami.analysis.superposition.exponent import ROUNDING

Model = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Residuals (s, n) of parameters (s, p), and their derivatives (s, n, q) by the first q of them."""

# Floors to start from, as shares of the smallest loss.
STARTS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 0.995)
_ENDLESS = 1e6  # of log m, in place of ∞
_RIDGE = 1e-12  # beside the diagonal of JᵀJ, which is 0 where a parameter has no effect


# When a descent ends: after so many steps, or once none wins this share of the squares. The coarse
# one is for sums of squares that are only compared with a bound.
CONVERGED, COARSE = (200, 1e-14), (40, 1e-9)


@dataclass(frozen=True)
class FloorFit:
    """A·z^−α + B at z = m/exp(centre), with losses divided by exp(level).

    Args:
        log_scale, exponent, floor: log A, α and B.
        centre, level: means of log m and of log L.
        points: how many were fitted. spread: Σ(log L − level)².
        squares: sum of squared residuals of log L.
        parameters: how many were fitted: 3, or 2 with a floor that was given.
        covariance: of those, for a variance of 1.
    """

    log_scale: float
    exponent: float
    floor: float
    centre: float
    level: float
    points: int
    spread: float
    squares: float
    parameters: int
    covariance: Tensor

    @property
    def loss_floor(self) -> float:
        """B in the unit of the losses."""
        return self.floor * math.exp(self.level)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the residuals."""
        return self.points - self.parameters

    @property
    def exact(self) -> bool:
        """Whether the residuals are rounding."""
        return self.squares <= self.points * ROUNDING**2

    @property
    def variance(self) -> float:
        """Of log L about the law."""
        return 0.0 if self.exact else self.squares / self.freedom

    @property
    def error(self) -> float:
        """Standard error of α."""
        return self._error(1)

    @property
    def floor_error(self) -> float:
        """Standard error of B in the unit of the losses; NaN where B was given."""
        return self._error(2) * math.exp(self.level) if self.parameters == 3 else math.nan

    def _error(self, i: int) -> float:
        return 0.0 if self.exact else math.sqrt(self.variance * float(self.covariance[i, i]))

    @property
    def r_squared(self) -> float:
        """R² of log L; NaN for losses that are all the same."""
        flat = self.spread <= self.points * ROUNDING**2
        return math.nan if flat else 1 - self.squares / self.spread

    @property
    def aicc(self) -> float:
        """n·log(SS/n) + 2k + 2k(k + 1)/(n − k − 1), where k counts the variance, too."""
        n, k = self.points, self.parameters + 1
        if n - k - 1 < 1 or self.exact:
            return math.nan
        return n * math.log(self.squares / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1)

    @property
    def most_squares(self) -> float:
        """The squares of a law that fits hardly worse: S·(1 + t²/freedom)."""
        return self.squares * (1 + t975(self.freedom) ** 2 / self.freedom)

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
    floors = float(y.min().exp()) * torch.tensor(STARTS, dtype=torch.float64)
    if floor is not None:
        floors = torch.tensor([floor * math.exp(-level)], dtype=torch.float64)
    start = _lines(x, y, floors)
    model = _law(x, y, parameters := 3 if floor is None else 2)

    def project(p: Tensor) -> Tensor:
        """A floor of at least 0."""
        return torch.cat([p[:, :2], p[:, 2:].clamp(min=0)], -1)

    fits, squares = descend(model, start, project=project)
    # The line without a floor is exact: its own descent may only have gained rounding.
    first = model(start[:1])[0].square().sum()
    if not bool(squares[0] < first * (1 - CONVERGED[1])):
        squares[0], fits[0] = first, start[0]
    best = fits[int(squares.argmin())]
    scale, exponent, best_floor = best.tolist()
    return FloorFit(
        log_scale=scale,
        exponent=exponent,
        floor=best_floor,
        centre=centre,
        level=level,
        points=len(m),
        spread=float(y.square().sum()),
        squares=float(squares.min()),
        parameters=parameters,
        covariance=inverse_gram(model(best[None])[1][0]),
    )


def fit_given_floors(m: Tensor, loss: Tensor, floors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What `fit_floor` has for each of the floors (k,), which are below all losses.

    Returns:
        α, sums of squared residuals of log L, and the variance of α for a variance of 1 (∞ where
        the losses do not tell it), each (k,).
    """
    x, y = m.log() - m.log().mean(), loss.log() - loss.log().mean()
    model = _law(x, y, 2)
    start = _lines(x, y, floors * (-loss.log().mean()).exp())
    fits, squares = descend(model, start, stop=COARSE)
    share, slope = model(fits)[1].unbind(-1)  # (k, n)
    # What of the slope's column the other does not explain: its inverse is the variance.
    off = slope - share * ((share * slope).sum(-1) / share.square().sum(-1))[:, None]
    return fits[:, 1], squares, 1 / off.square().sum(-1)


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


def descend(
    model: Model,
    start: Tensor,
    *,
    project: Callable[[Tensor], Tensor] = lambda p: p,
    stop: tuple[int, float] = CONVERGED,
) -> tuple[Tensor, Tensor]:
    """Levenberg and Marquardt's method, from many starts at once.

    Args:
        model: residuals and derivatives; parameters without derivatives stay as they are.
        start: (s, p).
        project: brings parameters back to where they may be.
        stop: when to end.

    Returns:
        The parameters, (s, p), and the sums of squares, (s,).
    """
    p = start.clone()
    residuals, jacobian = model(p)
    squares = residuals.square().sum(-1).nan_to_num(math.inf, math.inf)
    damping = torch.full_like(squares, 1e-3)
    steps, gain = stop
    for _ in range(steps):
        normal = jacobian.mT @ jacobian
        slope = (jacobian.mT @ residuals[..., None])[..., 0]
        diagonal = normal.diagonal(dim1=-2, dim2=-1)
        ridge = diagonal * damping[:, None] + _RIDGE * diagonal.sum(-1, keepdim=True)
        step, _ = torch.linalg.solve_ex(normal + torch.diag_embed(ridge), slope)
        tried = p.clone()
        tried[:, : step.shape[1]] -= step
        tried = project(tried)
        new_residuals, new_jacobian = model(tried)
        # A step out of the numbers is worse than any.
        new = new_residuals.square().sum(-1).nan_to_num(math.inf, math.inf)
        better = new < squares
        arrived = ~better | (squares - new <= gain * squares)
        p = torch.where(better[:, None], tried, p)
        residuals = torch.where(better[:, None], new_residuals, residuals)
        jacobian = torch.where(better[:, None, None], new_jacobian, jacobian)
        squares = torch.where(better, new, squares)
        damping = torch.where(better, damping / 5, damping * 4)
        # Those that do not get better are done once they have tried short steps, too.
        if bool((arrived & ((damping > 1e8) | better)).all()):
            break
    return p, squares


def inverse_gram(jacobian: Tensor) -> Tensor:
    """(JᵀJ)⁻¹ by J = QR, which does not square J's condition; ∞ where its rank is not full."""
    r = torch.linalg.qr(jacobian, mode="r").R
    size = r.diagonal().abs()
    if float(size.min()) <= torch.finfo(torch.float64).eps * float(size.max()):
        return torch.full_like(r, math.inf)
    root = torch.linalg.solve_triangular(r, torch.eye(len(r), dtype=r.dtype), upper=True)
    inverse: Tensor = root @ root.mT
    return inverse


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
    floors = float(y.min().exp()) * torch.tensor(STARTS[::2], dtype=torch.float64)
    starts = _lines(x, y, floors)[:, :2]  # (s, 2)
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


def _lines(x: Tensor, y: Tensor, floors: Tensor) -> Tensor:
    """(log A, α, B) to start from, (s, 3): lines through log(L − B)."""
    # Without a floor the logarithm itself, whose loss may be smaller than a number can be.
    above = torch.where(floors[:, None] == 0, y, (y.exp() - floors[:, None]).log())
    slope = (above * x).sum(-1) / x.square().sum()
    return torch.stack([above.mean(-1), -slope, floors], -1)
