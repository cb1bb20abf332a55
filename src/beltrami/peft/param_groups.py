"""Groups of an adapter's parameters for an optimiser."""

from __future__ import annotations

from typing import Any

from torch import nn

from beltrami.peft.layer import HypLoraLayer
from beltrami.peft.projections import LearnedCurvature


def loraplus_groups(
    model: nn.Module, lr: float, *, ratio: float = 16.0, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """LoRA+ (Hayou et al. 2024): B learns `ratio` times as fast as everything else.

    Learned curvatures are never decayed.

    >>> optimizer = torch.optim.AdamW(loraplus_groups(model, 2e-4))
    """
    if lr <= 0 or ratio <= 0:
        raise ValueError(f"lr and ratio must be positive, got {lr} and {ratio}")
    ups: set[int] = set()
    curvatures: set[int] = set()
    for module in model.modules():
        if isinstance(module, HypLoraLayer):
            ups |= {id(p) for p in module.hyplora_B.parameters()}
        elif isinstance(module, LearnedCurvature):
            curvatures |= {id(p) for p in module.parameters()}
    groups: dict[str, dict[str, Any]] = {
        "rest": {"params": [], "lr": lr, "weight_decay": weight_decay},
        "up": {"params": [], "lr": lr * ratio, "weight_decay": weight_decay},
        "curvature": {"params": [], "lr": lr, "weight_decay": 0.0},
    }
    for p in model.parameters():
        if p.requires_grad:
            which = "up" if id(p) in ups else "curvature" if id(p) in curvatures else "rest"
            groups[which]["params"].append(p)
    return [group for group in groups.values() if group["params"]]
