"""How Triton kernels are started: on which device, and in how many parts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from beltrami.kernels.launch.launcher import Prepared, _compiled, _kind, parts, start


class OnDevice:
    """What `start` looks at of a tensor."""

    is_cuda = True

    def __init__(self, index: int, *, dtype: torch.dtype = torch.float32, address: int = 0) -> None:
        self.device = torch.device("cuda", index)
        self.dtype, self.address = dtype, address

    def data_ptr(self) -> int:
        return self.address


class Kernel:
    """Notes where and how it is started: by itself, or compiled."""

    arg_names = ("x", "n", "by", "ROWS")
    constexprs = (3,)

    def __init__(self, devices: list[int]) -> None:
        self.devices, self.starts = devices, []  # type: list[int], list[Any]
        self.compiled: list[Compiled] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def run(*arguments: Any, **constants: Any) -> Compiled:
            self.starts.append((self.devices[-1], grid, arguments, constants))
            self.compiled.append(Compiled())
            return self.compiled[-1]

        return run


class Compiled:
    """A kernel for one kind of arguments."""

    def __init__(self) -> None:
        self.starts: list[Any] = []

    function, packed_metadata = "function", "metadata"

    def run(self, x: int, y: int, z: int, *arguments: Any) -> None:
        assert arguments[:6] == ("stream of 0", self.function, self.packed_metadata, *[None] * 3)
        self.starts.append(((x, y, z), arguments[6:]))

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        return lambda *arguments: self.starts.append(("watched", grid, arguments))


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The current device, last, and those before it."""
    stack = [0]

    @contextlib.contextmanager
    def device(chosen: int) -> Iterator[None]:
        stack.append(chosen)
        yield
        stack.pop()

    monkeypatch.setattr(torch.cuda, "current_device", lambda: stack[-1])
    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda i: f"stream of {i}", raising=False
    )
    return stack


@pytest.mark.parametrize("index", [0, 1])
def test_kernels_start_where_their_tensors_are(index: int, devices: list[int]) -> None:
    kernel, where = Kernel(devices), OnDevice(index)
    start(kernel, (3, 2), where, 5, 0.5, ROWS=4)  # type: ignore[arg-type]
    assert kernel.starts == [(index, (3, 2), (where, 5, 0.5), {"ROWS": 4})]
    assert devices == [0]


def test_a_kernel_is_looked_for_once(devices: list[int]) -> None:
    kernel, first, second = Kernel(devices), OnDevice(0), OnDevice(0, address=32)
    start(kernel, (3, 2), first, 5, 0.5, ROWS=4, num_warps=8)  # type: ignore[arg-type]
    start(kernel, (7,), second, 6, 0.25, ROWS=4, num_warps=8)  # type: ignore[arg-type]
    assert len(kernel.starts) == 1
    assert kernel.compiled[0].starts == [((7, 1, 1), (32, 6, 0.25, 4))]  # tensors by address


@pytest.mark.parametrize(
    "other",
    [
        (OnDevice(0, dtype=torch.bfloat16), 5, 0.5, 4),
        (OnDevice(0, address=8), 5, 0.5, 4),
        (OnDevice(1), 5, 0.5, 4),
        (OnDevice(0), 1, 0.5, 4),  # compiled for this number
        (OnDevice(0), 48, 0.5, 4),  # and for all that 16 divides
        (OnDevice(0), 5 + 2**33, 0.5, 4),
        (OnDevice(0), 5, None, 4),
        (OnDevice(0), 5, True, 4),
        (OnDevice(0), 5, 0.5, 8),
    ],
)
def test_other_kinds_are_other_kernels(other: tuple[Any, ...], devices: list[int]) -> None:
    kernel = Kernel(devices)
    for *arguments, rows in ((OnDevice(0), 5, 0.5, 4), other):
        start(kernel, (1,), *arguments, ROWS=rows)
    assert len(kernel.starts) == 2
    assert not any(one.starts for one in kernel.compiled)


def test_numbers_by_name_are_handed_over_and_not_kept(devices: list[int]) -> None:
    """As a step size that changes with every step."""
    kernel, x = Kernel(devices), OnDevice(0)
    before = len(_compiled)
    for step in range(5):
        start(kernel, (1,), x, 3, by=1 / (step + 2), ROWS=4)  # type: ignore[arg-type]
    assert len(kernel.starts) == 1
    assert len(_compiled) == before + 1
    assert [arguments[2] for _, arguments in kernel.compiled[0].starts] == [
        1 / 3,
        1 / 4,
        1 / 5,
        1 / 6,
    ]


def test_prepared_kernels_are_the_same(devices: list[int]) -> None:
    kernel, first, second = Kernel(devices), OnDevice(0), OnDevice(0, address=32)
    prepared = Prepared(kernel, ROWS=4, num_warps=8)
    prepared((3, 2, 1), first, 5, 0.5)  # type: ignore[arg-type]
    prepared((3, 4, 1), second, 6, 0.25)  # type: ignore[arg-type]
    assert kernel.starts == [(0, (3, 2, 1), (first, 5, 0.5), {"ROWS": 4, "num_warps": 8})]
    assert kernel.compiled[0].starts == [((3, 4, 1), (32, 6, 0.25, 4))]
    for other in (OnDevice(0, address=8), OnDevice(0, dtype=torch.bfloat16), OnDevice(1)):
        prepared((1, 1, 1), other, 5, 0.5)  # type: ignore[arg-type]
    assert [device for device, *_ in kernel.starts] == [0, 0, 0, 1]
    assert len(kernel.compiled[0].starts) == 1


def test_profilers_are_told(devices: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = pytest.importorskip("triton.knobs", reason="needs Triton")
    kernel, x = Kernel(devices), OnDevice(0)
    start(kernel, (1,), x, 3, 0.5, ROWS=4)  # type: ignore[arg-type]
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", lambda _: None)
    start(kernel, (2,), x, 3, 0.5, ROWS=4)  # type: ignore[arg-type]
    assert kernel.compiled[0].starts == [("watched", (2, 1, 1), (x, 3, 0.5, 4))]


def test_the_interpreter_has_nothing_to_keep(devices: list[int]) -> None:
    class Interpreted(Kernel):
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *arguments, **constants: self.starts.append(arguments)

    kernel, x = Interpreted(devices), OnDevice(0)
    for _ in range(3):
        start(kernel, (1,), x, 3, 0.5, ROWS=4)  # type: ignore[arg-type]
    assert len(kernel.starts) == 3


def test_our_kinds_are_as_fine_as_tritons() -> None:
    """What Triton compiles differently has different kinds here."""
    jit = pytest.importorskip("triton.runtime.jit", reason="needs Triton")
    if not hasattr(jit, "native_specialize_impl"):
        pytest.skip("this Triton says in another way what it compiles for")
    from triton.backends.compiler import BaseBackend

    values: list[Any] = [0, 1, 2, 15, 16, 17, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40]
    values += [0.0, 1.0, 0.5, None, True, False]
    values += [torch.zeros(8, dtype=t)[i:] for t in (torch.float32, torch.bfloat16) for i in (0, 1)]
    found: dict[Any, Any] = {}
    for value in values:
        theirs = jit.native_specialize_impl(BaseBackend, value, False, True, True)
        assert found.setdefault(_kind(value), theirs) == theirs


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_parts_hold_all_and_no_part_is_empty(count: int, size: int) -> None:
    found = parts(count, size)
    assert found * size >= count > (found - 1) * size or found == count == 0
