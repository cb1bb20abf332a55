r"""Whether counts follow a power law: p(x) ∝ x^−α for x ≥ xmin (Clauset, Shalizi and Newman, 2009).

A line through a log-log plot fits almost anything. Here α is the most likely one, xmin is where the
fit is nearest to the counts (Kolmogorov and Smirnov's distance), and a p-value says how often
counts drawn from the fitted law are further from their own fit. A small one, below 0.1, says that
they are not a power law; a large one does not say that they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.checks import check_tensor
from beltrami.analysis.results import Result
from beltrami.checks import check_integer
from beltrami.report.lines import Series, line_chart
from beltrami.report.picture import Picture

EXPONENTS = (1.01, 10.0)  # among which α is sought
MOST_STARTS = 100  # values of xmin that are tried
FEWEST_IN_TAIL = 10
SHOWN = 200  # points of a picture
_HALVINGS = 60
_TABLE = 1 << 17  # values that are drawn exactly; beyond, as if they were no whole numbers
_STEP = 1e-3  # of α, for a second derivative


@dataclass(frozen=True)
class PowerLaw(Result):
    """A power law fitted to counts.

    Args:
        exponent: α, between 1.01 and 10. error: its standard error.
        xmin: the smallest count that belongs to it.
        tail: how many do. count: how many counts there are.
        distance: Kolmogorov and Smirnov's, of the tail.
        p_value: share of drawn samples that are further from their fit; NaN if none were drawn.
        drawn: how many were.
        survival: (value, share of counts that are at least as large), at most 200 of the values.
    """

    exponent: float
    error: float
    xmin: int
    tail: int
    count: int
    distance: float
    p_value: float
    drawn: int
    survival: tuple[tuple[float, float], ...] = ()

    def plot(self) -> Picture:
        """The share of counts that are at least as large as each, and the fitted law's."""
        values = [v for v, _ in self.survival if v >= self.xmin]
        law = _law(self.exponent, self.xmin, torch.tensor(values, dtype=torch.float64))
        share = (self.tail / self.count * law).tolist()
        lines = [
            Series("counts", [v for v, _ in self.survival], [s for _, s in self.survival]),
            Series(f"power law, α = {self.exponent:.2f}", values, share),
        ]
        return Picture(
            line_chart(
                lines,
                title="Counts and the fitted power law",
                description="The share of counts at least as large as each value.",
                x_label="Count",
                y_label="Share at least as large",
                x_log=True,
                y_log=True,
            )
        )


def power_law_fit(
    counts: Tensor,
    *,
    xmin: int | None = None,
    draws: int = 100,
    seed: int = 0,
    tick: Callable[[float], None] = lambda share: None,
) -> PowerLaw:
    """The most likely power law of positive whole numbers.

    Args:
        counts: (n,) integers; zeros are not counts, and are an error.
        xmin: where it begins; None chooses, among 100 values of those that occur.
        draws: samples for the p-value, right to about 1/(2√draws); 0 leaves it out.
        seed: of the draws.
        tick: called with the share of the work that is done.
    """
    check_tensor("counts", counts, "n", "integers")
    check_integer("draws", draws, low=0)
    if len(counts) and int(counts.min()) < 1:
        raise ValueError(f"counts must be positive, got {int(counts.min())}")
    at_least = 1 if xmin is None else check_integer("xmin", xmin)
    where = "" if xmin is None else f" of at least {xmin}"
    tail = int((counts >= at_least).sum())
    if tail < FEWEST_IN_TAIL:
        raise ValueError(f"a fit needs {FEWEST_IN_TAIL} counts{where}, got {tail}")
    values, number = counts.detach().cpu().long().unique(return_counts=True)
    fitted = values[values >= at_least]
    if len(fitted) < 2:
        raise ValueError(f"all counts{where} are {int(fitted[0])}: there is nothing to fit")
    best = _fit(values, number, xmin)
    further = _further(values, number, best, xmin, draws, seed, tick)
    return PowerLaw(
        exponent=best.exponent,
        error=_error(best),
        xmin=best.xmin,
        tail=best.tail,
        count=len(counts),
        distance=best.distance,
        p_value=further / draws if draws else math.nan,
        drawn=draws,
        survival=_survival(values, number),
    )


def _survival(values: Tensor, number: Tensor) -> tuple[tuple[float, float], ...]:
    """Evenly spread over the logarithms of the values."""
    share = _from_above(number.double()) / float(number.sum())
    wanted = torch.logspace(0, math.log10(float(values[-1])), SHOWN, dtype=torch.float64)
    places = torch.searchsorted(values.double(), wanted).clamp(max=len(values) - 1).unique()
    return tuple(zip(values[places].double().tolist(), share[places].tolist(), strict=True))


def _from_above(x: Tensor) -> Tensor:
    """Sums of each entry and all after it."""
    return x.flip(0).cumsum(0).flip(0)


