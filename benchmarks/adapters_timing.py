"""A pass through an adapted layer, competitors in turn: process time on a CPU, events on a GPU.

Taking turns, in alternating order, makes a busy machine hit all alike; every round is kept.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable

import torch
from torch import Tensor

from beltrami.analysis.saved_memory import saved_bytes
from benchmarks.adapters_cases import (
    COMPARED,
    DORA,
    EAGER,
    GRAPHS,
    LORA,
    MODEL,
    TOKEN,
    Case,
    compiled,
)
from benchmarks.layers_timing import Timing, no_hidden_waits

_WARM_UP = 2
_RECORDED_WARM_UP = 5  # a graph is recorded in the second pass or later
# Above torch's 8, at which it would fall back to eager: with graph breaks, one function is compiled
# for every shape in a model.
_RECOMPILE_LIMIT = 64
# Passes between two looks at the clock.
_STEPS = {("cuda", TOKEN): 20, ("cuda", MODEL): 1, ("cpu", TOKEN): 10}
_USUAL_STEPS = {"cuda": 3, "cpu": 1}


class Runner:
    """A competitor in one mode, ready to be timed."""

    def __init__(self, case: Case, competitor: str, mode: str) -> None:
        self.case, self.competitor, self.mode = case, competitor, mode
        self.module = case.builders[competitor]()
        # Graph breaks, recompilations and waits of PEFT and transformers are theirs.
        self.strict = competitor not in (LORA, DORA)
        self.guarded = self.strict and case.problem.kind != MODEL
        self.function: Callable[..., Tensor] = self.module
        if mode != EAGER:
            recorded = mode == GRAPHS
            self.function = compiled(self.module, whole=self.guarded, recorded=recorded)
        self.device = case.inputs.device.type
        self.steps = _STEPS.get((self.device, case.problem.kind), _USUAL_STEPS[self.device])
        leaves = [*self.module.parameters(), case.inputs]
        self.leaves = [t for t in leaves if t.requires_grad]
        self.cotangent: Tensor | None = None
        self.times: list[float] = []
        self.saved = 0
        self.peak: int | None = None

    def prepare(self) -> None:
        """Compile, warm up, count bytes."""
        limits = {"recompile_limit": _RECOMPILE_LIMIT, "fail_on_recompile_limit_hit": self.strict}
        with torch._dynamo.config.patch(limits):
            if self.case.problem.backward:
                self.cotangent = torch.randn_like(self.function(self.case.inputs))
            for _ in range(_RECORDED_WARM_UP if self.mode == GRAPHS else _WARM_UP):
                self.step()
        if self.case.problem.backward:
            self.saved = self._saved()
        if self.device == "cuda" and self.mode != GRAPHS:  # whose memory is reserved before
            self.peak = self._peak()

    def _saved(self) -> int:
        """Whatever is kept and is not a parameter, the input too."""
        known = [*self.module.parameters(), *self.module.buffers()]
        # Or what counts the bytes would be compiled, too, where a competitor has graph breaks.
        with torch.compiler.set_stance("eager_on_recompile"):
            return saved_bytes(lambda: self.function(self.case.inputs), besides=known)[0]

    def step(self) -> None:
        """Once forward, and backward where that is the problem."""
        if self.mode == GRAPHS:
            torch.compiler.cudagraph_mark_step_begin()  # what the last one gave may be overwritten
        if not self.case.problem.backward:
            with torch.inference_mode():
                self.function(self.case.inputs)
            return
        self.function(self.case.inputs).backward(self.cotangent)
        for leaf in self.leaves:
            leaf.grad = None

    def lap(self) -> None:
        """One turn."""
        self.times.append(self._lap_cuda() if self.device == "cuda" else self._lap_cpu())

    def _lap_cpu(self) -> float:
        start = time.process_time()
        for _ in range(self.steps):
            self.step()
        return 1e3 * (time.process_time() - start) / self.steps

    def _lap_cuda(self) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        with no_hidden_waits() if self.guarded else contextlib.nullcontext():
            begin.record()
            for _ in range(self.steps):
                self.step()
            end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / self.steps

    def _peak(self) -> int:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    def timing(self) -> Timing:
        """All turns."""
        n = self.case.problem
        times = tuple(self.times)
        return Timing(n.kind, n.shape, self.competitor, self.mode, times, self.saved, self.peak)


def time_case(case: Case, rounds: int, tick: Callable[[str], None]) -> list[Timing]:
    """Timings of all competitors of a case; those compared are compiled too where it says so."""
    torch._dynamo.reset()
    turns = []
    for mode in case.problem.modes:
        turns += [(name, mode) for name in (case.builders if mode == EAGER else COMPARED)]
    runners = []
    for competitor, mode in turns:
        tick(f"{case.problem.title}: {competitor}, {mode}")
        runner = Runner(case, competitor, mode)
        runner.prepare()
        runners.append(runner)
    gc.collect()
    for i in range(rounds):
        tick(f"{case.problem.title}: round {i + 1} of {rounds}")
        for runner in runners if i % 2 == 0 else reversed(runners):
            runner.lap()
    return [runner.timing() for runner in runners]
