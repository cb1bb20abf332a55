"""The dtype of matrix products under autocast."""

from __future__ import annotations

import torch
from torch import Tensor


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which autocast would multiply x: its own, or that of x outside autocast.

    As for torch's own matrix products, float64 is left alone.
    """
    kind = x.device.type
    if x.dtype != torch.float64 and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return x.dtype
