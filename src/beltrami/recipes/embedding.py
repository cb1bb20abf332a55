"""Fit the points of a tree in the hyperbolic or the Euclidean plane, and measure the fit.

Both geometries share everything but the distance: the parameters (one vector v of two numbers a
node), the starting layout, the loss, the optimiser and its schedule. The hyperbolic point is
exp0(v), the Euclidean one is v. Everything is float64, because far out in the plane neighbours
differ by angles that float32 cannot hold: about e^-r at radius r.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from beltrami.analysis import (
    average_distortion,
    mean_average_precision,
    worst_distortion,
)
from beltrami.data import Tree
from beltrami.geometry import lorentz
from beltrami.train.threads import one_thread

Geometry = Literal["hyperbolic", "euclidean"]
GEOMETRIES: tuple[Geometry, ...] = ("hyperbolic", "euclidean")

DIM = 2
EDGE_LENGTH = 1.0  # of the starting layout, in tangent coordinates
MAX_START_RADIUS = 3.0  # in curvature radii; further out the jitter would tear siblings apart
JITTER = 0.1  # of an edge, so that seeds differ by more than a rotation
FINAL_LR_SHARE = 0.01  # the learning rate falls linearly to this share of itself
PAIRS_PER_STEP = 20_000  # trees with more pairs (above 200 nodes) use a random sample each step
REPORT_EVERY = 10  # steps between two calls of on_steps


@dataclass(frozen=True)
class Fit:
    """A fitted embedding: points (n, 2) of the model, and the loss over all pairs."""

    points: Tensor
    loss: float


@dataclass(frozen=True)
class Quality:
    """How well embedded distances follow the tree's, over all pairs of nodes.

    Args:
        average_distortion: mean of |s·d_embedded/d_tree − 1| for the best global scale s; 0 is
            perfect.
        worst_distortion: largest expansion times largest contraction; 1 is perfect, infinite when
            two nodes share a point.
        map: mean average precision of finding each node's tree neighbours among its nearest
            points; 1 is perfect.
    """

    average_distortion: float
    worst_distortion: float
    map: float


def radial_layout(tree: Tree, seed: int, curvature: float) -> Tensor:
    """Starting tangent vectors (n, 2): radius by depth, each subtree a sector by its leaves.

    The seed turns the whole layout and moves each node a little. Both geometries start here.
    """
    generator = torch.Generator().manual_seed(seed)
    depth = tree.depth
    longest = MAX_START_RADIUS / (math.sqrt(curvature) * max(depth))
    edge = min(EDGE_LENGTH, longest)
    turn = 2 * math.pi * torch.rand((), generator=generator, dtype=torch.float64)
    theta = tree.sector_angles() + turn
    radius = edge * torch.tensor(depth, dtype=torch.float64)
    v = torch.stack([radius * theta.cos(), radius * theta.sin()], dim=-1)
    noise = torch.randn(v.shape, generator=generator, dtype=torch.float64)
    return v + JITTER * edge * noise


def to_points(v: Tensor, geometry: Geometry, curvature: float) -> Tensor:
    """The points that tangent vectors at the origin stand for."""
    return lorentz.exp0(v, curvature) if geometry == "hyperbolic" else v


def paired_distances(
    x: Tensor, first: Tensor, second: Tensor, geometry: Geometry, curvature: float
) -> Tensor:
    """Distances between points x[first] and x[second], shape of `first`."""
    a, b = x[first], x[second]
    if geometry == "hyperbolic":
        return lorentz.dist(a, b, curvature)
    flat: Tensor = torch.linalg.vector_norm(a - b, dim=-1)
    return flat


def relative_stress(ratio: Tensor) -> Tensor:
    """Least mean square of s·ratio − 1 over scales s: 1 − (mean ratio)² / mean ratio².

    `ratio` is embedded over tree distance. The scale is free in both geometries: it changes nothing
    in the plane, and in hyperbolic space it stands for the curvature.
    """
    return 1 - ratio.mean().square() / ratio.square().mean()


def fit_tree(
    tree: Tree,
    geometry: Geometry,
    *,
    seed: int,
    learning_rate: float,
    steps: int,
    curvature: float,
    on_steps: Callable[[int], None] = lambda count: None,
) -> Fit:
    """Minimise the relative stress over all pairs with Adam from the radial layout.

    `on_steps` gets the number of steps done since its last call.
    """
    first, second = torch.triu_indices(len(tree), len(tree), offset=1)
    target = tree.distances()[first, second]
    sampler = torch.Generator().manual_seed(seed)
    v = radial_layout(tree, seed, curvature).requires_grad_()
    optimiser = torch.optim.Adam([v], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, FINAL_LR_SHARE, steps)

    def stress(pairs: Tensor | slice) -> Tensor:
        x = to_points(v, geometry, curvature)
        embedded = paired_distances(x, first[pairs], second[pairs], geometry, curvature)
        return relative_stress(embedded / target[pairs])

    with one_thread():
        for step in range(1, steps + 1):
            optimiser.zero_grad()
            stress(_pairs_of_a_step(len(target), sampler)).backward()
            optimiser.step()
            schedule.step()
            if step % REPORT_EVERY == 0 or step == steps:
                on_steps((step - 1) % REPORT_EVERY + 1)
        with torch.no_grad():
            return Fit(to_points(v, geometry, curvature), stress(slice(None)).item())


def _pairs_of_a_step(count: int, sampler: torch.Generator) -> Tensor | slice:
    """All pairs, or a random sample where they are too many; the same for both geometries."""
    if count <= PAIRS_PER_STEP:
        return slice(None)
    return torch.randint(count, (PAIRS_PER_STEP,), generator=sampler)


def measure(tree: Tree, points: Tensor, geometry: Geometry, curvature: float) -> Quality:
    """Distortion and MAP of embedded points against their tree."""
    n = len(tree)
    first, second = torch.triu_indices(n, n, offset=1)
    hops = tree.distances()
    distances = paired_distances(points, first, second, geometry, curvature)
    ratio = distances / hops[first, second]
    all_pairs = torch.zeros(n, n, dtype=distances.dtype)
    all_pairs[first, second] = distances
    return Quality(
        average_distortion=average_distortion(ratio),
        worst_distortion=worst_distortion(ratio),
        map=mean_average_precision(all_pairs + all_pairs.T, hops == 1),
    )
