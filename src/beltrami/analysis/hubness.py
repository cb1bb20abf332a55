"""Hubs: points that are among the nearest of very many others.

In many dimensions some points are near to everything, and others to nothing, whatever the data mean
(Radovanović et al., 2010). Counted is how often each point is one of the k nearest of another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.matrices import NeighbourMetric
from beltrami.analysis.neighbours import nearest_points
from beltrami.analysis.results import Result


@dataclass(frozen=True)
class Hubness(Result):
    """How unevenly points are neighbours of others.

    Args:
        skewness: of the counts; 0 if they are symmetric about k, large with hubs.
        largest: the count of the greatest hub, of n − 1 at most. hub: its number.
        never: share of points that are nobody's neighbour.
        k: neighbours of each point. points: how many there are.
        counts: (n,).
    """

    skewness: float
    largest: int
    hub: int
    never: float
    k: int
    points: int
    counts: Tensor


def hubness(x: Tensor, *, k: int = 10, metric: NeighbourMetric = "euclidean") -> Hubness:
    """Of rows x, (n, d).

    Args:
        x: floating point rows, more than k.
        k: neighbours of each.
        metric: "euclidean", "angle", or "precomputed" where x has distances, (n, n).
    """
    _, numbers = nearest_points(x, k, metric=metric)
    counts = torch.bincount(numbers.flatten(), minlength=len(x))
    off = counts.double() - k
    spread = float(off.square().mean())
    skewness = float(off.pow(3).mean()) / spread**1.5 if spread > 0 else math.nan
    return Hubness(
        skewness=skewness,
        largest=int(counts.max()),
        hub=int(counts.argmax()),
        never=float((counts == 0).double().mean()),
        k=k,
        points=len(x),
        counts=counts,
    )
