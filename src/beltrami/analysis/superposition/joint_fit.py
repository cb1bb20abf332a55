r"""One power law for several families of models: L = A·m^−α + B, with an offset B for each.

Families, and data sets, differ in what width cannot change; A and α are common. For a given α the
rest is linear, so α alone is searched and the others are solved for. Standard errors are those of
all parameters at once, (JᵀJ)⁻¹·s²: with offsets taken for known, that of α would be too small by a
third (0.036 instead of 0.059 for the fit of Liu et al. 2025).

A model that is better than the law on one data set is so on the others. Where its losses on several
are among the points, s² is that of models, not of points: of what is left of a model's D losses,
(Σ left)²/D, with as many degrees of freedom as there are models more than parameters of a fit of
their means. That is right for α and A whether or not losses go together; errors of offsets are on
the large side where they do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from beltrami.analysis.intervals import t975
from beltrami.analysis.results import Result
from beltrami.analysis.superposition.exponent import Numbers, checked_points
from beltrami.analysis.superposition.floor_fit import inverse_gram

EXPONENTS = (0.01, 10.0)  # among which α is sought
_GRID, _FINER, _ROUNDS = 400, 21, 11  # points of the search for log α, each round 10 times finer
_AT_EDGE = 1e-3  # of log α
Key = TypeVar("Key")


@dataclass(frozen=True)
class Offset:
    """B of a family, on a data set where there are several.

    Args:
        family, dataset: which. dataset is None where none were given.
        value, error: B and its standard error.
        points: losses it has. distinct: widths they have; with a single one the family has a B, and
            no say in α and A.
    """

    family: str
    dataset: str | None
    value: float
    error: float
    points: int
    distinct: int


@dataclass(frozen=True)
class JointFit(Result):
    """A common power law with offsets.

    Args:
        exponent, exponent_error: α. low, high: its 95 % t-interval.
        scale, scale_error: A.
        offsets: B, in the order in which families first occur.
        residual: the standard deviation of losses about the fit.
        mean_squared: of what is left, over all points.
        r_squared: of losses about their common mean.
        points, freedom: losses; and how many more there are than parameters, or, where models were
            given, how many more models than parameters without data sets.
        at_edge: whether α is at an end of 0.01 to 10, among which it was sought. Losses are then no
            power law with offsets, and the errors say nothing.
        covariance: of (α, A, B, ...), float64.
    """

    exponent: float
    exponent_error: float
    low: float
    high: float
    scale: float
    scale_error: float
    offsets: tuple[Offset, ...]
    residual: float
    mean_squared: float
    r_squared: float
    points: int
    freedom: int
    at_edge: bool
    covariance: Tensor

    @property
    def lone(self) -> tuple[Offset, ...]:
        """Offsets of a single width, which tell nothing about α."""
        return tuple(offset for offset in self.offsets if offset.distinct == 1)

    def at(self, width: float, family: str, dataset: str | None = None) -> float:
        """The fitted loss of a width."""
        for offset in self.offsets:
            if (offset.family, offset.dataset) == (family, dataset):
                return float(self.scale * width**-self.exponent + offset.value)
        raise ValueError(f"no offset was fitted for family {family!r}, data set {dataset!r}")


def fit_losses(
    widths: Numbers,
    losses: Numbers,
    families: Sequence[str],
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
) -> JointFit:
    """Least squares of losses, with α between 0.01 and 10 and A positive.

    Args:
        widths, losses: one of each a point.
        families: the family of each point.
        datasets: the data set of each, if there are several: then each pair has an offset.
        models: the model of each, if one is there on several data sets: its losses go together, and
            errors are those of models.

    Raises:
        ValueError: for fewer points, or models, than parameters and one more; for fewer than 3
            different widths in families that have at least 2, for α cannot be told from those; and
            for losses that do not fall with width.
    """
    m, loss = checked_points(widths, losses)
    sets: Sequence[str | None] = [None] * len(m) if datasets is None else datasets
    for name, values in (("families", families), ("datasets", sets), ("models", models)):
        if values is not None and len(values) != len(m):
            raise ValueError(f"there are {len(m)} widths and {len(values)} {name}")
    places, group = _numbered(zip(families, sets, strict=True))
    distinct = [len(m[group == i].unique()) for i in range(len(places))]
    _check_widths(m, group, distinct)
    alpha, scale, offsets = _solve(m, loss, group, len(places))
    law = scale * m**-alpha
    residuals = loss - law - offsets[group]
    squares, freedom = float(residuals.square().sum()), len(m) - 2 - len(places)
    residual = math.sqrt(squares / freedom)
    variance = residual**2
    if models is not None:
        variance, freedom = _model_variance(residuals, families, models)
    by_offset = torch.nn.functional.one_hot(group, len(places)).double()
    jacobian = torch.cat([(-law * m.log())[:, None], (law / scale)[:, None], by_offset], 1)
    size = torch.linalg.vector_norm(jacobian, dim=0)  # of columns, which m^−α may make unlike
    covariance = inverse_gram(jacobian / size) * variance / torch.outer(size, size)
    errors = covariance.diagonal().sqrt().tolist()
    off = t975(freedom) * errors[0]
    spread = float((loss - loss.mean()).square().sum())
    edges = (math.log(alpha / bound) for bound in EXPONENTS)
    return JointFit(
        exponent=alpha,
        exponent_error=errors[0],
        low=alpha - off,
        high=alpha + off,
        scale=scale,
        scale_error=errors[1],
        offsets=tuple(
            Offset(*place, float(offsets[i]), errors[2 + i], int((group == i).sum()), distinct[i])
            for i, place in enumerate(places)
        ),
        residual=residual,
        mean_squared=squares / len(m),
        r_squared=1 - squares / spread if spread > 0 else math.nan,
        points=len(m),
        freedom=freedom,
        at_edge=any(abs(away) <= _AT_EDGE for away in edges),
        covariance=covariance,
    )


def _check_widths(m: Tensor, group: Tensor, distinct: list[int]) -> None:
    needed = len(distinct) + 3
    if len(m) < needed:
        raise ValueError(
            f"α, A and {len(distinct)} offset(s) need at least {needed} losses, got {len(m)}"
        )
    widths = m[torch.tensor(distinct)[group] > 1].unique().tolist()
    if len(widths) < 3:
        raise ValueError(
            "α needs at least 3 different widths in families that have several, got "
            f"{[f'{width:g}' for width in widths]}"
        )


def _model_variance(
    residuals: Tensor, families: Sequence[str], models: Sequence[str]
) -> tuple[float, int]:
    """s² by the residuals of each model's losses together, and its degrees of freedom."""
    places, group = _numbered(zip(families, models, strict=True))
    offsets = len({family for family, _ in places})
    freedom = len(places) - 2 - offsets
    if freedom < 1:
        raise ValueError(
            f"α, A and {offsets} offset(s) need at least {offsets + 3} models, got {len(places)}: "
            "losses of one model on several data sets go together"
        )
    sums = residuals.new_zeros(len(places)).index_add_(0, group, residuals)
    return float((sums.square() / torch.bincount(group)).sum()) / freedom, freedom


