"""Which of an operation's implementations runs: a Triton module or the plain reference."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType
from typing import Any

import torch


def dispatch(name: str, fused: bool | None, *arguments: Any) -> ModuleType | None:
    """The Triton module of that name if it is to run, else None for the reference.

    Args:
        name: of a module in this package with a function `unsupported_reason(*arguments)`.
        fused: None takes it on a GPU where it supports the arguments, False never, True is a
            `ValueError` where it does not. What `torch.compile` traces is the reference.
        arguments: of the operation; the first is a tensor whose device decides.
    """
    wanted = fused or (fused is None and arguments[0].is_cuda)
    if torch.compiler.is_compiling() or not wanted:
        return None
    module = triton_module(name)
    reason = _NO_TRITON if module is None else module.unsupported_reason(*arguments)
    if reason is None:
        return module
    if fused:
        raise ValueError(
            f"fused=True, but the Triton kernel cannot do this: {reason}; use fused=None or False "
            "for the plain one"
        )
    return None


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


_NO_TRITON = "Triton is not installed"
