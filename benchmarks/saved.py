"""What a function keeps in memory for its backward pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def saved_bytes(function: Callable[..., Tensor], inputs: list[Tensor]) -> tuple[int, Tensor]:
    """Bytes kept for the backward pass in storages other than the inputs', and the result."""
    known = {t.untyped_storage().data_ptr() for t in inputs}
    kept: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = function(*inputs)
    return sum(kept.values()), out