def _numbered(keys: Iterable[Key]) -> tuple[list[Key], Tensor]:
    """Different keys in the order in which they first occur, and the place of each among them."""
    places: dict[Key, int] = {}
    numbers = [places.setdefault(key, len(places)) for key in keys]
    return list(places), torch.tensor(numbers, dtype=torch.int64)


def _solve(m: Tensor, loss: Tensor, group: Tensor, count: int) -> tuple[float, float, Tensor]:
    """α, A and B: for a given α the rest is linear, so α alone is searched, finer and finer."""
    middle = m.log().mean()  # powers are of m about it, so that none is out of range
    x, size = m.log() - middle, torch.bincount(group, minlength=count).double()

    def means(values: Tensor) -> Tensor:
        """Of each group, for values (..., n)."""
        sums = values.new_zeros(*values.shape[:-1], count).index_add_(-1, group, values)
        return sums / size

    up = loss - means(loss)[group]
    low, high = (math.log(bound) for bound in EXPONENTS)
    for points in (_GRID, *[_FINER] * _ROUNDS):
        logs = torch.linspace(low, high, points, dtype=torch.float64)
        law = (-logs.exp()[:, None] * x).exp()
        law = law - means(law)[:, group]
        scales = ((law @ up) / law.square().sum(-1)).clamp(min=0)
        best = int((up - scales[:, None] * law).square().sum(-1).argmin())
        if float(scales[best]) == 0:
            raise ValueError(
                "losses do not fall with width in these families: there is no power law"
            )
        low, high = float(logs[max(0, best - 1)]), float(logs[min(points - 1, best + 1)])
    alpha, scale = float(logs[best].exp()), float(scales[best])
    offsets = means(loss - scale * (-alpha * x).exp())
    return alpha, scale * math.exp(alpha * float(middle)), offsets
