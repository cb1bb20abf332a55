"""The loss of a fine-tuned model on answers, what it costs, and its gains."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from beltrami.analysis.saved_memory import saved_bytes
from beltrami.models.pretrained.prompts import Coded, training_batch
from beltrami.recipes.hyplora.methods import FineTuned
from beltrami.recipes.hyplora.training import mixed_precision, summed_loss

QUANTILES = 101  # of the gains of a kind of layer
LOW, MIDDLE, HIGH = 0.05, 0.5, 0.95
_BLOCK = re.compile(r"\.(\d+)\.")


@dataclass(frozen=True)
class Place:
    """Where a model computes, and how."""

    device: torch.device
    bfloat16: bool


@torch.no_grad()
def answer_loss(
    model: FineTuned, coded: Sequence[Coded], padding: int, place: Place, *, batch: int
) -> float:
    """The mean cross-entropy of a solution's tokens; nan where no question has a solution."""
    model.eval()
    coded = [item for item in coded if item.has_solution]
    if not coded:
        return math.nan
    total, counted = 0.0, 0
    for start in range(0, len(coded), batch):
        batch_items = coded[start : start + batch]
        tokens = training_batch(batch_items, padding, train_on_prompts=False)
        with mixed_precision(place.device, place.bfloat16):
            total += float(summed_loss(model, tokens, place.device))
        counted += sum(len(item.solution) for item in batch_items)
    return total / counted


def kept_megabytes(
    model: FineTuned, coded: Sequence[Coded], padding: int, place: Place, *, prompts: bool
) -> float:
    """MiB that a step keeps for its backward pass, parameters left out."""
    model.train()
    tokens = training_batch(coded, padding, train_on_prompts=prompts)
    with mixed_precision(place.device, place.bfloat16):
        saved, _ = saved_bytes(
            lambda: summed_loss(model, tokens, place.device), besides=model.parameters()
        )
    model.eval()
    return saved / 2**20


def gain_curves(
    model: FineTuned, coded: Sequence[Coded], padding: int, place: Place
) -> dict[str, list[float]]:
    """Gains by kind of layer and block, for the page; empty for models that have none.

    `gain KIND` has quantiles over all blocks; `gain KIND low`, `middle` and `high` have one number
    a block, and `gain KIND block` says which.
    """
    from beltrami.peft import HypLoraLayer, measure_gains

    if not any(isinstance(m, HypLoraLayer) for m in model.modules()):
        return {}
    tokens = training_batch(coded, padding, train_on_prompts=False)
    batch = {name: tokens[name].to(place.device) for name in ("input_ids", "attention_mask")}
    with mixed_precision(place.device, place.bfloat16):
        gains = measure_gains(model.model, [batch])
    by_kind: dict[str, list[tuple[int, Tensor]]] = {}
    for name, values in gains.items():
        kind, block = _kind_and_block(name)
        by_kind.setdefault(kind, []).append((block, values))
    curves: dict[str, list[float]] = {}
    for kind, blocks in by_kind.items():
        every = torch.cat([values for _, values in blocks])
        curves[f"gain {kind}"] = _quantiles(every, torch.linspace(0, 1, QUANTILES).tolist())
        curves[f"gain {kind} block"] = [float(block) for block, _ in blocks]
        for word, share in (("low", LOW), ("middle", MIDDLE), ("high", HIGH)):
            curves[f"gain {kind} {word}"] = [_quantiles(v, [share])[0] for _, v in blocks]
    return curves


def curvature_curves(model: FineTuned) -> dict[str, list[float]]:
    """The curvature of each adapted layer, where it has one that is the same for all tokens.

    `curvature KIND` has one number a block, and `curvature KIND block` says which.
    """
    from beltrami.peft import HypLoraLayer

    curves: dict[str, list[float]] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, HypLoraLayer) and _has_one_curvature(layer):
            (c,) = layer.curvatures("default")
            kind, block = _kind_and_block(name)
            curves.setdefault(f"curvature {kind}", []).append(float(torch.as_tensor(c).detach()))
            curves.setdefault(f"curvature {kind} block", []).append(float(block))
    return curves


def _has_one_curvature(layer: Any) -> bool:
    flat = layer.hyplora_B["default"].adapter_map.variant == "tangent"
    return not flat and "default" not in layer.hyplora_router


def _kind_and_block(name: str) -> tuple[str, int]:
    block = _BLOCK.search(name)
    return name.rpartition(".")[2], int(block.group(1)) if block else 0


def _quantiles(values: Tensor, shares: Sequence[float]) -> list[float]:
    ordered = values.double().sort().values
    places = [min(len(ordered) - 1, round(share * (len(ordered) - 1))) for share in shares]
    return [float(ordered[place]) for place in places]
