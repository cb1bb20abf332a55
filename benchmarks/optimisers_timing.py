"""One step of an optimiser, competitors in turn: process time on a CPU, events on a GPU.

Taking turns, in alternating order, makes a busy machine hit all alike; every round is kept.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from benchmarks.layers_timing import no_hidden_waits
from benchmarks.optimisers_cases import COMPILED, Case, Competitor, Tables

COPY = "device copy"
_WARM_UP = 3
# Steps between two events on a GPU.
_STEPS_A_LAP = 5
# The GPU is kept busy for this many cycles while a lap is handed to it, so that events time the
# device and not the host, whose time is taken too.
_BUSY_CYCLES = 20_000_000


@dataclass(frozen=True)
class Timing:
    """One competitor: milliseconds of a step in every round, and bytes.

    `state` is what the optimiser keeps. `moved` is the least a step can read and write: parameters
    and state both ways, gradients one way. On a GPU, `host` is the milliseconds for which Python
    works on a step. Without times, `note` says why.
    """

    case: str
    shape: str
    competitor: str
    mode: str
    times: tuple[float, ...]
    state: int = 0
    moved: int = 0
    host: float | None = None
    note: str = ""

    @property
    def best(self) -> float:
        """The quickest round."""
        return min(self.times)

    @property
    def median(self) -> float:
        """The middle round."""
        return statistics.median(self.times)

    @property
    def bandwidth(self) -> float:
        """Bytes a second, counting those that have to be moved."""
        return 1e3 * self.moved / self.median


class Runner:
    """A competitor, ready to be timed."""

    def __init__(self, case: Case, competitor: Competitor, device: str) -> None:
        self.case, self.competitor, self.device = case, competitor, device
        self.times: list[float] = []
        self.hosts: list[float] = []
        self.note = ""
        self.state = self.moved = 0
        self.step: Callable[[], object] = lambda: None

    def prepare(self) -> bool:
        """Build, compile, warm up, count bytes; False where it cannot run."""
        try:
            optimizer = self.competitor.build(self.case.tables, self.device)
            step = optimizer.step
            self.step = torch.compile(step) if self.competitor.mode == COMPILED else step
            for _ in range(_WARM_UP):
                self.step()
        except ImportError as error:
            if not self.competitor.peer:
                raise
            self.note = f"{error.name} is not installed"
            return False
        except Exception as error:  # a peer that does not run is a result, not a crash
            if not self.competitor.peer:
                raise
            self.note = type(error).__name__
            return False
        self.state, self.moved = count_bytes(optimizer)
        return True

    def lap(self) -> None:
        """One turn."""
        if self.device == "cuda":
            device, host = lap_cuda(self.step)
            self.times.append(device)
            self.hosts.append(host)
        else:
            start = time.process_time()
            self.step()
            self.times.append(1e3 * (time.process_time() - start))

    def timing(self) -> Timing:
        """All turns."""
        host = statistics.median(self.hosts) if self.hosts else None
        return Timing(
            self.case.name, self.case.tables.shape, self.competitor.name, self.competitor.mode,
            tuple(self.times), self.state, self.moved, host, self.note,
        )  # fmt: skip


def lap_cuda(step: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of a step on the device and on the host; that it waits is an error."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    with no_hidden_waits():
        torch.cuda._sleep(_BUSY_CYCLES)
        begin.record()
        start = time.perf_counter()
        for _ in range(_STEPS_A_LAP):
            step()
        host = time.perf_counter() - start
        end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / _STEPS_A_LAP, 1e3 * host / _STEPS_A_LAP


def count_bytes(optimizer: Optimizer) -> tuple[int, int]:
    """Bytes of the state, and the least that a step moves."""
    state = moved = 0
    for group in optimizer.param_groups:
        for p in group["params"]:
            # The count of steps, one number a table, is left out.
            kept = [t for t in optimizer.state[p].values() if isinstance(t, Tensor) and t.ndim]
            own = sum(t.nbytes for t in kept)
            state += own
            moved += 2 * own + 2 * p.nbytes + p.grad.nbytes
    return state, moved


def copier(tables: Tables) -> Callable[[], Tensor]:
    """A copy on the device, the fastest way to move bytes there is."""
    source = torch.randn(tables.count * tables.rows, tables.width, device="cuda").to(tables.dtype)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def time_case(case: Case, rounds: int, device: str, tick: Callable[[str], None]) -> list[Timing]:
    """Timings of all competitors of a case; on a GPU, of a copy too."""
    torch._dynamo.reset()
    runners, ready = [], []
    for competitor in case.competitors:
        tick(f"{case.name}: {competitor.name}, {competitor.mode}")
        runner = Runner(case, competitor, device)
        runners.append(runner)
        if runner.prepare():
            ready.append(runner)
    copy = copier(case.tables) if device == "cuda" else None
    copies: list[float] = []
    gc.collect()
    for i in range(rounds):
        tick(f"{case.name}: round {i + 1} of {rounds}")
        if copy is not None:
            copies.append(lap_cuda(copy)[0])
        for runner in ready if i % 2 == 0 else reversed(ready):
            runner.lap()
    timings = [runner.timing() for runner in runners]
    if copies:
        n = case.tables
        moved = 2 * n.count * n.rows * n.width * n.dtype.itemsize
        timings.append(Timing(case.name, n.shape, COPY, "", tuple(copies), 0, moved))
    return timings
