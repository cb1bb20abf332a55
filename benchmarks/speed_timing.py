"""Timing on one CPU thread: process time, competitors in turn, the minimum over the rounds.

Taking turns makes a busy machine hit all alike, and the minimum is what is left when it is quiet.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch._dynamo.utils import counters

from beltrami.analysis.saved_memory import saved_bytes
from benchmarks.speed_cases import Competitor, Operation

MODES = ("eager", "compiled")
PASSES = ("forward", "forward+backward")
# A competitor that has had this many seconds, and three turns, needs no more of them.
_ENOUGH_SECONDS = 4.0
_FEWEST_ROUNDS = 3
# Forward and backward hold about this many times what forward saves.
_PEAK_OVER_SAVED = 2.5


@dataclass(frozen=True)
class Timing:
    """One competitor in one mode; times in ms, None where it could not run."""

    model: str
    name: str
    shape: str
    library: str
    mode: str
    forward: float | None
    both: float | None
    saved: int | None
    note: str = ""

    def time(self, which: str) -> float | None:
        """Milliseconds of one of `PASSES`."""
        return self.forward if which == "forward" else self.both


class _Runner:
    """A competitor in one mode, ready to be timed."""

    def __init__(self, competitor: Competitor, mode: str) -> None:
        self.competitor, self.mode = competitor, mode
        self.function = competitor.function
        self.note = ""
        self.best = dict.fromkeys(PASSES, math.inf)
        self.spent = 0.0
        self.saved: int | None = None
        self.inputs = [t.clone().requires_grad_() for t in competitor.inputs]
        self.cotangent = torch.empty(0)

    def prepare(self) -> bool:
        """Compile, run once each way, count saved bytes; False where it cannot run."""
        if self.mode == "compiled":
            counters.clear()
            self.function = torch.compile(
                self.competitor.function, fullgraph=self.competitor.fullgraph, dynamic=False
            )
        try:
            self.forward()
            self.saved, out = saved_bytes(lambda: self.function(*self.inputs), besides=self.inputs)
            self.cotangent = torch.ones_like(out)
            del out
            self.both()
        except MemoryError as error:
            self.note = str(error)
            return False
        except Exception as error:  # a peer that does not compile is a result, not a crash
            if self.competitor.fullgraph:
                raise
            self.note = f"{type(error).__name__}"
            return False
        breaks = sum(counters["graph_break"].values()) if self.mode == "compiled" else 0
        if breaks:
            self.note = "graph breaks"
        return True

    def forward(self) -> None:
        with torch.no_grad():
            self.function(*self.inputs)

    def both(self) -> None:
        out = self.function(*self.inputs)
        torch.autograd.grad(out, self.inputs, self.cotangent, allow_unused=True)

    def lap(self) -> None:
        steps: dict[str, Callable[[], None]] = {PASSES[0]: self.forward, PASSES[1]: self.both}
        for which, step in steps.items():
            start = time.process_time()
            step()
            seconds = time.process_time() - start
            self.spent += seconds
            self.best[which] = min(self.best[which], seconds)

    def timing(self, op: Operation, ran: bool) -> Timing:
        forward, both = (1e3 * self.best[w] if ran else None for w in PASSES)
        return Timing(
            op.model, op.name, op.shape, self.competitor.library, self.mode,
            forward, both, self.saved, self.note,
        )  # fmt: skip


def available_memory() -> float:
    """Bytes the system can still give; infinite where it does not say."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable"):
                return 1024.0 * int(line.split()[1])
    return math.inf


def _fits(competitor: Competitor, op: Operation) -> str:
    """Why an all-pairs competitor would not fit into memory, judged from a small problem."""
    if op.name != "pairwise_dist":
        return ""
    small = 64
    rows = competitor.inputs[0].shape[0]
    inputs = [t[:small].clone().requires_grad_() for t in competitor.inputs]
    saved, _ = saved_bytes(lambda: competitor.function(*inputs), besides=inputs)
    need = _PEAK_OVER_SAVED * saved * (rows / small) ** 2
    return f"needs about {need / 2**30:.0f} GiB" if need > 0.8 * available_memory() else ""


def time_operation(op: Operation, rounds: int, tick: Callable[[str], None]) -> list[Timing]:
    """Timings of all competitors of an operation in both modes."""
    torch._dynamo.reset()
    runners, done = [], []
    for competitor in op.competitors:
        too_large = _fits(competitor, op)
        for mode in MODES:
            runner = _Runner(competitor, mode)
            tick(f"{op.title}: {competitor.library}, {mode}")
            runner.note = too_large
            ran = not too_large and runner.prepare()
            done.append((runner, ran))
            if ran:
                runners.append(runner)
    gc.collect()
    for i in range(rounds):
        tick(f"{op.title}: round {i + 1} of {rounds}")
        for runner in runners:
            if i < _FEWEST_ROUNDS or runner.spent < _ENOUGH_SECONDS:
                runner.lap()
    return [runner.timing(op, ran) for runner, ran in done]
