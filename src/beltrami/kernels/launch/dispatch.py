"""Which of an operation's implementations runs: a Triton module or the plain reference."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor


def dispatch(name: str, fused: bool | None, *arguments: Any) -> ModuleType | None:
    """The Triton module of that name if it is to run, else None for the reference.

    Args:
        name: of a module in this package with a function `unsupported_reason(*arguments)`.
        fused: None takes it on a GPU where it supports the arguments, False never, True is a
            `ValueError` where it does not. What `torch.compile` traces is the reference.
        arguments: of the operation; the first is a tensor whose device decides.

    The environment variable BELTRAMI_KERNELS decides where fused is None: "reference" is False, and
    "fused" takes the kernels wherever they support the arguments.
    """
    wanted = requested(fused)
    wanted = arguments[0].is_cuda if wanted is None else wanted
    if torch.compiler.is_compiling() or not wanted:
        return None
    module = triton_module(name)
    reason = _NO_TRITON if module is None else module.unsupported_reason(*arguments)
    if reason is None:
        return module
    if fused:
        raise ValueError(_REFUSED.format(reason))
    return None


def takes_operator(
    fused: bool | None, *tensors: Tensor | None, reason: str | None = None, traced: bool = True
) -> bool:
    """Whether an operation runs as its `custom_operator`, which a compiler leaves as it is.

    Args:
        fused: as in `dispatch`.
        tensors: of the operation; the device of the first decides, all are to be on it.
        reason: why the kernels cannot do this, if the caller knows one.
        traced: whether compiled graphs get the operator; else only if BELTRAMI_KERNELS=fused, since
            a compiler does as well with the reference.
    """
    first = tensors[0]
    assert first is not None
    wanted = requested(fused)
    if wanted is None:
        wanted = first.is_cuda and (traced or not torch.compiler.is_compiling())
    # What `torch.export` writes is to run without this package.
    if not wanted or torch.compiler.is_exporting():
        return False
    for t in tensors:
        if t is not None and t.device != first.device:
            reason = f"its tensors must be on one device, got {first.device} and {t.device}"
        elif t is not None and t.dtype not in _DTYPES:
            reason = f"it computes in float32, got {t.dtype}"
    if not (first.is_cuda or _INTERPRETED):
        reason = f"it runs on a CUDA device, and its tensors are on {first.device}"
    reason = reason if _HAS_TRITON else _NO_TRITON
    if reason is not None and fused:
        raise ValueError(_REFUSED.format(reason))
    return reason is None


def requested(fused: bool | None) -> bool | None:
    """`fused`, or in the place of None what BELTRAMI_KERNELS asks for."""
    return _by_environment() if fused is None else fused


def custom_operator(
    name: str, schema: str, allocate: Callable[..., tuple[Tensor, ...]], module: str, kernel: str
) -> Any:
    """The operator `beltrami::name`, whose results a Triton module writes.

    Args:
        schema: of its arguments and results.
        allocate: makes the results, empty, from the arguments; also for a compiler.
        module, kernel: of this package, and its function that takes results and arguments.
    """

    def run(*arguments: Any) -> tuple[Tensor, ...]:
        results = allocate(*arguments)
        getattr(triton_module(module), kernel)(*results, *arguments)
        return results

    operator = torch.library.custom_op(f"beltrami::{name}", run, mutates_args=(), schema=schema)
    operator.register_fake(allocate)
    return operator


def _by_environment() -> bool | None:
    value = os.environ.get("BELTRAMI_KERNELS", "")
    if value not in _CHOICES:
        raise ValueError(f"BELTRAMI_KERNELS must be reference or fused, got {value!r}")
    return _CHOICES[value]


def unsupported_device(name: str, device: torch.device) -> str | None:
    """Why Triton kernels cannot run on a device, where a tensor called `name` is, or None."""
    module = triton_module("launch.triton_math")
    if module is None:
        return _NO_TRITON
    reason: str | None = module.unsupported_device(name, device)
    return reason


@functools.cache
def triton_module(name: str) -> ModuleType | None:
    """The module of that name in this package, imported on first use; None without Triton."""
    if importlib.util.find_spec("triton") is None:
        return None
    return importlib.import_module(f"beltrami.kernels.{name}")


_CHOICES = {"": None, "reference": False, "fused": True}
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_HAS_TRITON = importlib.util.find_spec("triton") is not None
_INTERPRETED = os.environ.get("TRITON_INTERPRET", "") in ("1", "true", "yes", "on")
_NO_TRITON = "Triton is not installed"
_REFUSED = (
    "fused=True, but the Triton kernel cannot do this: {}; use fused=None or False for the plain "
    "one"
)
