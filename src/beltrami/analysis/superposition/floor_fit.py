r"""Power laws with a floor: L = A·m^−α + B, by least squares of log L, with B ≥ 0.

Logarithms, so that a loss of 0.06 counts as much as one of 0.7, and so that B = 0 is the line of
`exponent.py`. Fits start from several floors at once and go down by Levenberg and Marquardt's
method; the line itself is always among the results, so that a floor is never worse than none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Patience(NamedTuple):
    """When a descent ends: after so many steps, or once none wins this share of the squares."""

    steps: int
    still: float


# Floors to start from, as shares of the smallest loss.
STARTS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 0.995)
TO_THE_END = Patience(steps=200, still=1e-14)
# For sums of squares that are compared with a bound, and no more.
OF_PROFILE = Patience(steps=40, still=1e-9)
_ENDLESS = 1e6  # of log m, in place of ∞
_RIDGE = 1e-12  # beside the diagonal of JᵀJ, which is 0 where a parameter has no effect


@dataclass(frozen=True)
class FloorFit:
    """A·z^−α + B at z = m/exp(centre), with losses divided by exp(level).

    Args:
        log_scale, exponent, floor: log A, α and B.
        centre, level: means of log m and of log L.
        squares: what is left of log L.
        free: which parameters were fitted, in this order.
        covariance: of those, for a variance of 1.
    """

    log_scale: float
    exponent: float
    floor: float
    centre: float
    level: float
    squares: float
    free: tuple[bool, bool, bool]
    covariance: Tensor

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
    free = (True, True, floor is None)
    if floor is None:
        start = _started(x, y)
    else:
        start = _lines(x, y, torch.tensor([floor * math.exp(-level)], dtype=torch.float64))

    def model(p: Tensor) -> tuple[Tensor, Tensor]:
        law = (p[:, :1] - p[:, 1:2] * x).exp()
        value = law + p[:, 2:]
        share = law / value
        return value.log() - y, torch.stack([share, -x * share, 1 / value], -1)[..., list(free)]

    def project(p: Tensor) -> Tensor:
        """A floor of at least 0."""
        return torch.cat([p[:, :2], torch.where(p[:, 2:] > 0, p[:, 2:], 0.0)], -1)

    found, squares = descend(model, start, free, project=project)
    # The line without a floor is exact, and its own descent ends at it.
    squares[0], found[0] = _kept(model, start[0], squares[0], found[0])
    best = found[int(squares.argmin())]
    jacobian = model(best[None])[1][0]
    scale, exponent, found_floor = best.tolist()
    left = float(squares.min())
    return FloorFit(
        scale, exponent, found_floor, centre, level, left, free, _inverse_square(jacobian)
    )


@dataclass(frozen=True)
class GivenFloors:
    """The best laws of several floors, (k,) each.

    Args:
        exponents: α. squares: what is left of log L.
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
    start = _lines(x, y, floors * (-loss.log().mean()).exp())

    def model(p: Tensor) -> tuple[Tensor, Tensor]:
        law = (p[:, :1] - p[:, 1:2] * x).exp()
        value = law + p[:, 2:]
        share = law / value
        return value.log() - y, torch.stack([share, -x * share], -1)

    found, squares = descend(model, start, (True, True, False), patience=OF_PROFILE)
    share, slope = model(found)[1].unbind(-1)  # (k, n)
    # What of the slope's column the other does not explain: its inverse is the variance.
    off = slope - share * ((share * slope).sum(-1) / share.square().sum(-1))[:, None]
    return GivenFloors(found[:, 1], squares, 1 / off.square().sum(-1))


def _kept(
    model: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor, squares: Tensor, found: Tensor
) -> tuple[Tensor, Tensor]:
    """The start, unless the descent from it has gained more than rounding."""
    first = model(start[None])[0].square().sum()
    gained = squares < first * (1 - TO_THE_END.still)
    return (squares, found) if bool(gained) else (first, start)


