"""Launching Triton kernels.

At each launch Triton binds and classifies all arguments anew, which takes longer than a small
kernel runs. `launch` keeps the compiled kernel that a first launch returns, under a classification
at least as fine as Triton's, and launches that one from then on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_ALIGNED = 16  # bytes of an address, and what integers are divided by: Triton's own distinction
_INT32 = 1 << 31
_PLAIN = frozenset((int, float, bool, type(None)))
# For each kernel and kinds of arguments: the kernel (so that no other gets its id), what it was
# compiled to (None where that cannot be launched directly), and the names of its constants.
_compiled: dict[tuple[Any, ...], tuple[Any, Any, tuple[str, ...]]] = {}


def launch(
    kernel: Any, grid: tuple[int, ...], where: Tensor, *arguments: Any, **constants: Any
) -> None:
    """`kernel[grid](where, *arguments, **constants)`, on the device of `where`.

    Triton launches kernels on the current device, whichever their tensors are on.

    Args:
        kernel: a Triton function.
        grid: how many programs in each direction.
        where, arguments: in order, those that the kernel is not compiled for the values of.
        constants: values the kernel is compiled for, and options of the compiler.
    """
    if is_traced():
        torch.library.wrap_triton(kernel)[grid](where, *arguments, **constants)
    elif not where.is_cuda:
        kernel[grid](where, *arguments, **constants)
    elif where.device.index == torch.cuda.current_device():
        _launch(kernel, grid, where.device.index, (where, *arguments), constants)
    else:
        with torch.cuda.device(where.device.index):
            _launch(kernel, grid, where.device.index, (where, *arguments), constants)


def cdiv(count: int, size: int) -> int:
    """How many blocks of a size hold so many: `triton.cdiv`, which takes microseconds."""
    return -(-count // size)


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


def _launch(
    kernel: Any,
    grid: tuple[int, ...],
    device: int,
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
) -> None:
    kinds, values = _classify(arguments)
    # Not the kernel: its hash is one of its source, and takes long.
    key = (id(kernel), device, *kinds, *constants, *constants.values())
    entry = _compiled.get(key)
    if entry is None:
        compiled = kernel[grid](*arguments, **constants)
        # Not what the interpreter returns, and not AMD's, which distinguishes other kinds.
        if compiled is not None and torch.version.hip is None:
            _compiled[key] = kernel, compiled, tuple(kernel.arg_names[len(arguments) :])
        return
    _, compiled, names = entry
    if compiled is not None:
        x, y, z, *_ = (*grid, 1, 1)
        try:
            compiled[x, y, z](*values, *[constants[name] for name in names])
            return
        except (AttributeError, TypeError):  # a Triton that takes other arguments here
            _compiled[key] = kernel, None, ()
    kernel[grid](*arguments, **constants)


def _classify(arguments: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Kinds of arguments; and the arguments, tensors by address, which Triton need not ask for."""
    kinds: list[Any] = []
    values: list[Any] = []
    addresses = 0
    for argument in arguments:
        if type(argument) in _PLAIN:
            kinds.append(_kind(argument))
            values.append(argument)
        else:
            address = argument.data_ptr()
            addresses |= address
            kinds.append(argument.dtype)
            values.append(address)
    if addresses % _ALIGNED:  # rarely, and then it matters which
        kinds.extend(_kind(argument) for argument in arguments)
    return kinds, values


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
