r"""The ranking loss of all positives of a node against one pool of candidates.

Nickel and Kiela's loss of a pair (u, v) is −log e^{−d(u,v)} / (e^{−d(u,v)} + Σ_k e^{−d(u,n_k)})
with a few sampled negatives n_k. Here the sum over negatives is replaced by what it is on average:
`negatives` times the mean of e^{−d(u,n)} over all negatives in a pool that the whole batch shares,
or simply over all nodes. A node's negatives are then compared once for all its positives, by one
matrix product instead of gathered rows, and the noise of the sampling is gone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.checks import check_positive
from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, Product, poincare
from beltrami.geometry.chord import root
from beltrami.kernels.launch.dtypes import accumulation_dtype
from beltrami.kernels.pairs.distance_mass import distance_mass
from beltrami.kernels.pairs.gram_distances import gram_distances

SMALLEST = torch.finfo(torch.float64).tiny
EXACT_FROM = 40.0  # softplus(x) is x to the last digit from here on; much later e^x overflows


def grouped_ranking_loss(
    nodes: Tensor,
    positives: Tensor,
    rows: Tensor,
    pool: Tensor,
    is_negative: Tensor,
    manifold: Manifold,
    *,
    negatives: float = 50.0,
    counts: Tensor | None = None,
) -> Tensor:
    """Losses (p,) of p pairs: `softplus(d(u, v) + log(negatives·mean_n e^{−d(u, n)}))`.

    Args:
        nodes: points u, (b, d).
        positives: points v, (p, d).
        rows: int64 (p,): which of the nodes each positive belongs to.
        pool: points n, (k, d).
        is_negative: booleans (b, k): which of the pool are negatives of each node. A node without
            any has loss 0.
        manifold: of all points.
        negatives: how many sampled negatives the mean stands for; 50 is the published number.
        counts: how many negatives each node has, (b,), where that is known already.
    """
    check_positive("negatives", negatives)
    _check(nodes, positives, rows, pool, is_negative, counts)
    counts = is_negative.sum(-1) if counts is None else counts
    mass = log_mass(nodes, pool, is_negative, manifold, counts == 0)
    # A row without negatives has mass −inf already, and stays there.
    mass = mass + math.log(negatives) - counts.clamp(min=1).to(mass.dtype).log()
    distances = manifold.dist(F.embedding(rows, nodes), positives)
    return F.softplus(distances + mass[rows], threshold=EXACT_FROM)


def log_mass(
    nodes: Tensor, pool: Tensor, chosen: Tensor, manifold: Manifold, none: Tensor | None = None
) -> Tensor:
    """`log Σ_k e^{−d(u, n_k)}` over the chosen pairs, (b,); −inf, without gradient, over none.

    In one space of constant curvature −c ≤ 0 it is −708 at least, and pushes nowhere there: e^−708
    is the smallest number that float64 holds.

    Args:
        nodes: points u. pool: points n. chosen: booleans (b, k). manifold: of the points.
        none: which rows have no chosen pair, (b,), where that is known already.
    """
    none = ~chosen.any(-1) if none is None else none
    if type(manifold) in (Lorentz, PoincareBall, Euclidean) and isinstance(manifold.c, int | float):
        c = manifold.c
        dtype = accumulation_dtype(torch.promote_types(nodes.dtype, pool.dtype))
        nodes, pool = nodes.double(), pool.double()  # float32 would end at e^−87
        if isinstance(manifold, PoincareBall):
            nodes, pool = poincare.to_lorentz(nodes, c), poincare.to_lorentz(pool, c)
        mass = distance_mass(nodes, pool, chosen, float(c)).clamp(min=SMALLEST)
        return mass.log().masked_fill(none, -torch.inf).to(dtype)
    logits = (-_all_distances(nodes, pool, manifold)).masked_fill(~chosen, -torch.inf)
    logits = logits.masked_fill(none.unsqueeze(-1), 0.0)
    return logits.logsumexp(-1).masked_fill(none, -torch.inf)


def _all_distances(x: Tensor, y: Tensor, manifold: Manifold) -> Tensor:
    """Distances of all pairs; those of Lorentz factors by products, which is many times quicker."""
    if not isinstance(manifold, Product) or manifold.p != 2:
        return manifold.pairwise_dist(x, y)
    squares = []
    for block, a, b in zip(manifold.factors, manifold.split(x), manifold.split(y), strict=True):
        single = block.count == 1
        if single and isinstance(block.manifold, Lorentz) and isinstance(block.manifold.c, float):
            squares.append(gram_distances(a, b, block.manifold.c).square())
        elif single:
            squares.append(block.manifold.pairwise_dist(a, b).square())
        else:  # equal factors that are kept together have a dimension of their own
            return manifold.pairwise_dist(x, y)
    return root(torch.stack(squares).sum(0))


def _check(
    nodes: Tensor,
    positives: Tensor,
    rows: Tensor,
    pool: Tensor,
    is_negative: Tensor,
    counts: Tensor | None,
) -> None:
    if is_negative.dtype != torch.bool:
        raise TypeError(f"is_negative must be booleans, got {is_negative.dtype}")
    if is_negative.shape != (len(nodes), len(pool)):
        raise ValueError(
            f"is_negative must be of shape {(len(nodes), len(pool))}, one a node and candidate, "
            f"got {tuple(is_negative.shape)}"
        )
    if rows.shape != (len(positives),):
        raise ValueError(
            f"rows must be of shape {(len(positives),)}, one a positive, got {tuple(rows.shape)}"
        )
    if counts is not None and counts.shape != (len(nodes),):
        raise ValueError(
            f"counts must be of shape {(len(nodes),)}, one a node, got {tuple(counts.shape)}"
        )
