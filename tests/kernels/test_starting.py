"""How Triton kernels are started: on which device, and in how many parts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from beltrami.kernels.starting import parts, start


class OnDevice:
    """What `start` looks at of a tensor."""

    is_cuda = True

    def __init__(self, index: int) -> None:
        self.device = torch.device("cuda", index)


class Kernel:
    """Notes where and how it is started."""

    def __init__(self, devices: list[int]) -> None:
        self.devices, self.starts = devices, []  # type: list[int], list[Any]

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def run(*arguments: Any, **constants: Any) -> None:
            self.starts.append((self.devices[-1], grid, arguments, constants))

        return run


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The current device, last, and those before it."""
    stack = [0]

    @contextlib.contextmanager
    def device(chosen: torch.device) -> Iterator[None]:
        stack.append(chosen.index)
        yield
        stack.pop()

    monkeypatch.setattr(torch.cuda, "current_device", lambda: stack[-1])
    monkeypatch.setattr(torch.cuda, "device", device)
    return stack


@pytest.mark.parametrize("index", [0, 1])
def test_kernels_start_where_their_tensors_are(index: int, devices: list[int]) -> None:
    kernel, where = Kernel(devices), OnDevice(index)
    start(kernel, (3, 2), where, 5, 0.5, ROWS=4)  # type: ignore[arg-type]
    assert kernel.starts == [(index, (3, 2), (where, 5, 0.5), {"ROWS": 4})]
    assert devices == [0]


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_parts_hold_all_and_no_part_is_empty(count: int, size: int) -> None:
    found = parts(count, size)
    assert found * size >= count > (found - 1) * size or found == count == 0
