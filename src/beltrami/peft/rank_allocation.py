r"""Ranks where they are needed: components that do little are dropped while an adapter learns.

AdaLoRA (Zhang et al. 2023) writes an update as P·Λ·Q and ranks the entries of Λ by the smoothed
size of λᵢ·∂L/∂λᵢ: to first order what the loss would change by without the i-th component. An
update that depends on B and A through B·A alone, as LoRA's and HypLoRA's do, needs no Λ for that:

    λᵢ·∂L/∂λᵢ = ⟨bᵢ, ∂L/∂bᵢ⟩ = ⟨aᵢ, ∂L/∂aᵢ⟩     for columns bᵢ of B and rows aᵢ of A.

A router of curvatures sees A·x, too; its columns count as columns of B there. So an adapter is
trained as it is, and is an ordinary one, of different ranks, when it is done.
"""

from __future__ import annotations

import copy
import logging
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from beltrami.peft.config import HypLoraConfig
from beltrami.peft.layer import HypLoraLayer
from beltrami.peft.model import HypLoraModel

SMOOTHING = 0.85  # of importance and of its spread, as AdaLoRA has it

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RankSchedule:
    """How many components there are at which step.

    All of them in the first steps, then fewer along a cubic, fast at first, and what they shall be
    in the last steps.

    Args:
        total_steps: of the training.
        warm_up, settle: shares of the steps at the start and at the end in which the number is
            constant.
        every: after how many steps they are chosen anew in between.
    """

    total_steps: int
    warm_up: float = 0.1
    settle: float = 0.3
    every: int = 10

    def __post_init__(self) -> None:
        for name in ("total_steps", "every"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not (self.warm_up >= 0 and self.settle >= 0 and self.warm_up + self.settle < 1):
            raise ValueError(
                "warm_up and settle must be shares of the steps that leave some between them, got "
                f"{self.warm_up} and {self.settle}"
            )

    def components(self, step: int, before: int, after: int) -> int:
        """Between `before` and `after`, after that many steps."""
        first, last = self.warm_up * self.total_steps, (1 - self.settle) * self.total_steps
        if step <= first:
            return before
        if step >= last:
            return after
        left = 1 - (step - first) / (last - first)
        return round(after + (before - after) * left**3)

    def chooses(self, step: int) -> bool:
        """Whether components are chosen anew after that many steps."""
        first, last = self.warm_up * self.total_steps, (1 - self.settle) * self.total_steps
        return first < step < last and step % self.every == 0

    def is_settled(self, step: int) -> bool:
        """Whether the ranks have their final values."""
        return step >= (1 - self.settle) * self.total_steps


@dataclass
class _Allotted:
    """A layer's components and their importance."""

    layer: Any
    importance: Tensor  # (r,), smoothed
    spread: Tensor  # (r,), of the importance
    keep: Tensor  # (r,), whether they are kept

    def up(self, adapter: str) -> nn.Parameter:
        """B, (out, r)."""
        weight: nn.Parameter = self.layer.hyplora_B[adapter].weight
        return weight

    def columns(self, adapter: str) -> list[nn.Parameter]:
        """What is multiplied by A·x: B and, where there is one, the router; (..., r) each."""
        routers = self.layer.hyplora_router
        return [self.up(adapter), *([routers[adapter].weight] if adapter in routers else [])]


class RankAllocator:
    """Lowers the ranks of an adapter while it is trained, those of some layers more than of others.

    >>> allocator = RankAllocator(model, target_rank=4, total_steps=1000)
    >>> for batch in batches:
    ...     model(**batch).loss.backward()
    ...     optimizer.step()
    ...     allocator.step()  # before the gradients are gone
    ...     optimizer.zero_grad()
    >>> ranks = allocator.finish()

    Start with a rank above the target, say one and a half times; it is the *mean* rank of the
    layers that comes down to the target. No layer loses its last component. For transformers'
    Trainer there is `RankAllocationCallback`.

    Args:
        model: what `get_peft_model` has returned.
        target_rank: the mean rank in the end; need not be whole.
        total_steps, warm_up, settle, every: see `RankSchedule`.
        adapter_name: which adapter; the active one if None.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        target_rank: float,
        total_steps: int,
        warm_up: float = 0.1,
        settle: float = 0.3,
        every: int = 10,
        adapter_name: str | None = None,
    ) -> None:
        self.schedule = RankSchedule(total_steps, warm_up, settle, every)
        check_rank(target_rank)
        self.adapter = _adapter(model, adapter_name)
        adapted: Any = model
        self._configs: dict[str, HypLoraConfig] = adapted.peft_config
        tuner: Any = adapted.base_model if hasattr(model, "base_model") else None
        # Of transformers' own add_adapter, the model itself is what was adapted.
        root: nn.Module = tuner.model if isinstance(tuner, HypLoraModel) else model
        if self._configs[self.adapter].variant == "boost":
            raise ValueError(
                'variant="boost" keeps its rank: all components make its time coordinate; use '
                "rotation, simplified or tangent"
            )
        self._of = {
            name: _allotted(name, layer, self.adapter)
            for name, layer in root.named_modules()
            if isinstance(layer, HypLoraLayer) and self.adapter in layer.hyplora_B
        }
        self.before = sum(len(of.keep) for of in self._of.values())
        self.after = round(target_rank * len(self._of))
        if self.after > self.before:
            raise ValueError(
                f"target_rank must be at most the mean rank there is, "
                f"{self.before / len(self._of):g}, got {target_rank}"
            )
        self.steps = 0
        self._settled = self._finished = False

    def start_at(self, step: int) -> None:
        """Go on from that many steps, of a model that was saved then.

        What was dropped is read off the model; importance is measured anew.
        """
        self.steps, self._settled = step, self.schedule.is_settled(step)
        if self.schedule.components(step, self.before, self.after) < self.before:
            for of in self._of.values():
                of.keep = of.up(self.adapter).detach().ne(0).any(0)

    @torch.no_grad()
    def step(self) -> None:
        """After the optimiser's step, before its gradients are gone. Waits for no GPU."""
        self.steps += 1
        # Layers that a batch has not gone through have no gradient.
        seen = [of for of in self._of.values() if of.up(self.adapter).grad is not None]
        if not seen:
            raise ValueError(
                "there are no gradients: call step() after backward(), before zero_grad()"
            )
        for of in seen:
            now = torch.stack([_products(p) for p in of.columns(self.adapter)]).sum(0).abs()
            now = torch.where(now.isfinite(), now, of.importance)  # of a step that was skipped
            of.importance.lerp_(now, 1 - SMOOTHING)
            of.spread.lerp_((now - of.importance).abs(), 1 - SMOOTHING)
        settles = self.schedule.is_settled(self.steps) and not self._settled
        if settles or self.schedule.chooses(self.steps):
            self._choose()
            self._settled = settles
            self._drop()
        elif self._settled:
            self._drop()

    def _choose(self) -> None:
        """Keep the components of the largest scores, over all layers."""
        scores = []
        for of in self._of.values():
            score = of.importance * of.spread
            # No layer loses its last component. scatter_, since an index would wait for the device.
            scores.append(score.scatter_(0, score.argmax(0, keepdim=True), torch.inf))
        together = torch.cat([score.to(scores[0].device) for score in scores])
        count = self.schedule.components(self.steps, self.before, self.after)
        chosen = torch.zeros_like(together, dtype=torch.bool)
        chosen.scatter_(0, together.topk(count).indices, True)
        parts = chosen.split([len(score) for score in scores])
        for of, part in zip(self._of.values(), parts, strict=True):
            of.keep = part.to(of.keep.device)

    def _drop(self) -> None:
        """Zeros for the others. They have gradients still, and may come back."""
        for of in self._of.values():
            for columns in of.columns(self.adapter):
                columns.mul_(of.keep)

    @torch.no_grad()
    def finish(self) -> dict[str, int]:
        """Shrink the adapter's matrices, and write their ranks into its config.

        The update stays what it is: what was dropped and is not 0, because it has come back or
        because a model of before was loaded, is kept, and more ranks than there should be are told
        in a warning. The adapter is then an ordinary one that is saved and loaded as any other.
        Call it when training is over: optimisers hold the matrices of before.

        Returns: the rank of each layer by its name.
        """
        if self._finished:
            raise ValueError("finish() was called already; make a new RankAllocator to go on")
        self._finished = True
        config = copy.deepcopy(self._configs[self.adapter])  # others may have been given the same
        ranks, alphas = {}, {}
        for name, of in self._of.items():
            keep = of.keep | torch.stack([p.ne(0).any(0) for p in of.columns(self.adapter)]).any(0)
            if not bool(keep.any()):
                keep[0] = True
            of.layer.keep_components(self.adapter, keep.nonzero().flatten())
            ranks[name] = rank = int(keep.sum())
            share = rank**0.5 if config.use_rslora else rank
            alphas[name] = of.layer.hyplora_unscaled[self.adapter] * share
        config.rank_pattern, config.alpha_pattern = _as_patterns(ranks), _as_patterns(alphas)
        self._configs[self.adapter] = config
        if (left := sum(ranks.values())) > self.after:
            logger.warning(
                "rank allocation ends with %d components, not %d, after %d of %d steps",
                left,
                self.after,
                self.steps,
                self.schedule.total_steps,
            )
        return ranks


def _products(columns: nn.Parameter) -> Tensor:
    """⟨bᵢ, ∂L/∂bᵢ⟩, (r,)."""
    if columns.grad is None:  # of a router that saw nothing
        return torch.zeros(columns.shape[1], device=columns.device)
    return (columns.float() * columns.grad.float()).sum(0)


def check_rank(target: float) -> None:
    """Raise a `ValueError` for what is no mean rank."""
    number = isinstance(target, int | float) and not isinstance(target, bool)
    if not (number and 1 <= target < float("inf")):
        raise ValueError(f"target_rank must be a number of at least 1, got {target!r}")


def _adapter(model: nn.Module, name: str | None) -> str:
    configs: dict[str, Any] = getattr(model, "peft_config", {})
    if name is None and configs:
        active: Any = model.active_adapters
        active = active() if callable(active) else active  # transformers' own is a method
        if len(active) > 1:
            raise ValueError(f"{', '.join(active)} are active; say which by adapter_name")
        name = str(active[0])
    if name is None or not isinstance(configs.get(name), HypLoraConfig):
        raise ValueError(
            f"there is no HypLoRA adapter {name or ''!r} in this {type(model).__name__}; give what "
            f"get_peft_model returned, and one of its adapters: {sorted(configs)}"
        )
    return name


def _allotted(name: str, layer: Any, adapter: str) -> _Allotted:
    weight = layer.hyplora_B[adapter].weight
    if type(weight) is not nn.Parameter or weight.numel() == 0:
        raise TypeError(
            f"ranks cannot be allocated while B of {name} is in parts on several processes (FSDP, "
            "ZeRO-3); train with DDP or one process"
        )
    if not weight.requires_grad:
        raise ValueError(f"B of {name} is frozen; load the adapter with is_trainable=True")
    zeros = torch.zeros(weight.shape[1], device=weight.device)
    return _Allotted(layer, zeros, zeros.clone(), torch.ones_like(zeros, dtype=torch.bool))


def _as_patterns(values: dict[str, Any]) -> dict[str, Any]:
    """By whole names as regular expressions: one may be the end of another."""
    return {f"^{re.escape(name)}": value for name, value in values.items()}
