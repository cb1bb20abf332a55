"""Where validation was best: the part of a training that decides when it should have stopped."""

from __future__ import annotations

from typing import Any

from torch import nn

from beltrami.recipes.processes import Processes


class Best:
    """The state of a module at its highest validation score so far; a part for checkpoints.

    >>> best = Best(model)
    >>> session.begin(steps, model=model, optimizer=optimizer, best=best)
    ...     best.see(score, step)
    >>> best.restore()
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._state: dict[str, Any] = {}
        self.score = float("-inf")
        self.step = 0

    def see(self, score: float, step: int) -> None:
        """Keep the module as it is now if `score` is higher than all before."""
        if score > self.score:
            self.score, self.step = score, step
            self._state = {key: value.clone() for key, value in self._module.state_dict().items()}

    def restore(self) -> None:
        """Give the module its best state back; nothing where no score was seen."""
        if self._state:
            self._module.load_state_dict(self._state)

    def state_dict(self) -> dict[str, Any]:
        """Score, step and the module's state there."""
        return {"score": self.score, "step": self.step, "module": self._state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them on."""
        self.score, self.step = state_dict["score"], state_dict["step"]
        self._state = state_dict["module"]


def agreed(processes: Processes, scores: dict[str, float]) -> dict[str, float]:
    """Scores as the mean over processes, so that all of them decide alike.

    Each process computes them of the same model and data, but on a GPU sums may come in another
    order, and then a tie might be broken in two ways.
    """
    if processes.count == 1:
        return scores
    import torch

    values = torch.tensor(list(scores.values()), dtype=torch.float64, device=processes.device)
    mean = processes.sum(values) / processes.count
    return dict(zip(scores, mean.tolist(), strict=True))
