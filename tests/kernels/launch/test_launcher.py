"""How Triton kernels are launched: on which device, and which compiled one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from beltrami.kernels.launch.launcher import _compiled, _kind, cdiv, launch


class OnDevice:
    """What `launch` looks at of a tensor."""

    is_cuda = True

    def __init__(self, index: int, *, dtype: torch.dtype = torch.float32, address: int = 0) -> None:
        self.device = torch.device("cuda", index)
        self.dtype, self.address = dtype, address

    def data_ptr(self) -> int:
        return self.address


class Kernel:
    """Notes where and how it is launched: by itself, or compiled."""

    arg_names = ("x", "n", "by", "ROWS")
    constexprs = (3,)

    def __init__(self, devices: list[int], made: type[Compiled] | None = None) -> None:
        self.devices, self.launches = devices, []  # type: list[int], list[Any]
        self.made = made or Compiled
        self.compiled: list[Compiled] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def run(*arguments: Any, **constants: Any) -> Compiled:
            self.launches.append((self.devices[-1], grid, arguments, constants))
            self.compiled.append(self.made())
            return self.compiled[-1]

        return run


class Compiled:
    """A kernel for one kind of arguments."""

    def __init__(self) -> None:
        self.launches: list[Any] = []

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        return lambda *arguments: self.launches.append((grid, arguments))


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
    return stack


@pytest.mark.parametrize("index", [0, 1])
def test_kernels_start_where_their_tensors_are(index: int, devices: list[int]) -> None:
    kernel, where = Kernel(devices), OnDevice(index)
    launch(kernel, (3, 2), where, 5, 0.5, ROWS=4)  # type: ignore[arg-type]
    assert kernel.launches == [(index, (3, 2), (where, 5, 0.5), {"ROWS": 4})]
    assert devices == [0]


def test_a_kernel_is_looked_for_once(devices: list[int]) -> None:
    kernel, first, second = Kernel(devices), OnDevice(0), OnDevice(0, address=32)
    launch(kernel, (3, 2), first, 5, 0.5, ROWS=4, num_warps=8)  # type: ignore[arg-type]
    launch(kernel, (7,), second, 6, 0.25, ROWS=4, num_warps=8)  # type: ignore[arg-type]
    assert len(kernel.launches) == 1
    assert kernel.compiled[0].launches == [((7, 1, 1), (32, 6, 0.25, 4))]  # tensors by address


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
        launch(kernel, (1,), *arguments, ROWS=rows)
    assert len(kernel.launches) == 2
    assert not any(one.launches for one in kernel.compiled)


def test_a_triton_that_launches_otherwise_is_left_to_itself(devices: list[int]) -> None:
    class Refusing(Compiled):
        def __getitem__(self, grid: tuple[int, int, int]) -> Any:
            self.launches.append(grid)
            raise TypeError("function takes exactly 12 arguments")

    kernel, x = Kernel(devices, Refusing), OnDevice(0)
    for _ in range(3):
        launch(kernel, (1,), x, 3, 0.5, ROWS=4)  # type: ignore[arg-type]
    assert len(kernel.launches) == 3
    assert [len(one.launches) for one in kernel.compiled] == [1, 0, 0]


def test_floats_that_change_are_one_kernel(devices: list[int]) -> None:
    """As a step size that changes with every step."""
    kernel, x = Kernel(devices), OnDevice(0)
    before = len(_compiled)
    for step in range(5):
        launch(kernel, (1,), x, 3, 1 / (step + 1), ROWS=4)  # type: ignore[arg-type]
    assert len(kernel.launches) == 1
    assert len(_compiled) == before + 1
    numbers = [arguments[2] for _, arguments in kernel.compiled[0].launches]
    assert numbers == [1 / 2, 1 / 3, 1 / 4, 1 / 5]


def test_the_interpreter_has_nothing_to_keep(devices: list[int]) -> None:
    class Interpreted(Kernel):
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *arguments, **constants: self.launches.append(arguments)

    kernel, x = Interpreted(devices), OnDevice(0)
    for _ in range(3):
        launch(kernel, (1,), x, 3, 0.5, ROWS=4)  # type: ignore[arg-type]
    assert len(kernel.launches) == 3


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
def test_blocks_hold_all_and_none_is_empty(count: int, size: int) -> None:
    blocks = cdiv(count, size)
    assert blocks * size >= count > (blocks - 1) * size or blocks == count == 0
