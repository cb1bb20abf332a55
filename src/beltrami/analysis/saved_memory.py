"""What a computation keeps in memory for its backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def saved_bytes(
    function: Callable[[], Tensor], *, besides: Iterable[Tensor] = ()
) -> tuple[int, Tensor]:
    """Bytes of the storages that autograd keeps for the backward pass, and the result.

    Args:
        function: the computation.
        besides: tensors whose storages do not count, such as parameters and inputs.
    """
    known = {t.untyped_storage().data_ptr() for t in besides}
    saved: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = function()
    return sum(saved.values()), out
