r"""How tree-like distances are: Gromov's δ.

With the Gromov products `(i|j) = (d(i,b) + d(j,b) − d(i,j))/2` of a base point b, δ at b is the
largest `min((i|k), (k|j)) − (i|j)`. Over all base points it is half of what the largest of the
three sums of opposite distances among four points exceeds the second by, at most: 0 for trees.
Relative to the diameter, 2δ/diameter, it lies between 0 and 1. One base point gives at least half
of the δ of all.

A small δ alone says little. Points that are all equally far apart are a star, hence a tree, so that
noise in many dimensions has a small δ, too: compare with `analysis.null_models`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from beltrami.analysis.checks import check_tensor
from beltrami.analysis.gromov_search import largest_gap
from beltrami.analysis.intervals import mean_interval
from beltrami.analysis.matrices import (
    all_distances,
    check_distances,
    flat_distances,
    symmetric,
)
from beltrami.analysis.results import Result
from beltrami.checks import check_integer
from beltrami.geometry.checks import check_finite
from beltrami.geometry.manifold import Manifold
from beltrami.report.dots import Estimate, Group, dot_chart
from beltrami.report.picture import Picture

Metric = Literal["euclidean", "angle", "distances", "precomputed"] | Manifold
FEWEST = 4  # points that δ says something about
MOST_IN_FLOAT64 = 8192  # points; more are compared in float32, in half the memory
# The δ of the Poincaré disk of curvature −1, in the units in which Khrulkov et al. 2020 compare.
DISK = 0.144


@dataclass(frozen=True)
class Delta(Result):
    """Gromov's δ of some points.

    Args:
        delta: δ; of samples, the mean.
        diameter: the largest distance; of samples, the mean.
        relative: 2δ/diameter, from 0 for trees to 1; of samples, the mean.
        low, high: 95 % interval of the mean of `relative` over samples; the number itself where all
            points were compared.
        points: how many there are. compared: how many are compared with each other at once.
        base: the base point, or −1 if all were; of samples, which point of each.
        quadruple: four points that have it, the base point first; none if δ is 0 or of samples.
    """

    delta: float
    diameter: float
    relative: float
    low: float
    high: float
    points: int
    compared: int
    base: int
    quadruple: tuple[int, ...] = ()

    def plot(self, **others: Delta) -> Picture:
        """Relative δ on the way from a tree, at 0, to a sphere, near 1.

        Args:
            others: to be shown beside it, by name, such as those of null models.
        """
        shown = {"these points": self, **others}
        groups = [
            Group(name, {"relative δ": Estimate(delta.relative, delta.low, delta.high)})
            for name, delta in shown.items()
        ]
        return Picture(
            dot_chart(
                groups,
                title="Gromov's δ",
                description="Relative to the diameter; 0 is a tree.",
                x_label="2δ/diameter",
            )
        )


def delta_hyperbolicity(
    x: Tensor,
    metric: Metric = "euclidean",
    *,
    base: int | Literal["all"] = 0,
    sample: int | None = None,
    repeats: int = 20,
    seed: int = 0,
    tick: Callable[[float], None] = lambda share: None,
) -> Delta:
    """Gromov's δ, exactly; or of samples of the points, with an interval.

    Args:
        x: points, (n, d), or distances, (n, n).
        metric: "euclidean"; "angle" between points; "precomputed" (or "distances") if x has them;
            or a manifold whose points they are.
        base: the base point, or "all" of them: exact over all quadruples, which takes minutes for a
            few thousand points of flat space, and as long for a few hundred of hyperbolic space.
        sample: compare this many points at once, drawn at random `repeats` times. None is all.
        repeats, seed: of the samples. With a sample, the base is one of its points.
        tick: called with the share of the work that is done.

    Raises:
        ValueError: for fewer than 4 points, numbers that are not finite, distances that are not
            symmetric, negative or not 0 from a point to itself.
    """
    if metric == "precomputed":
        metric = "distances"
    _check(x, metric, base, sample, repeats)
    if sample is None or sample >= len(x):
        return _exact(x, metric, base, tick)
    g = torch.Generator().manual_seed(seed)
    results = []
    for i in range(repeats):
        chosen = torch.randperm(len(x), generator=g)[:sample].to(x.device)
        part = x[chosen][:, chosen] if metric == "distances" else x[chosen]
        results.append(_exact(part, metric, base, lambda share: None))
        tick((i + 1) / repeats)
    relative = mean_interval([result.relative for result in results])
    off = relative.half_width or 0.0
    return replace(
        results[0],
        delta=math.fsum(result.delta for result in results) / repeats,
        diameter=math.fsum(result.diameter for result in results) / repeats,
        relative=relative.mean,
        low=relative.mean - off,
        high=relative.mean + off,
        points=len(x),
        quadruple=(),
    )


def curvature_estimate(delta: float, *, least: float = 0.01, most: float = 10.0) -> float:
    """The c of −c at which the Poincaré disk is as tree-like: `(0.144/δ)²`, within bounds.

    A rule of thumb (Khrulkov et al. 2020, arXiv 1904.02239).

    Args:
        delta: relative.
        least, most: the bounds.
    """
    if not delta >= 0:
        raise ValueError(f"delta must not be negative, got {delta}")
    if not 0 < least <= most:
        raise ValueError(f"bounds must be positive and in order, got {least} and {most}")
    return most if delta == 0 else min(most, max(least, (DISK / delta) ** 2))


def _exact(
    x: Tensor, metric: Metric, base: int | Literal["all"], tick: Callable[[float], None]
) -> Delta:
    """δ of all points."""
    d = _distances(x, metric)
    diameter = float(d.max())
    number, delta = -1, 0.0
    quadruple: tuple[int, ...] = ()
    if base == "all":
        delta, quadruple = _over_all_bases(d, tick)
    else:
        number, done = base, 0

        def rows_done(rows: int) -> None:
            nonlocal done
            done += rows
            tick(done / len(d))

        gap = largest_gap(_products(d, base), tick=rows_done)
        if gap is not None:
            delta, quadruple = gap.size, (base, *gap.triple)
    relative = 2 * delta / diameter if diameter > 0 else 0.0
    return Delta(delta, diameter, relative, relative, relative, len(d), len(d), number, quadruple)


def _over_all_bases(d: Tensor, tick: Callable[[float], None]) -> tuple[float, tuple[int, ...]]:
    """A base point takes all its quadruples with it: those after it do without it.

    Far points come first, for they have large δ, and what is small can be left out from then on.
    """
    order = d.amax(1).argsort(descending=True)
    best: tuple[float, tuple[int, ...]] = (0.0, ())
    most = math.inf  # twice the δ of any base point
    for step in range(len(d) - FEWEST + 1):
        left = order[step:]
        gap = largest_gap(_products(d[left][:, left], 0), above=best[0])
        if gap is not None:
            best = gap.size, tuple(left[[0, *gap.triple]].tolist())
        if step == 0:
            most = 2 * best[0]
        tick(1 - ((len(d) - step - 1) / len(d)) ** 3)
        if best[0] >= most:
            break
    tick(1.0)
    return best


def _products(d: Tensor, base: int) -> Tensor:
    """Gromov products, (n, n)."""
    from_base = d[base]
    products = from_base.unsqueeze(0) + from_base.unsqueeze(1)
    return products.sub_(d).div_(2)


def _distances(x: Tensor, metric: Metric) -> Tensor:
    dtype = torch.float64 if len(x) <= MOST_IN_FLOAT64 else torch.float32
    x = x.detach()
    if isinstance(metric, Manifold):
        with torch.no_grad():
            return all_distances(x, metric.pairwise_dist, dtype)
    if metric == "distances":
        return symmetric(x.to(dtype))
    return flat_distances(x, "angle" if metric == "angle" else "euclidean", dtype=dtype)


def _check(
    x: Tensor, metric: Metric, base: int | Literal["all"], sample: int | None, repeats: int
) -> None:
    if not isinstance(metric, Manifold) and metric not in ("euclidean", "angle", "distances"):
        raise ValueError(
            f'metric must be "euclidean", "angle", "precomputed" or a manifold, got {metric!r}'
        )
    check_tensor("x", x, "n n" if metric == "distances" else "n d")
    if x.is_complex() or x.dtype == torch.bool:
        raise TypeError(f"x must be real numbers, got {x.dtype}")
    if len(x) < FEWEST:
        raise ValueError(f"δ compares {FEWEST} points, and there are {len(x)}")
    if metric == "distances":
        check_distances(x)
    check_finite(x=x)
    compared = len(x)
    if sample is not None:
        compared = min(compared, check_integer("sample", sample, low=FEWEST))
        check_integer("repeats", repeats, low=2)  # or there is no interval
    if base != "all" and check_integer("base", base, low=0) >= compared:
        raise ValueError(f'base must be "all" or one of {compared} points, got {base}')
