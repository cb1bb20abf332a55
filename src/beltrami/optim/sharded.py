"""Parameters that are split over processes (DTensor), as FSDP2 leaves them.

Rows move on their own, so each process steps the rows it holds and nothing is sent. A tensor is
recognised by what it can do, not by its class, whose import takes longer than that of this package.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def is_sharded(t: Tensor) -> bool:
    """Whether t is a DTensor."""
    return hasattr(t, "placements")


def local(t: Tensor) -> Tensor:
    """The part of t that this process holds; t itself if it is not split."""
    if not is_sharded(t):
        return t
    part: Tensor = t.to_local()  # type: ignore[attr-defined]
    return part


def full(t: Tensor) -> Tensor:
    """All of t; every process must ask."""
    if not is_sharded(t):
        return t
    whole: Tensor = t.full_tensor()  # type: ignore[attr-defined]
    return whole


def splits_rows(t: Tensor, inner: int = 1) -> bool:
    """Whether one of the last `inner` dimensions is split: for 1, rows themselves are in pieces."""
    return is_sharded(t) and any(
        placement.is_shard(dim)
        for placement in t.placements  # type: ignore[attr-defined]
        for dim in range(t.ndim - inner, t.ndim)
    )


def row_numbers_like(points: Tensor, columns: int, dtype: torch.dtype) -> Tensor:
    """Zeros (..., columns) for points (..., d), split as the rows of the points are."""
    shape = *points.shape[:-1], columns
    if not is_sharded(points):
        return torch.zeros(shape, dtype=dtype, device=points.device)
    from torch.distributed.tensor import DTensor, Replicate

    placements: Any = points.placements  # type: ignore[attr-defined]
    if splits_rows(points):  # every process needs the numbers of a row of which it has a piece
        placements = [Replicate() if p.is_shard(points.ndim - 1) else p for p in placements]
        numbers = torch.zeros(shape, dtype=dtype, device=local(points).device)
    else:
        held = local(points)
        numbers = torch.zeros(*held.shape[:-1], columns, dtype=dtype, device=held.device)
    strides = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        numbers,
        points.device_mesh,  # type: ignore[attr-defined]
        placements,
        run_check=False,
        shape=torch.Size(shape),
        stride=strides,
    )


def copy_full_(t: Tensor, whole: Tensor) -> None:
    """Write the values of `whole`, the same in every process, into the split tensor t."""
    from torch.distributed.tensor import distribute_tensor

    split = distribute_tensor(
        whole,
        t.device_mesh,  # type: ignore[attr-defined]
        t.placements,  # type: ignore[attr-defined]
        src_data_rank=None,
    )
    local(t).copy_(local(split))
