"""Trials of a run side by side, in processes that share the machine.

A small model keeps neither a GPU nor many cores busy: most of the time goes into starting kernels.
Several trainings at once fill the gaps. But for rounding, which the number of threads may change, a
trial's numbers do not depend on who trains it: the run finds finished trials afterwards as it would
find those of an earlier attempt.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.reduction import ForkingPickler  # what carries it there
from typing import TYPE_CHECKING, Any

import torch

from beltrami.data.text import DataWarning
from beltrami.recipes.recipe import Arm, Recipe
from beltrami.train.processes import Processes, ProcessLostError
from beltrami.train.progress import ProgressListener

if TYPE_CHECKING:
    from beltrami.recipes.runner import TrialRunner

Shares = Any  # an array of ctypes, which has no type of its own
MakeRunner = Callable[[Recipe[Any, Any], ProgressListener, Processes], "TrialRunner"]
_worker: TrialRunner | Exception | None = None  # of a process that trains for another
_shares: Shares = ()  # of each trial, what is done of it; memory that the processes have in common
LOOKS = 0.5  # seconds between two looks at it


def threads_each(jobs: int) -> int:
    """Threads of each of so many processes, of those that torch has here."""
    return max(1, torch.get_num_threads() // jobs)


def train_side_by_side(
    recipe: Recipe[Any, Any], processes: Processes, listener: ProgressListener, make: MakeRunner
) -> None:
    """Train all trials that are not on disk, and leave them there.

    Args:
        recipe: with `config.jobs` processes to use.
        processes: this one, which trains nothing itself.
        listener: hears of finished trials.
        make: a runner of single trials; importable, as the other processes call it, too.
    """
    jobs = recipe.config.jobs
    context = multiprocessing.get_context("spawn")  # a fork would not survive CUDA
    shares = context.RawArray("d", recipe.trials)
    begin = (make, type(recipe), recipe.config, processes.device, threads_each(jobs), shares)
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(jobs, context, _begin, begin) as pool:
        try:
            _Schedule(
                recipe, make(recipe, ProgressListener(), processes), listener, pool, shares
            ).run()
        except BaseException as error:
            # At once, and not when all that waits is trained; checkpoints are whole at any moment.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            if isinstance(error, BrokenProcessPool):
                raise ProcessLostError(
                    "a process that trained for this run has ended; if memory was short, fewer "
                    "--jobs need less"
                ) from error
            raise


class _Share(ProgressListener):
    """The listener of a trial in another process: stores what share of it is done."""

    def __init__(self, shares: Shares, number: int) -> None:
        self.shares, self.number, self.steps = shares, number, 1

    def on_train_begin(self, name: str, steps: int, done: int) -> None:
        """How many steps it has."""
        self.steps = max(1, steps)
        self.on_step_end(done)

    def on_step_end(self, done: int) -> None:
        """No lock: one process writes, the other may see it late."""
        self.shares[self.number] = done / self.steps


class _Schedule:
    """Which trials are asked for when: all choices of a first seed, then the best one's others.

    Where there is only one choice, the others wait for nothing.
    """

    def __init__(
        self,
        recipe: Recipe[Any, Any],
        runner: TrialRunner,
        listener: ProgressListener,
        pool: ProcessPoolExecutor,
        shares: Shares,
    ) -> None:
        self.recipe, self.shares, self.submitted = recipe, shares, 0
        self.arms = list(recipe.arms())
        self.seeds = recipe.config.seeds
        self.runner, self.listener, self.pool = runner, listener, pool
        self.running: dict[Future[None], tuple[int, Mapping[str, Any], int, int]] = {}
        self.left = [len(c.choices) for c in self.arms]  # of the first seed

    def run(self) -> None:
        self.listener.on_run_begin(self.recipe.trials)
        for place, arm in enumerate(self.arms):
            if arm.choice_of:
                continue  # waits for that model's choice
            for choice in arm.choices:
                self._ask(place, choice, 0)
            if len(arm.choices) == 1:
                self._ask_others(place, arm.choices[0])
        while self.running:
            for future in wait(self.running, timeout=LOOKS, return_when=FIRST_COMPLETED).done:
                place, choice, seed, _ = self.running.pop(future)
                future.result()
                result = self.runner.on_disk(self.arms[place], choice, seed)
                if result is None:
                    raise OSError(f"cannot read back what was trained: {self.runner.folder.path}")
                self.listener.on_trial_end(result, False)
                self._done(place, seed)
            self.listener.on_parallel_progress(
                sum(self.shares[n] for *_, n in self.running.values())
            )

    def _ask(self, place: int, choice: Mapping[str, Any], seed: int) -> None:
        arm = self.arms[place]
        if (known := self.runner.on_disk(arm, choice, seed)) is not None:
            self.listener.on_trial_end(known, True)
            self._done(place, seed)
            return
        may_diverge = seed == 0 and len(arm.choices) > 1 and not arm.choice_of
        future = self.pool.submit(_train, place, dict(choice), seed, may_diverge, self.submitted)
        self.running[future] = place, choice, seed, self.submitted
        self.submitted += 1

    def _done(self, place: int, seed: int) -> None:
        arm = self.arms[place]
        if seed > 0 or len(arm.choices) == 1 or arm.choice_of:
            return
        self.left[place] -= 1
        if self.left[place] == 0:
            self._ask_others(place, self.runner.choose(arm).trial.choice)

    def _ask_others(self, place: int, best: Mapping[str, Any]) -> None:
        for other in range(1, self.seeds):
            self._ask(place, best, other)
        chosen = self.arms[place]
        for at, arm in enumerate(self.arms):
            if (arm.group, arm.choice_of) == (chosen.group, chosen.model):
                for seed in range(self.seeds):
                    self._ask(at, best, seed)


def _begin(
    make: MakeRunner,
    kind: type[Recipe[Any, Any]],
    config: Any,
    device: torch.device,
    threads: int,
    shares: Shares,
) -> None:
    """Set up a process; its first trial raises what goes wrong."""
    global _worker, _shares
    _shares = shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process hears it, and ends us
    threading.Thread(target=_end_with_the_first, daemon=True).start()
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore", DataWarning)  # the first process has printed it
    try:
        recipe = kind(config)
        recipe.prepare(ProgressListener(), device)
        _worker = make(recipe, ProgressListener(), Processes(device))
    except Exception as error:
        _worker = error


def _end_with_the_first() -> None:
    """A process that was killed cannot end us; nobody waits for what we train then."""
    first = multiprocessing.parent_process()
    if first is not None:
        first.join()
        os._exit(1)


def _train(place: int, choice: dict[str, Any], seed: int, may_diverge: bool, number: int) -> None:
    if isinstance(_worker, Exception):
        raise _sendable(_worker)
    assert _worker is not None
    arm: Arm[Any] = list(_worker.recipe.arms())[place]
    _worker.listener = _Share(_shares, number)
    try:
        _worker.train(arm, choice, seed, may_diverge=may_diverge)
    except Exception as error:
        raise _sendable(error) from error


def _sendable(error: Exception) -> Exception:
    """The error itself if it survives the way to another process, else what it says."""
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
