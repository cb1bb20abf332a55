"""The listener that follows a run: the command line's progress bar, a notebook, a test."""

from __future__ import annotations

from typing import Any


class ProgressListener:
    """Callbacks of a run; each does nothing. A subclass overrides what it wants to hear."""

    def note(self, text: str) -> None:
        """Called with something that the user should know."""

    def on_run_begin(self, trials: int) -> None:
        """Called once, with the number of trials that the run needs."""

    def on_train_begin(self, name: str, steps: int, done: int) -> None:
        """Called when a training of `steps` steps begins, of which `done` were made before."""

    def on_step_end(self, done: int) -> None:
        """Called when the current training has made `done` steps; not for each of many steps."""

    def on_parallel_progress(self, trials: float) -> None:
        """Called with how many trials those trained side by side make up together, such as 1.7."""

    def on_trial_end(self, result: Any, reused: bool) -> None:
        """Called with each trial's result; `reused` if it was found finished on disk."""
