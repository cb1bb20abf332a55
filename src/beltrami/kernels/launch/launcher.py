"""Starting Triton kernels.

Triton finds out anew at each start for which kinds of arguments a kernel was compiled: tens of
microseconds, longer than a small kernel takes. What it found is kept here under the same kinds and
started directly. What `torch.compile` traces is handed to it instead, to start it its own way.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_ALIGNED = 16  # bytes of an address, and what numbers are divided by: Triton's own distinction
_INT32 = 1 << 31
_NOT_TENSORS = frozenset((int, float, bool, type(None)))
_compiled: dict[tuple[Any, ...], tuple[Any, tuple[str, ...]]] = {}
_by_kernel: dict[int, tuple[Any, frozenset[str]]] = {}


def start(
    kernel: Any, grid: tuple[int, ...], where: Tensor, *arguments: Any, **constants: Any
) -> None:
    """`kernel[grid](where, *arguments, **constants)`, on the device of `where`.

    Triton starts kernels on the current device, whichever their tensors are on.
    """
    if is_traced():
        torch.library.wrap_triton(kernel)[grid](where, *arguments, **constants)
        return
    if not where.is_cuda:
        kernel[grid](where, *arguments, **constants)
        return
    device = where.device.index
    if device == torch.cuda.current_device():
        _start(kernel, grid, device, where, *arguments, **constants)
    else:
        with torch.cuda.device(device):
            _start(kernel, grid, device, where, *arguments, **constants)


class _Traced(threading.local):
    here = False


_traced = _Traced()


@contextmanager
def traced() -> Iterator[None]:
    """Inside, tensors have no numbers: kernels are handed to a compiler."""
    before, _traced.here = _traced.here, True
    try:
        yield
    finally:
        _traced.here = before


def is_traced() -> bool:
    """Whether this is inside `traced`."""
    return _traced.here


class Prepared:
    """A kernel with its constants, for those who start it over and over.

    Args:
        kernel: as in `start`.
        constants: values the kernel is compiled for, and options of the compiler.
    """

    def __init__(self, kernel: Any, **constants: Any) -> None:
        self.kernel, self.constants = kernel, constants
        self._compiled: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}

    def __call__(self, grid: tuple[int, int, int], where: Tensor, *arguments: Any) -> None:
        """`start(kernel, grid, where, *arguments, **constants)`."""
        device = where.device.index
        if is_traced() or not where.is_cuda or device != torch.cuda.current_device():
            start(self.kernel, grid, where, *arguments, **self.constants)
            return
        arguments = (where, *arguments)
        kinds, handed = _look_at(arguments)
        found = self._compiled.get((device, *kinds))
        if found is None:
            compiled = self.kernel[grid](*arguments, **self.constants)
            if _may_be_kept(compiled):
                rest = _constants_of(self.kernel, len(arguments))
                last = [self.constants[name] for name in rest]
                self._compiled[device, *kinds] = compiled, last
            return
        compiled, last = found
        _run(compiled, grid, device, arguments, handed, last)


def _start(
    kernel: Any, grid: tuple[int, ...], device: int, *arguments: Any, **constants: Any
) -> None:
    kinds, handed = _look_at(arguments)
    varying = _varying(kernel)
    named: Any = constants.values()
    if not varying.isdisjoint(constants):
        named = [_kind(v) if name in varying else v for name, v in constants.items()]
    # Not the kernel: its hash is one of its source, and takes long.
    key = (id(kernel), device, *kinds, *constants, *named)
    found = _compiled.get(key)
    if found is None:
        compiled = kernel[grid](*arguments, **constants)
        if _may_be_kept(compiled):
            _compiled[key] = compiled, _constants_of(kernel, len(arguments))
        return
    compiled, rest = found
    last = [constants[name] for name in rest]
    _run(compiled, _in_three(grid), device, arguments, handed, last)


def _look_at(arguments: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Their kinds; and they, tensors by their addresses, which Triton need not ask for then."""
    kinds: list[Any] = []
    handed: list[Any] = []
    addresses = 0
    for argument in arguments:
        if type(argument) in _NOT_TENSORS:
            kinds.append(_kind(argument))
            handed.append(argument)
        else:
            address = argument.data_ptr()
            addresses |= address
            kinds.append(argument.dtype)
            handed.append(address)
    if addresses % _ALIGNED:  # rarely, and then it matters which
        kinds.extend(_kind(argument) for argument in arguments)
    return kinds, handed


def _in_three(grid: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z, *_ = (*grid, 1, 1)
    return x, y, z


def _may_be_kept(compiled: Any) -> bool:
    """Not what the interpreter made, and not AMD's, which have other kinds."""
    return compiled is not None and torch.version.hip is None


def _constants_of(kernel: Any, given: int) -> tuple[str, ...]:
    """Arguments after those given in their places; options such as num_warps are none."""
    return tuple(kernel.arg_names[given:])


def _run(
    compiled: Any,
    grid: tuple[int, int, int],
    device: int,
    arguments: tuple[Any, ...],
    handed: list[Any],
    last: list[Any],
) -> None:
    if _is_watched():
        compiled[grid](*arguments, *last)
        return
    stream = torch._C._cuda_getCurrentRawStream(device)
    about = compiled.function, compiled.packed_metadata
    compiled.run(*grid, stream, *about, None, None, None, *handed, *last)


def _varying(kernel: Any) -> frozenset[str]:
    """Arguments that a kernel is not compiled for the values of, even if they are given by name."""
    known = _by_kernel.get(id(kernel))
    if known is None:
        fixed = {kernel.arg_names[place] for place in getattr(kernel, "constexprs", ())}
        found = frozenset(name for name in getattr(kernel, "arg_names", ()) if name not in fixed)
        known = _by_kernel[id(kernel)] = kernel, found  # the kernel, lest another gets its id
    return known[1]


def _kind(argument: Any) -> Any:
    """What Triton may compile a kernel for: at least as fine a distinction as its own."""
    kind = type(argument)
    if kind is int:
        return argument == 1, argument % _ALIGNED == 0, -_INT32 <= argument < _INT32
    if kind is float:
        return kind
    if argument is None or kind is bool:
        return argument
    return argument.dtype, argument.data_ptr() % _ALIGNED == 0


def _is_watched() -> bool:
    """Whether a profiler is told of kernels by Triton."""
    runtime = _triton_runtime()
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))


@functools.cache
def _triton_runtime() -> Any:
    from triton import knobs

    return knobs.runtime


def parts(count: int, size: int) -> int:
    """How many blocks of a size hold so many: `triton.cdiv`, which takes microseconds."""
    return -(-count // size)
