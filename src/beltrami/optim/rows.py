"""The rows of parameters that a step moves: dense, sparse, split over processes, or joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from beltrami.kernels.launch.dtypes import accumulation_dtype
from beltrami.optim.points import Factor
from beltrami.optim.sharded import copy_full_, full, is_sharded, local, splits_rows

# Elements below which parameters of one width are stepped together: many small tensors cost more
# to call for than to compute.
_SMALL_ELEMENTS = 1 << 16


class Rows(NamedTuple):
    """The rows of one parameter, or of several of one width: tensors to be changed in place.

    `moments` are like the points, `numbers` hold one number a row and factor.
    """

    x: Tensor
    g: Tensor
    moments: tuple[Tensor, ...]
    numbers: tuple[Tensor, ...]


def move_rows(
    parameter: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, ...],
    numbers: tuple[Tensor, ...],
    move: Callable[[Rows], None],
    *,
    inner: int = 1,
    write: bool = True,
) -> None:
    """Call `move` on the rows of a parameter that this process holds and that have a gradient.

    Rows that are themselves in pieces (a single point, split by FSDP2) are put together, moved in
    every process alike, and taken apart again.

    Args:
        parameter, gradient, moments, numbers: what `Rows` are taken from.
        move: changes them in place, or with `write=False` only looks at them.
        inner: how many of the last dimensions must be whole, see `points.inner_dims`.
        write: whether what was put together or picked out is written back.
    """
    tensors = (*moments, *numbers)
    if splits_rows(parameter, inner):
        whole = [full(t) for t in (parameter, gradient, *tensors)]
        n = 2 + len(moments)
        move(Rows(whole[0], whole[1], tuple(whole[2:n]), tuple(whole[n:])))
        if not write:
            return
        for target, value in zip((parameter, *tensors), (whole[0], *whole[2:]), strict=True):
            if is_sharded(target):
                copy_full_(target, value)
        return
    x, g = local(parameter), local(gradient)
    held_moments, held_numbers = tuple(map(local, moments)), tuple(map(local, numbers))
    if g.is_sparse:
        _move_sparse(Rows(x, g, held_moments, held_numbers), move, write)
    elif x.numel():
        move(Rows(x, g, held_moments, held_numbers))


def _move_sparse(rows: Rows, move: Callable[[Rows], None], write: bool) -> None:
    """Move the rows that a sparse gradient names; the others are not touched, nor their moments."""
    gradient = rows.g.coalesce()
    index = gradient.indices()
    if index.shape[0] != 1:
        raise ValueError(
            f"a sparse gradient of points must be sparse in the first dimension alone, got one "
            f"sparse in {index.shape[0]} for points of shape {tuple(rows.x.shape)}"
        )
    if not index.numel():
        return
    targets = (rows.x, *rows.moments, *rows.numbers)
    parts = [t.index_select(0, index[0]) for t in targets]
    n = 1 + len(rows.moments)
    move(Rows(parts[0], gradient.values(), tuple(parts[1:n]), tuple(parts[n:])))
    if not write:
        return
    for target, part in zip(targets, parts, strict=True):
        target.index_copy_(0, index[0], part)


def can_join(rows: Rows, factors: list[Factor]) -> bool:
    """Whether a parameter is small and plain enough to be stepped together with others."""
    tensors = (rows.x, rows.g, *rows.moments, *rows.numbers)
    if any(is_sharded(t) or t.is_sparse for t in tensors) or torch.compiler.is_compiling():
        return False
    if not 0 < rows.x.numel() < _SMALL_ELEMENTS or not all(t.is_contiguous() for t in tensors):
        return False
    return all(factor.alike for factor in factors)


def join(rows: list[Rows], move: Callable[[Rows], None]) -> None:
    """Call `move` once on the rows of several parameters of one width and dtype."""
    if len(rows) == 1:
        move(rows[0])
        return

    def columns(of: Callable[[Rows], Tensor]) -> list[Tensor]:
        return [of(r).view(-1, of(r).shape[-1]) for r in rows]

    n_moments, n_numbers = len(rows[0].moments), len(rows[0].numbers)
    x, g = columns(lambda r: r.x), columns(lambda r: r.g)
    moments = [columns(lambda r, i=i: r.moments[i]) for i in range(n_moments)]  # type: ignore[misc]
    numbers = [columns(lambda r, i=i: r.numbers[i]) for i in range(n_numbers)]  # type: ignore[misc]
    joined = Rows(
        torch.cat(x), torch.cat(g), tuple(map(torch.cat, moments)), tuple(map(torch.cat, numbers))
    )
    move(joined)
    sizes = [len(part) for part in x]
    for parts, whole in zip(
        (x, *moments, *numbers), (joined.x, *joined.moments, *joined.numbers), strict=True
    ):
        torch._foreach_copy_(parts, whole.split(sizes))


def numbers_dtype(parameter: Tensor) -> torch.dtype:
    """In which dtype one number a row is kept: float32 at least."""
    return accumulation_dtype(parameter.dtype)
