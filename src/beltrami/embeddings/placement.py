r"""Where a new node goes among points that stay where they are.

It minimises what the training of a hierarchy minimises, for this node alone (`losses.
grouped_ranking`), over its ancestors v and all other nodes n:

    Σ_v softplus(d(u, v) + log(50 · mean_n e^{−d(u, n)}))

by Riemannian gradient descent with steps that shrink, from the best of the points of its parents
and siblings.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.geometry import Manifold

NEGATIVES = 50.0  # as in training: so many sampled nodes weigh against an ancestor
STEPS = 200
FIRST_STEP = 0.3  # the longest step, in units of distance; the last is a hundredth of it
MOST_STARTS = 256
LEAST_EDGE = 0.5  # how much farther out than its parents a node of a cone embedding is placed


def place_node(
    points: Tensor,
    manifold: Manifold,
    *,
    parents: Tensor,
    ancestors: Tensor,
    siblings: Tensor,
    cones: bool = False,
) -> Tensor:
    """The point (d,) of a new node among points (n, d), in float64.

    Args:
        points: of all nodes that are there.
        manifold: of the points.
        parents, ancestors, siblings: rows of the new node's relatives; parents are ancestors.
        cones: whether a node's descendants lie beyond it as seen from the origin.
    """
    points = points.double()
    if cones:
        return _farther_out(points, manifold, parents, siblings)
    others = torch.ones(len(points), dtype=torch.bool)
    others[ancestors] = False
    starts = torch.cat([siblings[:MOST_STARTS], parents])
    losses = torch.stack([_loss(points[i], points, manifold, ancestors, others) for i in starts])
    u = points[starts[losses.argmin()]]
    best, lowest = u, torch.inf
    for step in range(STEPS):
        u = u.requires_grad_()
        loss = _loss(u, points, manifold, ancestors, others)
        (gradient,) = torch.autograd.grad(loss, u)
        u = u.detach()
        value = loss.item()
        if value < lowest:
            best, lowest = u, value
        direction = manifold.riemannian_grad(u, gradient)
        length = float(manifold.norm(u, direction))
        if length == 0:
            break
        max_step = FIRST_STEP * 100 ** (-step / STEPS)
        u = manifold.project(manifold.exp(u, -direction * min(1.0, max_step / length)))
    return best


def _loss(u: Tensor, points: Tensor, manifold: Manifold, near: Tensor, others: Tensor) -> Tensor:
    distance = manifold.dist(u, points)
    if not bool(others.any()):
        return distance[near].sum()
    negatives = distance[others]
    mass = torch.logsumexp(-negatives, 0) + math.log(NEGATIVES / len(negatives))
    return F.softplus(distance[near] + mass).sum()


def _farther_out(points: Tensor, manifold: Manifold, parents: Tensor, siblings: Tensor) -> Tensor:
    """A point on the ray of the parents' mean direction, as much farther out as siblings are."""
    v = manifold.log0(points[parents])
    radius = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    direction = F.normalize(F.normalize(v, dim=-1).sum(0), dim=-1)
    further = LEAST_EDGE
    if len(siblings):
        outside = torch.linalg.vector_norm(manifold.log0(points[siblings]), dim=-1)
        further = max(float(outside.mean() - radius.max()), LEAST_EDGE)
    return manifold.project(manifold.exp0(direction * (radius.max() + further)))
