"""How far distances are from those of a graph, in proportion.

With the ratio r = d/t of a distance d to the graph's, t hops, over pairs of different nodes that a
path joins:

    average distortion      least mean of |s·r − 1| over scales s; 0 is perfect
    unscaled distortion     mean of |r − 1|
    worst distortion        largest r over smallest r: expansion times contraction; 1 is perfect

The first is free of the scale at which the graph was embedded, the second is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.checks import check_range, check_tensor, integers
from beltrami.analysis.results import Result
from beltrami.analysis.rows import (
    Distances,
    check_rows_finite,
    checked_rows,
    point_distances,
    rows_at_once,
)
from beltrami.checks import check_integer
from beltrami.geometry.checks import check_finite
from beltrami.geometry.manifold import Manifold

Hops = Callable[[Tensor], Tensor]
"""hops(sources): graph distances from nodes (b,) to all, (b, n); −1 where no path leads."""

MAX_RATIOS = 1 << 26
"""The best scale is a median, so all ratios are held: at most this many, half a GB in float64."""


@dataclass(frozen=True)
class Distortion(Result):
    """How far distances are from those of a graph; see the head of this file.

    Args:
        average: mean of |s·d/t − 1| for the best scale s; 0 is perfect.
        unscaled: mean of |d/t − 1|.
        worst: largest over smallest d/t; 1 is perfect, infinite when two nodes share a point.
        scale: the best scale s; NaN if all distances are 0.
        pairs: how many pairs were compared.
    """

    average: float
    unscaled: float
    worst: float
    scale: float
    pairs: int


def distortion(
    distance: Distances,
    hops: Hops,
    count: int,
    *,
    sources: Tensor | int | None = None,
    seed: int = 0,
    chunk: int | None = None,
) -> Distortion:
    """Distortion of distances against those of a graph.

    Args:
        distance: distance(rows) gives the distances from nodes `rows`, int64 of shape (b,) on the
            CPU, to all nodes, (b, count), on any device.
        hops: the same for the graph, for example `Hierarchy.hops`.
        count: the number of nodes.
        sources: the nodes whose distances to all others are compared: a tensor of nodes, or how
            many to draw with `seed`. By default all, each pair once.
        seed: of the draw.
        chunk: sources worked on at a time.
    """
    check_integer("count", count)
    chosen = _chosen(sources, count, seed)
    expected = len(chosen) * count if sources is not None else count * (count - 1) // 2
    if expected > MAX_RATIOS:
        most = MAX_RATIOS // count
        raise ValueError(
            f"{expected:,} pairs of nodes are too many to compare, the limit is {MAX_RATIOS:,}: "
            f"draw some of the nodes, for instance sources={most}"
        )
    parts = []
    with torch.no_grad():
        for rows in chosen.split(rows_at_once(count, torch.device("cpu"), chunk)):
            distances = checked_rows(distance, rows, count)
            steps = hops(rows)
            check_tensor("the result of hops", steps)
            if steps.shape != distances.shape:
                expected_shape, got = tuple(distances.shape), tuple(steps.shape)
                raise ValueError(f"hops must return shape {expected_shape}, got {got}")
            steps = steps.cpu()
            check_rows_finite(distances, rows)
            wanted = steps > 0
            if sources is None:  # each pair from its lower node
                wanted &= torch.arange(count) > rows[:, None]
            place = wanted.flatten().nonzero().squeeze(1)
            target = steps.flatten()[place].to(distances.device, distances.dtype)
            parts.append(distances.flatten()[place.to(distances.device)] / target)
    ratio = torch.cat(parts)
    if len(ratio) == 0:
        raise ValueError("hops joins no two different nodes: there is no distance to compare")
    return _of_ratios(ratio)


def distortion_of_points(
    points: Tensor,
    manifold: Manifold,
    hops: Hops,
    *,
    sources: Tensor | int | None = None,
    seed: int = 0,
    chunk: int | None = None,
) -> Distortion:
    """`distortion` of points (n, d) of a manifold, one a node of the graph."""
    distance = point_distances(points, manifold)
    return distortion(distance, hops, len(points), sources=sources, seed=seed, chunk=chunk)


def average_distortion(ratio: Tensor) -> float:
    """Least mean of |s·ratio − 1| over scales s, for ratios of found to true distances.

    The sum is Σ ratio·|s − 1/ratio|, so the best s is the median of 1/ratio weighted by ratio.
    """
    return _of_ratios(_checked_ratio(ratio)).average


def worst_distortion(ratio: Tensor) -> float:
    """Largest over smallest ratio of found to true distances; infinite if one of them is 0."""
    return _of_ratios(_checked_ratio(ratio)).worst


def _checked_ratio(ratio: Tensor) -> Tensor:
    check_tensor("ratio", ratio)
    if ratio.numel() == 0:
        raise ValueError("ratio is empty: there is nothing to measure")
    check_finite(ratio=ratio)
    return ratio.flatten()


def _of_ratios(ratio: Tensor) -> Distortion:
    least, most = (extreme.item() for extreme in torch.aminmax(ratio))
    ordered = ratio[ratio > 0].sort(descending=True).values
    # Without a scale every pair is at one point, and adds 1 whatever it is.
    scale, average = math.nan, 1.0
    if len(ordered):
        weight = ordered.cumsum(0, dtype=torch.float64)
        scale = 1 / ordered[torch.searchsorted(weight, weight[-1] / 2)].item()
        average = (scale * ratio - 1).abs().mean(dtype=torch.float64).item()
    return Distortion(
        average=average,
        unscaled=(ratio - 1).abs().mean(dtype=torch.float64).item(),
        worst=most / least if least > 0 else math.inf,
        scale=scale,
        pairs=len(ratio),
    )


def _chosen(sources: Tensor | int | None, count: int, seed: int) -> Tensor:
    if sources is None:
        return torch.arange(count)
    if isinstance(sources, Tensor):
        nodes = integers("sources", sources, 1).cpu()
        check_range("sources", nodes, count, "nodes")
        if len(nodes) == 0:
            raise ValueError("sources is empty: give at least one node")
        return nodes
    check_integer("sources", sources)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:sources]
