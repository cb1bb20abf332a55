"""Train a table of points so that each node is near its ancestors and far from all others."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from beltrami.geometry import Manifold
from beltrami.losses.grouped_ranking import grouped_ranking_loss
from beltrami.models.hierarchy.relation import Relation
from beltrami.models.hierarchy.table import PointTable
from beltrami.optim import RiemannianSGD
from beltrami.recipes.hierarchy.config import HierarchyConfig
from beltrami.train import loop
from beltrami.train.graph_capture import can_capture
from beltrami.train.seeding import epoch_order
from beltrami.train.session import Session

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
    device, processes = session.device, session.processes
    relation = Relation(relation.pairs.to(device), relation.count)
    sources, degree = relation.sources, relation.degree
    per_epoch = math.ceil(len(sources) / config.batch_of(relation.count))
    batch, pool_size = math.ceil(len(sources) / per_epoch), config.pool_of(relation.count)
    most = relation.most_in(batch) if can_capture(processes) else None
    steps = config.epochs * per_epoch
    draws = torch.Generator(device).manual_seed(seed)
    optimizer = RiemannianSGD(table, lr=learning_rate)

    def shorten(*_: object) -> None:
        rate = optimizer.param_groups[0]["lr"]
        shorten_gradient(table.weight, table.manifold, config.max_step / rate)

    def batches(epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        nodes = _batches(sources, per_epoch, seed, epoch)
        for place in range(start, per_epoch):
            burning = epoch * per_epoch + place < config.burn_in * steps
            yield nodes[place], _pool(relation, pool_size, degree if burning else None, draws)

    def loss(nodes: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
        return _total_loss(table, relation, processes.shard(nodes), pool, config, most)

    optimizer.register_step_pre_hook(shorten)
    loop.train(
        table,
        optimizer,
        loss,
        batches,
        steps=steps,
        steps_per_epoch=per_epoch,
        session=session,
        schedule=lambda step: rate_share(step / steps, config.burn_in),
        small=batch * pool_size <= SMALL,
        capture=True,
        parts={"draws": draws},
    )


def _batches(sources: Tensor, count: int, seed: int, epoch: int) -> Tensor:
    """The nodes in an order of the epoch's, as rows of one size; −1 where there is none left."""
    order = epoch_order(len(sources), seed, epoch).to(sources.device)
    result = sources.new_full((count * math.ceil(len(sources) / count),), -1)
    result[: len(sources)] = sources[order]
    return result.view(count, -1)


def rate_share(progress: float, burn_in: float) -> float:
    """The learning rate at a share of the training, as a share of its highest value."""
    return BURN_IN_SHARE if progress < burn_in else max(1 - progress, LAST_SHARE)


def shorten_gradient(points: Tensor, manifold: Manifold, longest: float | Tensor) -> None:
    """Scale each row of `points.grad` down to Riemannian norm `longest`, in place."""
    gradient = points.grad
    if gradient is None:
        return
    x = points.detach()
    norm = manifold.norm(x, manifold.riemannian_grad(x, gradient), keepdim=True)
    gradient.mul_((longest / norm).clamp(max=1.0))


def _total_loss(
    table: PointTable,
    relation: Relation,
    nodes: Tensor,
    pool: Tensor,
    config: HierarchyConfig,
    most: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The sum of the losses of all pairs of the nodes, and how many pairs they are."""
    rows, positives, real = relation.positives(nodes, most)
    negative, counts = relation.negatives(nodes, rows, positives, real, pool)
    losses = grouped_ranking_loss(
        table(nodes.clamp(min=0)),
        table(positives),
        rows,
        table(pool),
        negative,
        table.manifold,
        negatives=config.negatives,
        counts=counts,
    )
    return torch.where(real, losses, 0.0).sum(), real.sum()


def _pool(relation: Relation, size: int, weights: Tensor | None, draws: torch.Generator) -> Tensor:
    """Different nodes, drawn uniformly or by weight; all of them where they are no more."""
    device = relation.pairs.device
    if size >= relation.count:
        return torch.arange(relation.count, device=device)
    if weights is None:
        return torch.randperm(relation.count, generator=draws, device=device)[:size]
    # A node in no pair at all may still be drawn, or there might not be enough of them.
    return torch.multinomial(weights + 1e-9, size, generator=draws)
