"""Trials of a run side by side, in processes that share the machine.

A small model keeps neither a GPU nor many cores busy: most of the time goes into starting kernels.
Several trainings at once fill the gaps. But for rounding, which the number of threads may change, a
trial's numbers do not depend on who trains it: the run finds finished trials afterwards as it would
find those of an earlier attempt.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

import torch

from beltrami.recipes.observer import Observer, Silence
from beltrami.recipes.processes import Processes, ProcessLostError
from beltrami.recipes.recipe import Contestant, Recipe

if TYPE_CHECKING:
    from beltrami.recipes.runner import TrialRunner

MakeRunner = Callable[[Recipe[Any], Observer, Processes], "TrialRunner"]
_worker: TrialRunner | None = None  # of a process that trains for another


def train_side_by_side(
    recipe: Recipe[Any], processes: Processes, observer: Observer, make: MakeRunner
) -> None:
    """Train all trials that are not on disk, and leave them there.

    Args:
        recipe: with `config.jobs` processes to use.
        processes: this one, which trains nothing itself.
        observer: hears of finished trials.
        make: a runner of single trials; importable, as the other processes call it, too.
    """
    contestants = list(recipe.contestants())
    runner = make(recipe, Silence(), processes)
    seeds, jobs = recipe.config.seeds, recipe.config.jobs
    observer.started(sum(len(c.choices) + seeds - 1 for c in contestants))
    context = multiprocessing.get_context("spawn")  # a fork would not survive CUDA
    begin = (make, type(recipe), recipe.config, processes.device)
    with _ended(), ProcessPoolExecutor(jobs, context, _begin, begin) as pool:
        running: dict[Future[None], tuple[int, Mapping[str, Any], int]] = {}
        left = [len(c.choices) for c in contestants]  # of the first seed

        def ask(place: int, choice: Mapping[str, Any], seed: int) -> None:
            contestant = contestants[place]
            if (known := runner.on_disk(contestant, choice, seed)) is not None:
                observer.finished(known, True)
                done(place, seed)
                return
            may_diverge = seed == 0 and len(contestant.choices) > 1
            future = pool.submit(_train, place, dict(choice), seed, may_diverge)
            running[future] = place, choice, seed

        def done(place: int, seed: int) -> None:
            if seed == 0:
                left[place] -= 1
                if left[place] == 0:  # all of its choices: now the best has its other seeds
                    best = runner.choose(contestants[place]).trial.choice
                    for other in range(1, seeds):
                        ask(place, best, other)

        for place, contestant in enumerate(contestants):
            for choice in contestant.choices:
                ask(place, choice, 0)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                place, choice, seed = running.pop(future)
                try:
                    future.result()
                except BrokenProcessPool as error:
                    raise ProcessLostError(
                        "a process that trained for this run has ended; fewer --jobs need less "
                        "memory"
                    ) from error
                found = runner.on_disk(contestants[place], choice, seed)
                if found is None:
                    raise OSError(f"cannot read back what was trained: {recipe.config.folder}")
                observer.finished(found, False)
                done(place, seed)


@contextlib.contextmanager
def _ended() -> Iterator[None]:
    """End the processes at once where something went wrong; checkpoints are whole at any moment."""
    before = set(multiprocessing.active_children())
    try:
        yield
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise


def _begin(make: MakeRunner, kind: type[Recipe[Any]], config: Any, device: torch.device) -> None:
    """What a process does first."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process hears it, and ends us
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // config.jobs))
    recipe = kind(config)
    recipe.prepare(Silence(), device)
    _worker = make(recipe, Silence(), Processes(device))


def _train(place: int, choice: dict[str, Any], seed: int, may_diverge: bool) -> None:
    assert _worker is not None
    contestant: Contestant = list(_worker.recipe.contestants())[place]
    _worker.train(contestant, choice, seed, may_diverge=may_diverge)
