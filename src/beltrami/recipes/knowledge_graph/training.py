"""Train a knowledge-graph model with Adam, keeping the state where validation was best."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from beltrami.data.triples import KnownTails, TripleSet, add_reciprocals
from beltrami.models.knowledge_graph import KnowledgeGraphModel, evaluate
from beltrami.recipes.knowledge_graph.objective import pooled_losses
from beltrami.recipes.recipe import Trial
from beltrami.train.best import BestState
from beltrami.train.graph_capture import CapturedStep, capture_stream
from beltrami.train.seeding import mix_seeds
from beltrami.train.session import Session
from beltrami.train.threads import one_thread

BIAS_SHARE = 0.5  # of the learning rate
DECAY_FROM = 0.5  # share of the epochs after which the learning rate falls linearly
LAST_SHARE = 0.01  # of the learning rate, where it ends
SMALL = 1 << 18  # numbers in a table of scores that a CPU computes as fast with one thread


@dataclass(frozen=True)
class KnowledgeGraphSettings:
    """What a training depends on; see `KnowledgeGraphRunConfig`."""

    dim: int
    epochs: int
    batch: int
    objective: str
    pool: int
    negatives: float
    curvature: float
    curvature_rate: float
    order: Literal["head", "relation"]
    pre_translation: bool
    validate_every: int
    learning_rate: float


class Validations:
    """The validation MRR at each epoch it was measured at; a part for checkpoints."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.scores: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        """Return epochs and scores."""
        return {"epochs": list(self.epochs), "scores": list(self.scores)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore epochs and scores."""
        self.epochs, self.scores = list(state_dict["epochs"]), list(state_dict["scores"])


def train_model(
    model: KnowledgeGraphModel,
    graph: TripleSet,
    known: KnownTails,
    trial: Trial[KnowledgeGraphSettings],
    session: Session,
) -> Validations:
    """Train, and leave the model as it was where validation was best.

    A batch's loss is a mean over its triples, each process computing its share. What remains of
    the triples after the last whole batch of an epoch is left out; each epoch leaves out others.
    """
    if trial.settings.batch < session.processes.world_size:
        raise ValueError(
            f"--batch must be at least the number of processes, {session.processes.world_size}; "
            f"got {trial.settings.batch}"
        )
    triples = add_reciprocals(graph.train, len(graph.relations))
    batch = min(trial.settings.batch, len(triples))
    per_epoch = len(triples) // batch
    steps = trial.settings.epochs * per_epoch
    optimizer, shares = _optimizer(model, trial, session.device)
    best, seen = BestState(model), Validations()
    done = session.begin(steps, model=model, optimizer=optimizer, best=best, seen=seen)
    small = session.device.type == "cpu" and batch * trial.settings.pool <= SMALL
    with capture_stream(session.device), one_thread() if small else nullcontext():
        stepper = _Stepper(model, optimizer, trial, session, per_epoch, batch)
        for step in range(done, steps):
            epoch, place = divmod(step, per_epoch)
            if place == 0 or step == done:
                stepper.begin(triples, epoch, place)
                _set_rates(optimizer, shares, rate_share(epoch / trial.settings.epochs))
            loss = stepper.step()
            if place + 1 == per_epoch and _is_due(epoch + 1, trial):
                mrr = evaluate(model, graph.valid, known)["mrr"]
                score = session.processes.mean({"mrr": mrr})["mrr"]
                best.update(score, step + 1)
                seen.epochs.append(epoch + 1)
                seen.scores.append(score)
            session.step(step + 1, loss=loss)
        best.restore()
    return seen


def rate_share(progress: float) -> float:
    """The learning rate at a share of the training, as a share of its highest value."""
    if progress < DECAY_FROM:
        return 1.0
    return max(LAST_SHARE, (1 - progress) / (1 - DECAY_FROM))