def least_squares_through(
    m: Tensor, loss: Tensor, widths: Tensor, target: float, *, floor: float | None
) -> Tensor:
    """What is left of log L, (k,), by the best law that has the loss `target` at each width.

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


def _through(x: Tensor, y: Tensor, ahead: Tensor, share: float) -> Tensor:
    """By laws (1 − β)·exp(−α(x − ahead)) + β of a given β, which have but their α."""
    away = x - ahead[:, None]  # (k, n)
    slope = -(away * y).sum(-1) / away.square().sum(-1)  # exact without a floor

    def model(p: Tensor) -> tuple[Tensor, Tensor]:
        law = (1 - share) * (-p * away).exp()
        return (law + share).log() - y, (-away * law / (law + share))[..., None]

    return descend(model, slope[:, None], (True,), patience=OF_PROFILE)[1]


def _through_with_floor(x: Tensor, y: Tensor, ahead: Tensor) -> Tensor:
    """By laws exp(u − αx) + 1 − exp(u − α·ahead), whose floor is what the target leaves.

    With u and α, not α and the floor: of a target far ahead, the floor is 1 but for a little.
    """
    starts = _started(x, y)[::2, :2]  # (s, 2)
    k, s = len(ahead), len(starts)
    h = ahead.repeat_interleave(s)[:, None]

    def project(p: Tensor) -> Tensor:
        """A floor of at least 0: u ≤ α·ahead."""
        return torch.stack([torch.minimum(p[:, 0], p[:, 1] * h[:, 0]), p[:, 1]], -1)

    def model(p: Tensor) -> tuple[Tensor, Tensor]:
        law, tip = (p[:, :1] - p[:, 1:] * x).exp(), (p[:, :1] - p[:, 1:] * h).exp()
        value = law + 1 - tip
        return value.log() - y, torch.stack([law - tip, h * tip - x * law], -1) / value[..., None]

    start = project(starts.repeat(k, 1))
    _, squares = descend(model, start, (True, True), project=project, patience=OF_PROFILE)
    return squares.reshape(k, s).amin(-1)


def _started(x: Tensor, y: Tensor) -> Tensor:
    """(log A, α, B) to start from, (s, 3): lines through log(L − B) for several floors."""
    floors = float(y.min().exp()) * torch.tensor(STARTS, dtype=torch.float64)
    return _lines(x, y, floors)


def _lines(x: Tensor, y: Tensor, floors: Tensor) -> Tensor:
    # Without a floor the logarithm itself, whose loss may be smaller than a number can be.
    above = torch.where(floors[:, None] == 0, y, (y.exp() - floors[:, None]).log())
    slope = (above * x).sum(-1) / x.square().sum()
    return torch.stack([above.mean(-1), -slope, floors], -1)


def descend(
    model: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,
    free: tuple[bool, ...],
    *,
    project: Callable[[Tensor], Tensor] = lambda p: p,
    patience: Patience = TO_THE_END,
) -> tuple[Tensor, Tensor]:
    """Levenberg and Marquardt's method from many starts at once.

    Args:
        model: residuals (s, n) of parameters (s, p), and their derivatives (s, n, free ones).
        start: (s, p).
        free: which parameters move.
        project: brings parameters back to where they may be.
        patience: when to end.

    Returns:
        The parameters, (s, p), and the sums of squares, (s,).
    """
    p, places = start.clone(), [i for i, moves in enumerate(free) if moves]
    left, jacobian = model(p)
    squares = _finite(left.square().sum(-1))
    damping = torch.full_like(squares, 1e-3)
    for _ in range(patience.steps):
        normal = jacobian.mT @ jacobian
        slope = (jacobian.mT @ left[..., None])[..., 0]
        diagonal = normal.diagonal(dim1=-2, dim2=-1)
        ridge = diagonal * damping[:, None] + _RIDGE * diagonal.sum(-1, keepdim=True)
        step, _ = torch.linalg.solve_ex(normal + torch.diag_embed(ridge), slope)
        tried = p.clone()
        tried[:, places] -= step
        tried = project(tried)
        new_left, new_jacobian = model(tried)
        new = _finite(new_left.square().sum(-1))
        better = new < squares
        arrived = ~better | (squares - new <= patience.still * squares)
        p = torch.where(better[:, None], tried, p)
        left = torch.where(better[:, None], new_left, left)
        jacobian = torch.where(better[:, None, None], new_jacobian, jacobian)
        squares = torch.where(better, new, squares)
        damping = torch.where(better, damping / 5, damping * 4)
        # Those that do not get better are done once they have tried short steps, too.
        if bool((arrived & ((damping > 1e8) | better)).all()):
            break
    return p, squares


def _finite(squares: Tensor) -> Tensor:
    """Where a step went out of the numbers, it is worse than any."""
    return torch.where(torch.isfinite(squares), squares, math.inf)


def _inverse_square(jacobian: Tensor) -> Tensor:
    """(JᵀJ)⁻¹; infinite where J has no full rank."""
    r = torch.linalg.qr(jacobian, mode="r").R
    size = r.diagonal().abs()
    if float(size.min()) <= torch.finfo(torch.float64).eps * float(size.max()):
        return torch.full_like(r, math.inf)
    root = torch.linalg.solve_triangular(r, torch.eye(len(r), dtype=torch.float64), upper=True)
    found: Tensor = root @ root.mT
    return found
