"""Work that does not wait for each other, side by side in a captured CUDA graph.

The kernels of a small model are done in microseconds and leave most of a GPU idle. Captured on
streams of their own, those of several models run at the same time. Outside a capture, and on a CPU,
one comes after the other.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


class Branches:
    """Branches of a graph that is being captured on the current stream.

    What a branch is given must live until `join`, and so must what it leaves.

    Args:
        device: where the work is done.
    """

    def __init__(self, device: torch.device) -> None:
        self._capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        self._device = device
        self._streams: list[torch.cuda.Stream] = []

    def branch(self) -> AbstractContextManager[object]:
        """What is started inside begins when all that was started before the branch is done."""
        if not self._capturing:
            return nullcontext()
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        self._streams.append(stream)
        return torch.cuda.stream(stream)

    def join(self) -> None:
        """What is started from here on begins when all branches are done."""
        for stream in self._streams:
            torch.cuda.current_stream(self._device).wait_stream(stream)
        self._streams.clear()