def _law(exponent: float, xmin: float, values: Tensor) -> Tensor:
    """The share of a power law's numbers that are at least as large as each of the values."""
    alpha = torch.tensor(exponent, dtype=torch.float64)
    whole = torch.special.zeta(alpha, torch.tensor(xmin, dtype=torch.float64))
    share: Tensor = torch.special.zeta(alpha, values) / whole
    return share


@dataclass(frozen=True)
class _Fit:
    exponent: float
    xmin: int
    tail: int
    distance: float


def _fit(values: Tensor, number: Tensor, xmin: int | None) -> _Fit:
    """Of a histogram: sorted values, and how many there are of each."""
    weights, doubles = number.double(), values.double()
    tail = _from_above(weights)
    logs = _from_above(weights * doubles.log())
    if xmin is None:
        # A tail of one value has no exponent.
        starts = ((tail >= FEWEST_IN_TAIL) & (tail > tail[-1])).nonzero()[:, 0]
        if len(starts) > MOST_STARTS:
            starts = starts[torch.linspace(0, len(starts) - 1, MOST_STARTS).round().long()]
        lowest = values[starts]
    else:
        lowest = torch.tensor([xmin])
        starts = torch.searchsorted(values, lowest)
    exponents = _most_likely(lowest.double(), tail[starts], logs[starts])
    fits = []
    for start, low, alpha in zip(starts.tolist(), lowest.tolist(), exponents.tolist(), strict=True):
        distance = _distance(doubles[start:], tail[start:], alpha, low)
        fits.append(_Fit(alpha, low, int(tail[start]), distance))
    return min(fits, key=lambda fit: fit.distance)


def _most_likely(lowest: Tensor, tail: Tensor, logs: Tensor) -> Tensor:
    """α for each start, by golden sections of `n·log ζ(α, xmin) + α·Σ log x`, which is convex."""
    golden = (math.sqrt(5) - 1) / 2
    low, high = (torch.full_like(lowest, bound) for bound in EXPONENTS)

    def cost(exponent: Tensor) -> Tensor:
        value: Tensor = tail * torch.special.zeta(exponent, lowest).log() + exponent * logs
        return value

    for _ in range(_HALVINGS):
        width = golden * (high - low)
        left, right = high - width, low + width
        better = cost(left) < cost(right)
        low, high = torch.where(better, low, left), torch.where(better, right, high)
    return (low + high) / 2


def _distance(values: Tensor, tail: Tensor, exponent: float, xmin: int) -> float:
    """Kolmogorov and Smirnov's, of the shares of counts at or above each of the values."""
    counted = tail / tail[0]
    below = torch.cat([counted[1:], counted.new_zeros(1)])
    at, after = _law(exponent, xmin, values), _law(exponent, xmin, values + 1)
    return float(torch.maximum((counted - at).abs(), (below - after).abs()).max())


def _further(
    values: Tensor,
    number: Tensor,
    best: _Fit,
    xmin: int | None,
    draws: int,
    seed: int,
    tick: Callable[[float], None],
) -> int:
    """How many samples are further from their own fit than the counts from theirs."""
    g = torch.Generator().manual_seed(seed)
    count = int(number.sum())
    below = values < best.xmin
    table = torch.arange(best.xmin, best.xmin + _TABLE, dtype=torch.float64)
    survival = _law(best.exponent, best.xmin, table)
    further = 0
    for draw in range(draws):
        from_tail = int((torch.rand(count, generator=g) < best.tail / count).sum())
        parts = [_drawn(best, survival, torch.rand(from_tail, generator=g, dtype=torch.float64))]
        if from_tail < count:
            shares = number[below].double()
            chosen = torch.multinomial(shares, count - from_tail, replacement=True, generator=g)
            parts.append(values[below][chosen])
        sample, counts = torch.cat(parts).unique(return_counts=True)
        if len(sample) > 1 and (xmin is None or int(counts[sample >= xmin].sum()) > 1):
            further += _fit(sample, counts, xmin).distance >= best.distance
        tick((draw + 1) / draws)
    return further


def _drawn(best: _Fit, survival: Tensor, u: Tensor) -> Tensor:
    """Numbers of a power law from uniform ones: the last whose survival is at least 1 − u."""
    left = 1 - u
    last = len(survival) - 1
    index = torch.searchsorted(-survival, -left, right=True) - 1
    rest = left / survival[last]  # of what is beyond the table
    far = (best.xmin + last - 0.5) * rest ** (-1 / (best.exponent - 1)) + 0.5
    return torch.where(index >= last, far.clamp(max=2.0**52).long(), best.xmin + index)


def _error(best: _Fit) -> float:
    """1/√(n·∂² log ζ(α, xmin)/∂α²): what the likelihood's curvature allows."""
    near = torch.tensor([-_STEP, 0.0, _STEP], dtype=torch.float64) + best.exponent
    lowest = torch.tensor(float(best.xmin), dtype=torch.float64)
    below, at, above = torch.special.zeta(near, lowest).log().tolist()
    return _STEP / math.sqrt(best.tail * (below - 2 * at + above))
