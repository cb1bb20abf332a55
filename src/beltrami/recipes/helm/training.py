"""Training of a language model on packed rows, with checkpoints and logs.

It goes through `Session` and not `transformers.Trainer`, as in `recipes/hyplora/training.py`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from beltrami.data.corpus import IGNORE, PackedRows, pack
from beltrami.geometry import Curvature
from beltrami.optim import create_optimizer
from beltrami.recipes.helm.text import Text
from beltrami.recipes.recipe import Trial
from beltrami.train.processes import Processes
from beltrami.train.session import LOGGED, Session

BETAS, WEIGHT_DECAY, CLIP = (0.9, 0.95), 0.1, 1.0
WARM_UP, LAST_RATE = 0.05, 0.1  # shares of the steps and of the learning rate
VALIDATIONS, VALIDATION_BATCHES = 10, 16  # while a model is trained, and the batches of each


@dataclass(frozen=True, kw_only=True)
class HelmSettings:
    """What a training depends on; see `HelmRunConfig`.

    Args:
        model: fields of the `HelmConfig`.
        precision: of matrix products; weights are in float32.
    """

    model: Mapping[str, Any]
    tokens: int
    batch: int
    length: int
    held_out: int
    document_masks: bool
    curvature_lr: float | None
    scale_lr: float | None
    precision: str
    compile: bool
    learning_rate: float

    @property
    def steps(self) -> int:
        """Steps of a training."""
        return self.tokens // (self.batch * self.length)


def train_model(model: Any, text: Text, trial: Trial[HelmSettings], session: Session) -> None:
    """Train in place with AdamW; the rate rises, then falls to a tenth in a cosine.

    Under torchrun the processes share each batch and add up their gradients.
    """
    s, processes, steps = trial.settings, session.processes, trial.settings.steps
    if s.batch < processes.world_size:
        raise ValueError(f"--batch {s.batch} is fewer than the {processes.world_size} processes")
    if s.compile and session.device.type == "cuda":
        torch.compiler.reset()  # another model's code would count towards the limit of recompiles
        for layer in model.model.layers:
            layer.compile(dynamic=False)
    optimizer = create_optimizer(
        model,
        "adamw",
        lr=s.learning_rate,
        weight_decay=WEIGHT_DECAY,
        curvature_lr=s.curvature_lr,
        scale_lr=s.scale_lr,
        betas=BETAS,
        nonfinite="skip",
    )
    rates = [group["lr"] for group in optimizer.param_groups]
    validation = text.held_out_rows("validation", s.length, s.document_masks)
    done = session.begin(steps, model=model, optimizer=optimizer)
    if session.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(session.device)
    every = max(1, steps // LOGGED)  # as the session logs
    seldom = every * max(1, steps // (every * VALIDATIONS))
    model.train()
    for step, batch in enumerate(batches(text, trial, done), start=done):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * rate_at(step, steps)
        count = int((batch["labels"][:, 1:] != IGNORE).sum())
        optimizer.zero_grad()
        loss = summed_loss(model, s, batch, processes) / count
        loss.backward()
        processes.all_reduce_gradients(model.parameters())
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        values: dict[str, Tensor | float] = {"loss": processes.all_reduce(loss.detach())}
        values["seconds"], left = session.seconds, steps - step - 1
        if (step + 1) % every == 0 or not left:
            for name, kappas in curvatures(model).items():
                values[f"{name} curvature"] = sum(kappas) / len(kappas)
        if ((step + 1) % seldom == 0 and left > seldom // 2) or not left:
            values["validation loss"], _ = mean_loss(
                model, s, validation, processes, most=VALIDATION_BATCHES
            )
        session.step(step + 1, **values)


def batches(text: Text, trial: Trial[HelmSettings], done: int) -> Iterator[dict[str, Tensor]]:
    """The batch of each step from `done` on: a function of the seed, the same for all arms."""
    s, step, epoch = trial.settings, 0, 0
    while step < s.steps:
        rows = pack(text.train, s.length, seed=trial.seed, epoch=epoch, documents=s.document_masks)
        for start in range(0, len(rows) - s.batch + 1, s.batch):
            if step >= s.steps:
                return
            if step >= done:
                yield stacked(rows, start, s.batch)
            step += 1
        epoch += 1


def stacked(rows: PackedRows, start: int, count: int) -> dict[str, Tensor]:
    """So many rows as one batch, each entry (rows, length)."""
    chosen = [rows[i] for i in range(start, min(start + count, len(rows)))]
    return {key: torch.stack([row[key] for row in chosen]) for key in chosen[0]}


def inputs(batch: Mapping[str, Tensor], s: HelmSettings, device: torch.device) -> dict[str, Any]:
    """A batch as the model takes it; positions that restart say where documents begin."""
    names = ("input_ids", "labels", *(("position_ids",) if s.document_masks else ()))
    moved = {name: batch[name].to(device) for name in names}
    return {**moved, "use_cache": False}  # with a cache, documents in a row would not be told apart


def summed_loss(
    model: nn.Module, s: HelmSettings, batch: Mapping[str, Tensor], processes: Processes
) -> Tensor:
    """The cross-entropy of this process's rows of a batch, summed over tokens, in nats."""
    ours = {name: processes.shard(value) for name, value in batch.items()}
    if not len(ours["labels"]):
        return torch.zeros((), device=processes.device)
    with autocast(s, processes.device):
        loss: Tensor = model(**inputs(ours, s, processes.device), num_items_in_batch=1.0).loss
    return loss


def autocast(s: HelmSettings, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Matrix products in bfloat16 inside, if the settings say so."""
    return torch.autocast(device.type, torch.bfloat16, enabled=s.precision == "bfloat16")


@torch.no_grad()
def mean_loss(
    model: nn.Module,
    s: HelmSettings,
    rows: PackedRows,
    processes: Processes,
    most: int | None = None,
) -> tuple[float, int]:
    """The loss of held-out rows in nats a token, and how many tokens are predicted.

    Args:
        model: in training mode again afterwards. s, rows, processes: of the trial.
        most: so many batches at most.
    """
    model.eval()
    total, count = torch.zeros((), dtype=torch.float64, device=processes.device), 0
    for start in range(0, len(rows), s.batch)[:most]:
        batch = stacked(rows, start, s.batch)
        count += int((batch["labels"][:, 1:] != IGNORE).sum())
        total += summed_loss(model, s, batch, processes)
    model.train()
    return float(processes.all_reduce(total)) / count, count


def rate_at(step: int, steps: int) -> float:
    """The share of the learning rate at a step: up in a line, then down in a cosine."""
    rise = max(1, round(WARM_UP * steps))
    if step < rise:
        return (step + 1) / rise
    angle = math.pi * (step - rise) / max(1, steps - rise)
    return LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(angle)) / 2


def curvatures(model: Any) -> dict[str, list[float]]:
    """Curvatures κ = c·d of stream, heads and scores, one or one a layer; none of a flat model."""
    if model.config.is_flat:
        return {}
    modules = {
        "stream": model.model.curvature,
        "head": model.model.head_curvature,
        "score": model.word_scores.curvature,
    }
    return {  # κ is 1 at the start
        name: [c.value.item() / c.init for c in module.modules() if isinstance(c, Curvature)]
        for name, module in modules.items()
    }
