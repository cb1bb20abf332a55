"""Train a table of points so that each node is near its ancestors and far from all others."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from beltrami.geometry import Manifold
from beltrami.losses.grouped_ranking import grouped_ranking_loss
from beltrami.models.hierarchy.relation import Relation
from beltrami.models.hierarchy.table import PointTable
from beltrami.optim import RiemannianSGD
from beltrami.recipes.hierarchy.config import HierarchyConfig
from beltrami.recipes.seeding import shuffled
from beltrami.recipes.session import Session

BURN_IN_SHARE = 0.01  # of the learning rate
LAST_SHARE = 0.01  # of the learning rate: it falls linearly to this
SMALL = 1 << 20  # pairs a step up to which a second thread only costs


def train_table(
    table: PointTable,
    relation: Relation,
    config: HierarchyConfig,
    *,
    learning_rate: float,
    seed: int,
    session: Session,
) -> None:
    """Riemannian SGD on the sum of the ranking losses of a batch.

    The sum, not the mean: what a step does to a node then does not depend on who else is in its
    batch. Nodes in very many pairs are held back by the longest step instead.
    """
    relation = Relation(relation.pairs.to(session.device), relation.count)
    sources, degree = relation.sources, relation.degree
    per_epoch = math.ceil(len(sources) / config.batch)
    steps = config.epochs * per_epoch
    draws = torch.Generator(session.device).manual_seed(seed)
    optimizer = RiemannianSGD(table, lr=learning_rate)
    done = session.begin(steps, model=table, optimizer=optimizer, draws=draws)
    order = shuffled(len(sources), seed, done // per_epoch).to(session.device)
    for step in range(done, steps):
        epoch, place = divmod(step, per_epoch)
        if place == 0:
            order = shuffled(len(sources), seed, epoch).to(session.device)
        burning = step < config.burn_in * steps
        nodes = sources[order[place * config.batch : (place + 1) * config.batch]]
        pool = _pool(relation, config.pool, degree if burning else None, draws)
        rate = learning_rate * rate_share(step / steps, config.burn_in)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        rows, losses = _losses(table, relation, session.processes.share(nodes), pool, config)
        total = losses.sum()
        total.backward()
        session.processes.sum_gradients(table.parameters())
        shorten_gradient(table.weight, table.manifold, config.max_step / rate)
        optimizer.step()
        pairs = session.processes.sum(torch.tensor(float(len(rows)), device=session.device))
        session.step(step + 1, loss=session.processes.sum(total.detach()) / pairs)


def rate_share(progress: float, burn_in: float) -> float:
    """The learning rate at a share of the training, as a share of its highest value."""
    return BURN_IN_SHARE if progress < burn_in else max(1 - progress, LAST_SHARE)


def shorten_gradient(points: Tensor, manifold: Manifold, longest: float) -> None:
    """Scale each row of `points.grad` down to Riemannian norm `longest`, in place."""
    gradient = points.grad
    if gradient is None:
        return
    x = points.detach()
    norm = manifold.norm(x, manifold.riemannian_grad(x, gradient), keepdim=True)
    gradient.mul_((longest / norm).clamp(max=1.0))


def _losses(
    table: PointTable, relation: Relation, nodes: Tensor, pool: Tensor, config: HierarchyConfig
) -> tuple[Tensor, Tensor]:
    rows, positives = relation.positives(nodes)
    strangers, counts = relation.strangers(nodes, rows, positives, pool)
    losses = grouped_ranking_loss(
        table(nodes),
        table(positives),
        rows,
        table(pool),
        strangers,
        table.manifold,
        negatives=config.negatives,
        counts=counts,
    )
    return rows, losses


def _pool(relation: Relation, size: int, weights: Tensor | None, draws: torch.Generator) -> Tensor:
    """Different nodes, drawn uniformly or by weight; all of them where they are no more."""
    device = relation.pairs.device
    if size >= relation.count:
        return torch.arange(relation.count, device=device)
    if weights is None:
        return torch.randperm(relation.count, generator=draws, device=device)[:size]
    # A node in no pair at all may still be drawn, or there might not be enough of them.
    return torch.multinomial(weights + 1e-9, size, generator=draws)
