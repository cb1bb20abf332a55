"""What maps into fewer hyperbolic dimensions have in common: the image, and what it costs.

distortion    mean of |d'/d − 1| over pairs of different points; 0 is perfect
variance      mean squared distance of the image's points from their Fréchet mean
explained     that, as a share of the variance before
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.checks import check_points
from beltrami.analysis.results import Result
from beltrami.analysis.rows import row_slices
from beltrami.checks import check_integer, check_positive
from beltrami.geometry import lorentz, poincare
from beltrami.report.picture import Picture
from beltrami.report.scatter import scatter_svg

RowDistances = Callable[[slice], Tensor]
"""distances(rows): from a block of points to all, (b, n)."""


@dataclass(frozen=True)
class Lowered(Result):
    """Points in fewer dimensions; see the head of this file.

    Args:
        points: (n, k), space parts of Lorentz points of curvature −c.
        c: of the curvature.
        distortion, variance, explained: as above; the last is NaN where only distances were given.
    """

    points: Tensor
    c: float
    distortion: float
    variance: float
    explained: float

    @property
    def kept(self) -> float:
        """The former name of `explained`; it goes with version 0.3."""
        warnings.warn("Lowered.kept is called explained now", DeprecationWarning, stacklevel=2)
        return self.explained

    def plot(self, labels: Sequence[str] | None = None) -> Picture:
        """The points in the Poincaré disk; only of two dimensions.

        Args:
            labels: one a point; their numbers if not given.
        """
        if self.points.shape[-1] != 2:
            raise ValueError(f"a disk has 2 dimensions, and these points {self.points.shape[-1]}")
        disk = math.sqrt(self.c) * poincare.from_lorentz(self.points.detach().double(), self.c)
        names = [str(i) for i in range(len(disk))] if labels is None else labels
        return Picture(
            scatter_svg(
                disk,
                names,
                title="Points in the Poincaré disk",
                description=f"{len(disk)} points; distortion {self.distortion:.3g}.",
            )
        )


def centred(x: Tensor, c: float) -> Tensor:
    """Lorentz points moved so that their Fréchet mean is the origin, in float64."""
    x = x.detach().double()
    return lorentz.boost(x, -lorentz.frechet_mean(x, c=c), c)


def lowered(before: Tensor, points: Tensor, c: float) -> Lowered:
    """The result for Lorentz points whose mean is the origin, and their image."""
    spread = float(lorentz.dist0(before, c).square().mean())
    variance = _variance(points, c)
    explained = variance / spread if spread > 0 else math.nan
    distortion = mean_distortion(_rows_of(before, c), _rows_of(points, c), len(points))
    return Lowered(points, c, distortion, variance, explained)


def lowered_distances(d: Tensor, points: Tensor, c: float) -> Lowered:
    """The result for points that only distances are known of."""
    return Lowered(points, c, distances_distortion(d, points, c), _variance(points, c), math.nan)


def distances_distortion(d: Tensor, points: Tensor, c: float) -> float:
    """Of distances (n, n) by Lorentz points alone, without the variance, which takes longer."""
    return mean_distortion(d.__getitem__, _rows_of(points, c), len(d))


def mean_distortion(before: RowDistances, after: RowDistances, n: int) -> float:
    """Mean of |d'/d − 1| over pairs of n points with d > 0; NaN if there are none."""
    total, count = 0.0, 0
    for rows in row_slices(n):
        old, new = before(rows).double(), after(rows).double()
        apart = old > 0
        off = (new - old).abs() / torch.where(apart, old, 1.0)
        total += float(torch.where(apart, off, 0.0).sum())
        count += int(apart.sum())
    return total / count if count else math.nan


def check_lowering(x: Tensor, c: float, components: int) -> None:
    """Raise unless x are finite rows, more than one, in at least `components` dimensions."""
    check_points(x, "x", least=2)
    check_integer("components", components, high=x.shape[1])
    check_positive("c", c)


def _variance(points: Tensor, c: float) -> float:
    mean = lorentz.frechet_mean(points, c=c)
    return float(lorentz.dist_sq(points, mean, c).mean())


def _rows_of(points: Tensor, c: float) -> RowDistances:
    return lambda rows: lorentz.pairwise_dist(points[rows], points, c)
