"""Who follows a run: the command line's progress bar, a notebook, a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from beltrami.recipes.outcome import TrialResult
    from beltrami.recipes.recipe import Trial


class Observer(Protocol):
    """What a run tells while it works."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def started(self, trials: int) -> None:
        """So many trials will be needed."""

    def training(self, trial: Trial, steps: int, done: int) -> None:
        """A trial of `steps` steps begins, of which `done` were made before."""

    def stepped(self, done: int) -> None:
        """The current trial has made `done` steps."""

    def side_by_side(self, parts: float) -> None:
        """Trials that are trained at once have come so far, all together: 1 would be a whole."""

    def finished(self, result: TrialResult, reused: bool) -> None:
        """A trial is done, or was found finished on disk."""


class Silence:
    """The observer that says nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def started(self, trials: int) -> None:
        """Say nothing."""

    def training(self, trial: Trial, steps: int, done: int) -> None:
        """Say nothing."""

    def stepped(self, done: int) -> None:
        """Say nothing."""

    def side_by_side(self, parts: float) -> None:
        """Say nothing."""

    def finished(self, result: TrialResult, reused: bool) -> None:
        """Say nothing."""
