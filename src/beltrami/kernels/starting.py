"""Starting Triton kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def start(
    kernel: Any, grid: tuple[int, ...], where: Tensor, *arguments: Any, **constants: Any
) -> None:
    """`kernel[grid](where, *arguments, **constants)`, on the device of `where`.

    Triton starts kernels on the current device, whichever their tensors are on.
    """
    if not where.is_cuda or where.device.index == torch.cuda.current_device():
        kernel[grid](where, *arguments, **constants)
        return
    with torch.cuda.device(where.device):
        kernel[grid](where, *arguments, **constants)


def parts(count: int, size: int) -> int:
    """How many blocks of a size hold so many: `triton.cdiv`, which takes microseconds."""
    return -(-count // size)
