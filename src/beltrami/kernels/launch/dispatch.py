"""Which of an operation's two implementations runs."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from beltrami.kernels.launch.triton_module import triton_module


def fused_module(
    name: str, fused: bool | None, where: Tensor, *arguments: Tensor | None
) -> ModuleType | None:
    """The Triton module of that name if it is to run, else None for the plain implementation.

    Args:
        name: of a module in this package with a function `why_not(*arguments)`.
        fused: None takes it on a GPU where it can do the work, False never, True is a `ValueError`
            where it cannot. What `torch.compile` traces is the plain one.
        where: the tensor whose device decides.
        arguments: what `why_not` is asked about.
    """
    if torch.compiler.is_compiling() or not (fused or (fused is None and where.is_cuda)):
        return None
    module = triton_module(name)
    obstacle = "Triton is not installed" if module is None else module.why_not(*arguments)
    if obstacle is None:
        return module
    if fused:
        raise ValueError(
            f"fused=True, but the Triton kernel cannot do this: {obstacle}; use fused=None or "
            "False for the plain one"
        )
    return None
