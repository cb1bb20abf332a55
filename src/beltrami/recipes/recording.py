"""Steps of many small kernels, recorded once on a GPU and played from then on.

Python takes longer to start a small kernel than a GPU to finish it. A step that reads everything
from buffers of fixed place and shape, and waits for nothing, can be recorded as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from beltrami.recipes.processes import Processes

EAGER_STEPS = 3  # before one is recorded: what is made on first use is there then


class Recording:
    """Calls `step`; on a GPU records one of its calls, and plays that afterwards.

    With several processes all steps are called: what the others send is no part of a recording.
    Calls must happen inside `own_stream`.
    """

    def __init__(self, step: Callable[[], None], processes: Processes) -> None:
        self._step = step
        self._graph: torch.cuda.CUDAGraph | None = None
        self.records = processes.device.type == "cuda" and processes.count == 1
        self._eager = 0

    def __call__(self) -> None:
        """One step."""
        if self._graph is not None:
            self._graph.replay()
        elif self.records and self._eager == EAGER_STEPS:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=torch.cuda.current_stream()):
                self._step()
            self._graph.replay()  # recording computes nothing
        else:
            self._step()
            self._eager += 1


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """A stream that steps may be recorded on, which the GPU's first stream is not."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)
