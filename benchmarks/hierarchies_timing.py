"""Pairs a second in turns, and how far each competitor comes in a given time.

Process CPU time of one thread. Taking turns, in alternating order, makes a busy machine hit all
alike; every round is kept.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from beltrami import analysis as measures
from benchmarks.hierarchies_cases import Competitor, Problem, Trainer

Tick = Callable[[str], None]


@dataclass(frozen=True)
class Speed:
    """One competitor: pairs a second in every round. Without rounds, `note` says why."""

    competitor: str
    how: str
    rates: tuple[float, ...]
    note: str = ""

    @property
    def median(self) -> float:
        """The middle round."""
        return statistics.median(self.rates)


@dataclass(frozen=True)
class Finish:
    """Where one competitor with one seed is after a budget of CPU-seconds; `seconds` it took.

    Without a result, `note` says why.
    """

    competitor: str
    how: str
    budget: float
    seed: int
    seconds: float = math.nan
    epochs: float = math.nan
    map: float = math.nan
    mean_rank: float = math.nan
    note: str = ""


def build(
    competitor: Competitor, problem: Problem, seed: int, epochs: float
) -> tuple[Trainer | None, str]:
    """A trainer, or why there is none."""
    try:
        trainer = competitor.build(problem, seed, epochs)
    except ImportError as error:
        if not competitor.peer:
            raise
        return None, f"{error.name} is not installed"
    return trainer, ""


def time_laps(
    problem: Problem, competitors: Sequence[Competitor], rounds: int, tick: Tick
) -> list[Speed]:
    """Pairs a second of all competitors, after a lap that does not count."""
    notes: dict[int, str] = {}
    ready: dict[int, Trainer] = {}
    rates: dict[int, list[float]] = {i: [] for i in range(len(competitors))}
    for i, competitor in enumerate(competitors):
        tick(f"{competitor.name}: first lap")
        trainer, notes[i] = build(competitor, problem, 0, math.inf)
        if trainer is not None and not _lap(competitor, trainer, rates[i], notes, i):
            rates[i].clear()
            ready[i] = trainer
    gc.collect()
    for turn in range(rounds):
        tick(f"round {turn + 1} of {rounds}")
        for i in list(ready) if turn % 2 == 0 else list(reversed(ready)):
            if _lap(competitors[i], ready[i], rates[i], notes, i):
                del ready[i]
    return [
        Speed(c.name, c.how, () if notes[i] else tuple(rates[i]), notes[i])
        for i, c in enumerate(competitors)
    ]


def _lap(
    competitor: Competitor, trainer: Trainer, rates: list[float], notes: dict[int, str], i: int
) -> str:
    """Time a lap after the burn-in; returns what went wrong."""
    start = time.process_time()
    try:
        pairs = trainer.lap(0.5)
    except Exception as error:  # a peer that does not run is a result, not a crash
        if not competitor.peer:
            raise
        notes[i] = type(error).__name__
        return notes[i]
    rates.append(pairs / (time.process_time() - start))
    return ""


def race(problem: Problem, competitor: Competitor, seed: int, budget: float, rate: float) -> Finish:
    """Train for `budget` CPU-seconds and measure; `rate` is the known number of pairs a second."""
    found = Finish(competitor.name, competitor.how, budget, seed)
    trainer, note = build(competitor, problem, seed, budget * rate / problem.pairs)
    if trainer is None:
        return _with(found, note=note)
    start, pairs, used = time.process_time(), 0, 0.0
    try:
        while used < budget:
            seen = trainer.lap(used / budget)
            pairs += seen
            before, used = used, time.process_time() - start
            # Laps are whole: none is begun of which less than half would lie within the budget.
            if trainer.finished or used + (used - before) / 2 > budget:
                break
        points, manifold = trainer.points()
        if not torch.isfinite(points).all():
            return _with(found, note="points are not finite")
        result = measures.reconstruct_points(points, manifold, problem.relation.pairs)
    except Exception as error:  # a peer that does not run is a result, not a crash
        if not competitor.peer:
            raise
        return _with(found, note=type(error).__name__)
    return _with(
        found,
        seconds=used,
        epochs=pairs / problem.pairs,
        map=result.map,
        mean_rank=result.mean_rank,
    )


def _with(finish: Finish, **values: float | str) -> Finish:
    return Finish(**{**vars(finish), **values})  # type: ignore[arg-type]


def race_all(
    problem: Problem,
    competitors: Sequence[Competitor],
    speeds: Sequence[Speed],
    budgets: Sequence[float],
    seeds: int,
    tick: Tick,
) -> list[Finish]:
    """All budgets, competitors and seeds; who could not be timed is not raced."""
    found = []
    for budget in budgets:
        for competitor, speed in zip(competitors, speeds, strict=True):
            for seed in range(min(seeds, competitor.seeds)):
                tick(f"{competitor.name}, seed {seed}: {budget:g} CPU-seconds")
                if speed.note:
                    finish = Finish(competitor.name, competitor.how, budget, seed, note=speed.note)
                else:
                    finish = race(problem, competitor, seed, budget, speed.median)
                found.append(finish)
    return found
