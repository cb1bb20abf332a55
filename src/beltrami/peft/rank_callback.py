"""Rank allocation in transformers' Trainer."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from beltrami.peft.rank_allocation import RankAllocator, RankSchedule, check_rank


class RankAllocationCallback(TrainerCallback):
    """Lowers the ranks of a HypLoRA adapter while a Trainer trains it; see `RankAllocator`.

    >>> trainer = Trainer(model, args, train_dataset=data, callbacks=[RankAllocationCallback(4)])

    When training is over the matrices have their lower ranks, and `save_model` saves those.

    Args:
        target_rank: the mean rank in the end.
        warm_up, settle, every: see `RankSchedule`.
        adapter_name: which adapter; the active one if None.
    """

    def __init__(
        self,
        target_rank: float,
        *,
        warm_up: float = 0.1,
        settle: float = 0.3,
        every: int = 10,
        adapter_name: str | None = None,
    ) -> None:
        check_rank(target_rank)  # what is bad is refused here, not when training starts
        RankSchedule(1, warm_up, settle, every)
        self._options: dict[str, Any] = {
            "target_rank": target_rank,
            "warm_up": warm_up,
            "settle": settle,
            "every": every,
            "adapter_name": adapter_name,
        }
        self.allocator: RankAllocator | None = None
        self.ranks: dict[str, int] = {}

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        """Steps are counted from where a resumed training was."""
        assert model is not None
        if self.ranks:
            raise ValueError(
                "this Trainer's optimiser has the matrices of before the ranks came down, and "
                "would train nothing; make a new Trainer"
            )
        self.allocator = RankAllocator(model, total_steps=state.max_steps, **self._options)
        self.allocator.start_at(state.global_step)

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Its gradients are still there."""
        assert self.allocator is not None
        self.allocator.step()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Makes the matrices smaller."""
        assert self.allocator is not None
        self.ranks = self.allocator.finish()
