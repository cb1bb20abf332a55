"""Fine-tuning of one model, with checkpoints of what is trained.

It goes through `Session` and not `transformers.Trainer`: a run's checkpoints are single safetensors
files, written whole, without pickle, and hold the adapter alone. Users' own trainings go through
Trainer, and the tests of `beltrami.peft` see that they can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.models.pretrained.prompts import IGNORED, Coded, training_batch
from beltrami.recipes.hyplora.methods import FineTuned, HypLoraSettings
from beltrami.recipes.recipe import Trial
from beltrami.train.seeding import epoch_order, mix_seeds, seeded
from beltrami.train.session import Session

CLIP = 1.0  # largest norm of a gradient


def fine_tune(
    model: FineTuned,
    coded: Sequence[Coded],
    padding: int,
    trial: Trial[HypLoraSettings],
    session: Session,
    *,
    micro_batch: int | None = None,
) -> None:
    """Train in place with AdamW; the rate rises, then falls to 0 in a straight line.

    Under torchrun the processes share each batch and add up their gradients.

    Args:
        model: as `fine_tuned` gives it.
        coded: questions with solutions.
        padding: a token.
        trial: what to train, and how.
        session: of the trial.
        micro_batch: questions at a time, if not all of a batch; changes nothing but memory.
    """
    batch, processes = trial.settings.batch, session.processes
    prompts, half = trial.settings.loss_on == "whole", trial.settings.precision == "bfloat16"
    per_epoch = math.ceil(len(coded) / batch)
    steps = max(1, round(trial.settings.epochs * per_epoch))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=trial.settings.learning_rate, weight_decay=0.0)
    done = session.begin(steps, model=model, optimizer=optimizer)
    model.train()
    if done == 0:
        first = [coded[i] for i in epoch_order(len(coded), trial.seed, 0)[:batch].tolist()]
        with mixed_precision(session.device, half):
            tokens = training_batch(first, padding, train_on_prompts=prompts)
            fix_units(model, tokens, trial.seed, session.device)
    for step in range(done, steps):
        for group in optimizer.param_groups:
            group["lr"] = trial.settings.learning_rate * rate_at(
                step, steps, trial.settings.warm_up
            )
        epoch, place = divmod(step, per_epoch)
        rows = epoch_order(len(coded), trial.seed, epoch)[place * batch : (place + 1) * batch]
        whole = [coded[i] for i in rows.tolist()]
        counted = sum(_counted(item, prompts) for item in whole)
        ours = [coded[i] for i in processes.shard(rows).tolist()]
        optimizer.zero_grad()
        total = torch.zeros((), device=session.device)
        with seeded(mix_seeds(mix_seeds(trial.seed, step), processes.rank), session.device):
            for piece in _pieces(ours, micro_batch):
                tokens = training_batch(piece, padding, train_on_prompts=prompts)
                with mixed_precision(session.device, half):
                    loss = summed_loss(model, tokens, session.device) / counted
                loss.backward()
                total += loss.detach()
        processes.all_reduce_gradients(trained)
        torch.nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()
        session.step(step + 1, loss=processes.all_reduce(total))


@torch.no_grad()
def fix_units(model: FineTuned, tokens: dict[str, Tensor], seed: int, device: torch.device) -> None:
    """Let layers that measure lengths by their first batch see all of it, in every process."""
    from beltrami.peft.projections import ResidualUnit

    if any(isinstance(module, ResidualUnit) for module in model.modules()):
        with seeded(seed, device):
            summed_loss(model, tokens, device)


def summed_loss(model: FineTuned, tokens: dict[str, Tensor], device: torch.device) -> Tensor:
    """The cross-entropy of the labels, summed."""
    moved = {name: value.to(device) for name, value in tokens.items()}
    labels = moved.pop("labels")[:, 1:]
    scores = model(**moved)[:, :-1]
    counts = labels != IGNORED
    return F.cross_entropy(scores[counts].float(), labels[counts], reduction="sum")


def rate_at(step: int, steps: int, warm_up: int) -> float:
    """The share of the learning rate at a step."""
    rise = min(warm_up, steps // 2)
    if step < rise:
        return (step + 1) / rise
    return (steps - step) / max(1, steps - rise)


@contextmanager
def mixed_precision(device: torch.device, bfloat16: bool) -> Iterator[None]:
    """Matrix products in bfloat16 inside, if asked."""
    with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
        yield


def _counted(item: Coded, prompts: bool) -> int:
    """Number of labels in the loss; the first token is not predicted, so it does not count."""
    return len(item.solution) + (max(0, len(item.question) - 1) if prompts else 0)


def _pieces(coded: Sequence[Coded], size: int | None) -> Iterator[Sequence[Coded]]:
    size = size or max(1, len(coded))
    for start in range(0, len(coded), size):
        yield coded[start : start + size]
