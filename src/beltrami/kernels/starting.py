"""Starting Triton kernels.

Triton finds out anew at each start for which kinds of arguments a kernel was compiled: tens of
microseconds, longer than a small kernel takes. What it found is kept here under the same kinds and
started directly.
"""

from __future__ import annotations

import functools
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
    if torch.compiler.is_compiling() or not where.is_cuda:  # compiled code minds the device
        kernel[grid](where, *arguments, **constants)
        return
    device = where.device.index
    if device == torch.cuda.current_device():
        _start(kernel, grid, device, where, *arguments, **constants)
    else:
        with torch.cuda.device(device):
            _start(kernel, grid, device, where, *arguments, **constants)


def _start(
    kernel: Any, grid: tuple[int, ...], device: int, *arguments: Any, **constants: Any
) -> None:
    kinds: list[Any] = []
    handed: list[Any] = []  # tensors by their addresses, which Triton need not ask for then
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
    aligned: Any = True
    if addresses % _ALIGNED:
        aligned = tuple(_kind(argument) for argument in arguments)
    varying = _varying(kernel)
    named: Any = constants.values()
    if not varying.isdisjoint(constants):
        named = [_kind(v) if name in varying else v for name, v in constants.items()]
    # Not the kernel: its hash is one of its source, and takes long.
    key = (id(kernel), device, aligned, *kinds, *constants, *named)
    found = _compiled.get(key)
    if found is None:
        compiled = kernel[grid](*arguments, **constants)
        if compiled is not None and torch.version.hip is None:  # AMD's have other kinds
            # Options such as num_warps are no arguments of the kernel.
            _compiled[key] = compiled, tuple(kernel.arg_names[len(arguments) :])
        return
    compiled, rest = found
    whole = (*grid, 1, 1)[:3]
    last = [constants[name] for name in rest]
    if _is_watched():
        compiled[whole](*arguments, *last)
        return
    stream = torch._C._cuda_getCurrentRawStream(device)
    about = compiled.function, compiled.packed_metadata
    compiled.run(*whole, stream, *about, None, None, None, *handed, *last)


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
