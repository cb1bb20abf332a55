"""Steps of many small kernels, captured once as a CUDA graph and replayed from then on.

Python takes longer to launch a small kernel than a GPU to run it. A step that reads everything from
buffers of fixed place and shape, and never synchronises, can be captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from beltrami.train.processes import Processes

WARMUP_STEPS = 3  # eager steps before the capture, which allocate what is made on first use


def can_capture(processes: Processes) -> bool:
    """Whether steps are captured: on a GPU, by one process, as collectives are not captured."""
    return processes.device.type == "cuda" and processes.world_size == 1


class CapturedStep:
    """Call `step`; on a GPU capture it after a few calls, and replay the graph from then on.

    Where `can_capture` says no, all steps stay eager. Calls must happen inside `capture_stream`.
    """

    def __init__(self, step: Callable[[], None], processes: Processes) -> None:
        self._step = step
        self._graph: torch.cuda.CUDAGraph | None = None
        self.captures = can_capture(processes)
        self._eager_steps = 0

    def __call__(self) -> None:
        """Run one step."""
        if self._graph is not None:
            self._graph.replay()
        elif self.captures and self._eager_steps == WARMUP_STEPS:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=torch.cuda.current_stream()):
                self._step()
            self._graph.replay()  # capturing computes nothing
        else:
            self._step()
            self._eager_steps += 1


@contextmanager
def capture_stream(device: torch.device) -> Iterator[None]:
    """Run inside on a stream that allows capture, which the GPU's default stream does not."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)
