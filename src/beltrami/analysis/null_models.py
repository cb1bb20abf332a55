"""What a measured δ is to be compared with: distances and points whose geometry is known.

A δ depends on how many points there are and in how many dimensions. So each of these is made in the
size of the data.
"""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.analysis.checks import check_points, check_tensor
from beltrami.analysis.matrices import angles, directions, symmetric
from beltrami.checks import check_integer

DEGREE = 4  # mean number of neighbours in a random graph


def tree_distances(n: int, *, seed: int = 0, device: torch.device | str = "cpu") -> Tensor:
    """Of a random tree, (n, n), in edges: each node joins one before it. δ = 0.

    The draw of a seed is the same on all devices.
    """
    check_integer("n", n)
    g = torch.Generator().manual_seed(seed)
    draws = torch.rand(n, generator=g, dtype=torch.float64)
    parents = (draws * torch.arange(n)).long().tolist()
    d = torch.zeros(n, n, dtype=torch.float64, device=device)
    for node in range(1, n):
        d[node, :node] = d[parents[node], :node] + 1
        d[:node, node] = d[node, :node]
    return d


def sphere_distances(n: int, *, dimensions: int = 2, seed: int = 0) -> Tensor:
    """Of points uniform on a unit sphere, (n, n), along great circles; 2-d is a ball's surface."""
    check_integer("n", n)
    check_integer("dimensions", dimensions)
    g = torch.Generator().manual_seed(seed)
    points = torch.randn(n, dimensions + 1, generator=g, dtype=torch.float64)
    points = directions(points)
    return symmetric(angles(points, points))


def random_graph_distances(n: int, *, degree: float = DEGREE, seed: int = 0) -> Tensor:
    """Of an Erdős–Rényi graph's largest component, (m, m) with m ≤ n, in edges.

    Args:
        degree: mean number of neighbours; above 1, or components stay small.
    """
    check_integer("n", n, low=2)
    if not 1 < degree <= n - 1:
        raise ValueError(f"degree must be above 1 and at most n − 1 = {n - 1}, got {degree}")
    g = torch.Generator().manual_seed(seed)
    joined = torch.rand(n, n, generator=g).triu(1) > 1 - degree / (n - 1)
    joined |= joined.mT.clone()
    d = hop_distances(joined)
    reached = torch.isfinite(d).sum(1)
    inside = torch.isfinite(d[reached.argmax()])
    return d[inside][:, inside]


def gaussian_like(points: Tensor, *, seed: int = 0) -> Tensor:
    """As many points with exactly the same mean and covariance, and nothing else, (n, d), float64.

    What is left of data if all that is known of them are their principal components. The columns
    are rotated at random among the points: of normal data that gives data as likely as they were.
    Points drawn from a normal law with the covariance of few points would not do, for they spread
    in fewer directions than points of the law that it is an estimate of.
    """
    check_tensor("points", points)
    x = points.detach().double()
    check_points(x, least=2)
    mean = x.mean(0)
    centred = x - mean
    g = torch.Generator().manual_seed(seed)
    n, d = x.shape
    if n <= d + 1:
        to, turned = _centred_basis(n, n - 1, g, x), _centred_basis(n, n - 1, g, x)
        return mean + to @ (turned.mT @ centred)
    values, vectors = torch.linalg.eigh(centred.mT @ centred)
    spread = values.clamp(min=0.0).sqrt()
    drawn: Tensor = mean + (_centred_basis(n, d, g, x) * spread) @ vectors.mT
    return drawn


def gaussian_at_radii(points: Tensor, *, seed: int = 0) -> Tensor:
    """As many points, each as far from the mean as one of the data, (n, d), float64.

    Their directions are those of `gaussian_like` of the data's directions; which length goes with
    which is left to chance. A few points far from all others make any data a star, whose δ is small
    beside its diameter, so that unequal lengths alone look tree-like beside noise that has none.
    Directions of noise with the covariance of the points would be those of the longest of them.
    """
    x = points.detach().double()
    mean = x.mean(0)
    rays = x - mean
    wanted = _to_unit(rays)
    rays = gaussian_like(rays, seed=seed)
    _to_unit(rays)
    g = torch.Generator().manual_seed(seed + 1)
    order = torch.randperm(len(x), generator=g).to(x.device)
    moved: Tensor = rays.mul_(wanted[order]).add_(mean)
    return moved


def _to_unit(rows: Tensor) -> Tensor:
    """Divides rows by their lengths, in place, and returns those, (n, 1); zeros stay."""
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    rows.div_(torch.where(length > 0, length, 1.0))
    return length


def _centred_basis(n: int, k: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """k orthonormal columns (n, k), uniform among those whose entries add up to 0."""
    noise = torch.randn(n, k, generator=generator, dtype=torch.float64).to(like.device)
    basis: Tensor = torch.linalg.qr(noise - noise.mean(0))[0]
    return basis


def hop_distances(joined: Tensor) -> Tensor:
    """Numbers of edges between nodes, (n, n) float64; infinite where no path leads.

    A matrix product for each edge of the longest shortest path: for graphs that are not long.

    Args:
        joined: (n, n) booleans, symmetric.
    """
    check_tensor("joined", joined, "n n", "booleans")
    if not torch.equal(joined, joined.mT):
        raise ValueError("joined must be symmetric: edges have no direction")
    n = len(joined)
    neighbours = joined.float()
    d = torch.full((n, n), torch.inf, dtype=torch.float64, device=joined.device)
    d.fill_diagonal_(0.0)
    reached = torch.eye(n, dtype=torch.bool, device=joined.device)
    frontier, step = reached, 0
    while bool(frontier.any()):
        step += 1
        frontier = (frontier.float() @ neighbours > 0) & ~reached
        d[frontier] = float(step)
        reached = reached | frontier
    return d
