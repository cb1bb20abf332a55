"""Forward and backward of a layer, competitors in turn: process time on a CPU, events on a GPU.

Taking turns, in alternating order, makes a busy machine hit all alike; every round is kept.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.saved_memory import saved_bytes
from benchmarks.layers_cases import Case

MODES = ("eager", "compiled")
# Steps between two events on a GPU, so that a lap is long against the resolution of events.
_STEPS_A_LAP = 3
_WARM_UP = 2


@dataclass(frozen=True)
class Timing:
    """One competitor in one mode: milliseconds of a step in every round, and bytes.

    `saved` is kept for the backward pass besides the parameters. On a GPU, `peak` is the highest
    use of memory during a step above that before it, and `slope` its growth with each token, fitted
    over three batch sizes.
    """

    case: str
    shape: str
    competitor: str
    mode: str
    times: tuple[float, ...]
    saved: int
    peak: int | None = None
    slope: float | None = None

    @property
    def best(self) -> float:
        """The quickest round."""
        return min(self.times)

    @property
    def median(self) -> float:
        """The middle round."""
        return statistics.median(self.times)


class Runner:
    """A competitor in one mode, ready to be timed."""

    def __init__(self, case: Case, competitor: str, mode: str) -> None:
        self.case, self.competitor, self.mode = case, competitor, mode
        module = case.competitors[competitor]
        self.parameters: list[Tensor] = list(module.parameters())
        self.function: Callable[..., Tensor] = module
        if mode == "compiled":
            self.function = torch.compile(module, fullgraph=True, dynamic=False)
        self.inputs = [t.clone().requires_grad_() for t in case.inputs]
        self.device = self.inputs[0].device.type
        self.times: list[float] = []
        self.saved = 0
        self.peak: int | None = None
        self.slope: float | None = None

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        """bfloat16 products on a GPU, as models are trained; float32 on a CPU."""
        if self.device == "cuda":
            return torch.autocast("cuda", torch.bfloat16)
        return contextlib.nullcontext()

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Of any inputs."""
        with self._autocast():
            return self.function(*inputs)

    def prepare(self) -> None:
        """Compile, warm up, count bytes."""
        # Whatever is kept and is not a parameter counts, the input too.
        self.saved, out = saved_bytes(lambda: self.forward(self.inputs), besides=self.parameters)
        self.cotangent = torch.randn_like(out)
        del out
        for _ in range(_WARM_UP):
            self.step()
        if self.device == "cuda":
            self.peak = self._peak(self.inputs, self.cotangent)
            if self.mode == "eager":  # compiled code is for one shape
                self.slope = self._slope()

    def step(self) -> None:
        """Forward and backward of the case's inputs."""
        self._step(self.inputs, self.cotangent)

    def _step(self, inputs: Sequence[Tensor], cotangent: Tensor) -> None:
        torch.autograd.grad(self.forward(inputs), [*inputs, *self.parameters], cotangent)

    def lap(self) -> None:
        """One turn."""
        self.times.append(self._lap_cuda() if self.device == "cuda" else self._lap_cpu())

    def _lap_cpu(self) -> float:
        start = time.process_time()
        self.step()
        return 1e3 * (time.process_time() - start)

    def _lap_cuda(self) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        with no_hidden_waits():
            begin.record()
            for _ in range(_STEPS_A_LAP):
                self.step()
            end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / _STEPS_A_LAP

    def _peak(self, inputs: Sequence[Tensor], cotangent: Tensor) -> int:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self._step(inputs, cotangent)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    def _slope(self) -> float | None:
        batch, tokens = self.case.sizes.batch, self.case.sizes.tokens
        sizes = sorted({max(1, batch // part) for part in (4, 2, 1)})
        if len(sizes) < 3:
            return None
        peaks = []
        for n in sizes:
            inputs = [t[:n].detach().requires_grad_() for t in self.inputs]
            peaks.append(float(self._peak(inputs, self.cotangent[:n])))
        return slope([n * tokens for n in sizes], peaks)

    def timing(self) -> Timing:
        """All turns."""
        case = self.case
        return Timing(
            case.name, case.sizes.shape, self.competitor, self.mode,
            tuple(self.times), self.saved, self.peak, self.slope,
        )  # fmt: skip


@contextlib.contextmanager
def no_hidden_waits() -> Iterator[None]:
    """Inside, an operation that waits for the GPU is an error."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the line through the points by least squares."""
    return statistics.linear_regression(x, y).slope


def time_case(
    case: Case, rounds: int, tick: Callable[[str], None], modes: Sequence[str] = MODES
) -> list[Timing]:
    """Timings of all competitors of a case in both modes."""
    torch._dynamo.reset()
    runners = []
    for mode in modes:
        for competitor in case.competitors:
            tick(f"{case.title}: {competitor}, {mode}")
            runner = Runner(case, competitor, mode)
            runner.prepare()
            runners.append(runner)
    gc.collect()
    for i in range(rounds):
        tick(f"{case.title}: round {i + 1} of {rounds}")
        for runner in runners if i % 2 == 0 else reversed(runners):
            runner.lap()
    return [runner.timing() for runner in runners]