def _is_due(epoch: int, trial: Trial[KnowledgeGraphSettings]) -> bool:
    due: bool = epoch % trial.settings.validate_every == 0 or epoch == trial.settings.epochs
    return due


def _optimizer(
    model: KnowledgeGraphModel, trial: Trial[KnowledgeGraphSettings], device: torch.device
) -> tuple[torch.optim.Adam, list[float]]:
    """Adam, and the learning rate of each of its groups."""
    rate = trial.settings.learning_rate
    shares = {"bias": BIAS_SHARE, "curvature.raw": trial.settings.curvature_rate}
    rates = [rate * shares.get(name, 1.0) for name, _ in model.named_parameters()]
    groups = [{"params": [p], "lr": r} for p, r in zip(model.parameters(), rates, strict=True)]
    if device.type == "cuda":
        return torch.optim.Adam(groups, fused=True, capturable=True), rates
    return torch.optim.Adam(groups), rates


def _set_rates(optimizer: torch.optim.Adam, rates: list[float], share: float) -> None:
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], Tensor):  # what a recorded step reads
            group["lr"].fill_(rate * share)
        else:
            group["lr"] = rate * share


class _Stepper:
    """Steps through the batches of an epoch.

    All that a step reads lies in buffers of fixed place, and where in them it is, is counted on
    the device, so that on a GPU a step can be recorded.
    """

    def __init__(
        self,
        model: KnowledgeGraphModel,
        optimizer: torch.optim.Adam,
        trial: Trial[KnowledgeGraphSettings],
        session: Session,
        per_epoch: int,
        batch: int,
    ) -> None:
        device = session.device
        self._model, self._optimizer = model, optimizer
        self._trial, self._processes = trial, session.processes
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._entities = model.config.entities
        self._triples = torch.empty(per_epoch, batch, 3, dtype=torch.int64, device=device)
        self._heads = torch.empty(per_epoch, batch, dtype=torch.int64, device=device)
        self._pools = torch.empty(per_epoch, trial.settings.pool, dtype=torch.int64, device=device)
        self._place = torch.zeros(1, dtype=torch.int64, device=device)
        self._loss = torch.zeros((), device=device)
        self._recording = CapturedStep(self._step, session.processes)
        if device.type == "cuda":
            for group in optimizer.param_groups:
                group["lr"] = torch.zeros((), device=device)

    def begin(self, triples: Tensor, epoch: int, place: int) -> None:
        """Draw an epoch, which depends on seed and epoch alone, and go to a place in it."""
        draws = torch.Generator().manual_seed(mix_seeds(self._trial.seed, epoch))
        order = torch.randperm(len(triples), generator=draws)[: self._heads.numel()]
        self._triples.copy_(triples[order].view(self._triples.shape))
        for target in (self._heads, self._pools):
            target.copy_(torch.randint(self._entities, target.shape, generator=draws))
        self._place.fill_(place)

    def step(self) -> Tensor:
        """One step; returns its loss, in a buffer that the next step writes over."""
        self._recording()
        return self._loss

    def _step(self) -> None:
        triples = self._triples.index_select(0, self._place)[0]
        heads = self._heads.index_select(0, self._place)[0]
        pool = self._pools.index_select(0, self._place)[0]
        shard = self._processes.shard
        loss = self._loss_of(shard(triples), shard(heads), pool) / len(triples)
        gradients = torch.autograd.grad(loss, self._parameters)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._processes.all_reduce_gradients(self._parameters)
        self._optimizer.step()
        self._loss.copy_(self._processes.all_reduce(loss.detach()))
        self._place += 1

    def _loss_of(self, triples: Tensor, heads: Tensor, pool: Tensor) -> Tensor:
        """The sum of the losses of our triples."""
        objective = self._trial.settings.objective
        if objective == "softmax":
            return self._model.softmax_loss(triples) * len(triples)
        return pooled_losses(
            self._model,
            triples,
            heads if objective == "pairs" else None,
            pool,
            negatives=self._trial.settings.negatives,
        ).sum()
