"""Starting Triton kernels.

Triton finds out anew at each start for which kinds of arguments a kernel was compiled: tens of
microseconds, as long as a small kernel takes. What it found is kept here under the same kinds and
started directly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_ALIGNED = 16  # bytes of an address, and what numbers are divided by: Triton's own distinction
_INT32 = 1 << 31
_compiled: dict[tuple[Any, ...], tuple[Any, tuple[str, ...]]] = {}
_by_kernel: dict[int, tuple[Any, frozenset[str]]] = {}


def start(
    kernel: Any, grid: tuple[int, ...], where: Tensor, *arguments: Any, **constants: Any
) -> None:
    """`kernel[grid](where, *arguments, **constants)`, on the device of `where`.

    Triton starts kernels on the current device, whichever their tensors are on.
    """
    if torch.compiler.is_compiling() or not where.is_cuda:
        kernel[grid](where, *arguments, **constants)
    elif where.device.index == torch.cuda.current_device():
        _start(kernel, grid, where, *arguments, **constants)
    else:
        with torch.cuda.device(where.device):
            _start(kernel, grid, where, *arguments, **constants)


def _start(
    kernel: Any, grid: tuple[int, ...], where: Tensor, *arguments: Any, **constants: Any
) -> None:
    varying = _varying(kernel)
    key = (
        id(kernel),  # its hash is one of its source, and takes long
        where.device.index,
        *[(name, _kind(v) if name in varying else v) for name, v in constants.items()],
        _kind(where),
        *[_kind(argument) for argument in arguments],
    )
    found = _compiled.get(key)
    if found is None:
        compiled = kernel[grid](where, *arguments, **constants)
        if compiled is not None and torch.version.hip is None:  # AMD's have other kinds
            # Options such as num_warps are no arguments of the kernel.
            _compiled[key] = compiled, tuple(kernel.arg_names[1 + len(arguments) :])
        return
    compiled, rest = found
    whole = (*grid, 1, 1)[:3]
    compiled[whole](where, *arguments, *[constants[name] for name in rest])


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


def parts(count: int, size: int) -> int:
    """How many blocks of a size hold so many: `triton.cdiv`, which takes microseconds."""
    return -(-count // size)
