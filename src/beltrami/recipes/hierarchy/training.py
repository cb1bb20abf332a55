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
from beltrami.train.graph_capture import CapturedStep, capture_stream
from beltrami.train.processes import Processes
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
    relation = Relation(relation.pairs.to(session.device), relation.count)
    sources, degree = relation.sources, relation.degree
    per_epoch = math.ceil(len(sources) / config.batch_of(relation.count))
    pool_size = config.pool_of(relation.count)
    steps = config.epochs * per_epoch
    draws = torch.Generator(session.device).manual_seed(seed)
    optimizer = RiemannianSGD(table, lr=1.0)  # gradients come multiplied by the rate
    done = session.begin(steps, model=table, optimizer=optimizer, draws=draws)
    for group in optimizer.param_groups:
        group["lr"] = 1.0  # checkpoints of earlier versions had the rate there
    with capture_stream(session.device):
        batch = math.ceil(len(sources) / per_epoch)
        stepper = _Stepper(table, relation, config, optimizer, session.processes, batch, pool_size)
        for step in range(done, steps):
            epoch, place = divmod(step, per_epoch)
            if place == 0 or step == done:
                batches = _batches(sources, per_epoch, seed, epoch)
            burning = step < config.burn_in * steps
            pool = _pool(relation, pool_size, degree if burning else None, draws)
            rate = learning_rate * rate_share(step / steps, config.burn_in)
            session.step(step + 1, loss=stepper.step(batches[place], pool, rate))


class _Stepper:
    """Steps on batches of one size; what a step reads lies in buffers, so that it can be recorded.

    Args:
        table: of the points.
        relation: on the table's device, as everything.
        config: of the training.
        optimizer: of the table, with learning rate 1.
        processes: that share each batch.
        batch, pool: nodes of each.
    """

    def __init__(
        self,
        table: PointTable,
        relation: Relation,
        config: HierarchyConfig,
        optimizer: RiemannianSGD,
        processes: Processes,
        batch: int,
        pool: int,
    ) -> None:
        self._table, self._relation, self._config = table, relation, config
        self._optimizer, self._processes = optimizer, processes
        device = relation.pairs.device
        self._nodes = torch.empty(batch, dtype=torch.int64, device=device)
        self._pool = torch.empty(pool, dtype=torch.int64, device=device)
        self._rate = torch.zeros((), dtype=torch.float64, device=device)
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._recording = CapturedStep(self._step, processes)
        self._most = relation.most_in(batch) if self._recording.captures else None

    def step(self, nodes: Tensor, pool: Tensor, rate: float) -> Tensor:
        """One step; returns the mean loss of a pair, in a buffer that the next step writes over."""
        self._nodes.copy_(nodes)
        self._pool.copy_(pool)
        self._rate.fill_(rate)
        self._recording()
        return self._loss

    def _step(self) -> None:
        table, processes = self._table, self._processes
        total, pairs = _total_loss(
            table,
            self._relation,
            processes.shard(self._nodes),
            self._pool,
            self._config,
            self._most,
        )
        (gradient,) = torch.autograd.grad(total, [table.weight])
        table.weight.grad = gradient * self._rate
        processes.all_reduce_gradients(table.parameters())
        shorten_gradient(table.weight, table.manifold, self._config.max_step)
        self._optimizer.step()
        self._loss.copy_(processes.all_reduce(total.detach()) / processes.all_reduce(pairs))


def _batches(sources: Tensor, count: int, seed: int, epoch: int) -> Tensor:
    """The nodes in an order of the epoch's, as rows of one size; −1 where there is none left."""
    order = epoch_order(len(sources), seed, epoch).to(sources.device)
    result = sources.new_full((count * math.ceil(len(sources) / count),), -1)
    result[: len(sources)] = sources[order]
    return result.view(count, -1)


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
