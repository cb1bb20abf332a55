"""The state of a model where its validation score was best."""

from __future__ import annotations

from typing import Any

from torch import nn


class BestState:
    """The state of a module at its highest validation score so far; a part of checkpoints.

    >>> best = BestState(model)
    >>> best.update(score, step)
    >>> best.restore()

    Attributes:
        score, step: the highest score, and the step at which it was measured.
        steps, scores: every measurement so far.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._state: dict[str, Any] = {}
        self.score = float("-inf")
        self.step = 0
        self.steps: list[int] = []
        self.scores: list[float] = []

    def update(self, score: float, step: int) -> None:
        """Copy the module's state if `score` is higher than all before."""
        self.steps.append(step)
        self.scores.append(score)
        if score > self.score:
            self.score, self.step = score, step
            self._state = {key: value.clone() for key, value in self._module.state_dict().items()}

    def restore(self) -> None:
        """Load the best state into the module; nothing happens where no score was given."""
        if self._state:
            self._module.load_state_dict(self._state)

    def state_dict(self) -> dict[str, Any]:
        """Score, step and the module's state there, and all measurements."""
        return {
            "score": self.score,
            "step": self.step,
            "module": self._state,
            "steps": list(self.steps),
            "scores": list(self.scores),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self.score, self.step = state_dict["score"], state_dict["step"]
        self._state = state_dict["module"]
        self.steps, self.scores = list(state_dict["steps"]), list(state_dict["scores"])
