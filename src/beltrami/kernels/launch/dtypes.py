"""In which dtype kernels multiply, compute and return."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from beltrami.geometry.checks import no_autocast as no_autocast

P = ParamSpec("P")
R = TypeVar("R")


def under_autocast(x: Tensor) -> bool:
    """Whether autocast is on where x is; of tensors without numbers torch cannot say."""
    kind = x.device.type
    return kind != "meta" and torch.is_autocast_enabled(kind)


def without_autocast(
    function: Callable[Concatenate[Tensor, P], R],
) -> Callable[Concatenate[Tensor, P], R]:
    """The function with autocast off where its first argument is."""

    @functools.wraps(function)
    def wrapped(x: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not under_autocast(x):
            return function(x, *args, **kwargs)
        with torch.autocast(x.device.type, enabled=False):
            return function(x, *args, **kwargs)

    return wrapped


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which autocast would multiply x: its own, or that of x outside autocast.

    As for torch's own matrix products, float64 is left alone.
    """
    if x.dtype != torch.float64 and under_autocast(x):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which geometry is computed: at least float32."""
    # Not torch.promote_types, which is a dispatched operator.
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def overflow_safe_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype itself, but float32 for float16, which weighted sums may overflow."""
    return torch.float32 if dtype == torch.float16 else dtype


def upcast(t: Tensor) -> Tensor:
    """t in the dtype in which geometry is computed, `accumulation_dtype`."""
    return t.to(accumulation_dtype(t.dtype))


def cast(t: Tensor, dtype: torch.dtype) -> Tensor:
    """`t.to(dtype)`, for what a forward returns; no cast is traced if t has the dtype.

    Traced by torch 2.11, a Function returns its intermediates too. A cast that does nothing makes
    output and intermediate one tensor, and the gradient then goes to the intermediate and is lost.
    """
    return t if t.dtype == dtype else t.to(dtype)
