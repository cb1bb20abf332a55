"""Where the time of an adapter goes: how long kernels run, how many there are, and which.

`python -m benchmarks.adapters_kernels --device cuda --only "step 4096x4096 r32"` prints, for every
competitor in every mode, the time of a pass beside the time in which the GPU was busy: what is
between them is waiting for kernels to be started. On a CPU it is operations instead of kernels.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from benchmarks import adapters_cases, timings
from benchmarks.adapters_cases import COMPARED, Case
from benchmarks.adapters_timing import Runner
from benchmarks.command import execute

PROFILED = 5  # passes


@dataclass(frozen=True)
class Options:
    """Show which kernels adapters start, and how long they run."""

    device: Literal["cpu", "cuda"] = "cuda"
    """Where."""
    only: str = ""
    """Part of a problem's title, such as "step 4096x4096 r32" or "model"; all without."""
    competitors: tuple[str, ...] = COMPARED
    """Whose."""
    rounds: int = 9
    """How often each is timed; the median is shown."""
    shown: int = 8
    """Kernels to name, those that run longest."""
    quick: bool = False
    """Tiny problems, to see that it runs."""


@dataclass(frozen=True)
class Profile:
    """Of one pass.

    Args:
        milliseconds: median of the passes. busy: of which kernels ran.
        kernels: name, how often and milliseconds, the longest first.
    """

    competitor: str
    mode: str
    milliseconds: float
    busy: float
    kernels: tuple[tuple[str, float, float], ...]


def measured(case: Case, competitor: str, mode: str, rounds: int) -> Profile:
    """Time a competitor, then look at what it starts."""
    torch._dynamo.reset()
    runner = Runner(case, competitor, mode)
    runner.prepare()
    for _ in range(rounds):
        runner.lap()
    gpu = runner.device == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as found:
        for _ in range(PROFILED):
            runner.step()
        if gpu:
            torch.cuda.synchronize()
    kernels = []
    for event in found.key_averages():
        micro = event.self_device_time_total if gpu else event.self_cpu_time_total
        if micro > 0:
            kernels.append((event.key, event.count / PROFILED, micro / 1e3 / PROFILED))
    kernels.sort(key=lambda kernel: -kernel[2])
    busy = sum(ms for _, _, ms in kernels)
    return Profile(competitor, mode, statistics.median(runner.times), busy, tuple(kernels))


def table(title: str, profiles: Iterable[Profile], shown: int) -> Table:
    """A row a competitor and mode, and one for each of its longest kernels."""
    rows = Table(title=title, title_justify="left")
    for name in ("who, or kernel", "times a pass", "ms a pass", "ms busy"):
        rows.add_column(name, justify="left" if name.startswith("who") else "right")
    for one in profiles:
        count = sum(times for _, times, _ in one.kernels)
        rows.add_row(
            f"{one.competitor}, {one.mode}",
            f"{count:.0f}",
            f"{one.milliseconds:.3f}",
            f"{one.busy:.3f}",
            style="bold",
        )
        for name, times, ms in one.kernels[:shown]:
            rows.add_row(f"  {name[:90]}", f"{times:.0f}", "", f"{ms:.3f}")
    return rows


def run(options: Options) -> int:
    if (obstacle := timings.obstacle(options)) is not None:
        print(obstacle, file=sys.stderr)
        return 2
    problems = adapters_cases.problems(options.device, options.quick)
    chosen = [p for p in problems if options.only in p.title]
    if not chosen:
        titles = ", ".join(p.title for p in problems)
        print(f"no problem has {options.only!r} in its title: {titles}", file=sys.stderr)
        return 2
    console = Console()
    for problem in chosen:
        case = adapters_cases.build(problem, options.device)
        unknown = [name for name in options.competitors if name not in case.builders]
        if unknown:
            names = ", ".join(case.builders)
            print(f"{problem.title} has no {', '.join(unknown)}: {names}", file=sys.stderr)
            return 2
        turns = [(name, mode) for mode in problem.modes for name in options.competitors]
        found = [measured(case, *turn, options.rounds) for turn in turns]
        console.print(table(problem.title, found, options.shown))
    return 0


if __name__ == "__main__":
    execute(run, Options)
