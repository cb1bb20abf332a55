r"""All distances between two sets of Lorentz points with bounded working memory.

The values of `lorentz.pairwise_dist`, which works on a dozen float64 matrices of the size of the
result at once. Here they have the size of a tile, so that the result itself is what counts, and
the backward pass takes the tiles again from the inputs, the only thing that is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from beltrami.geometry.checks import Scalar, check_integer, distinct, prepare
from beltrami.geometry.lorentz.pairwise import all_distances, all_gradients
from beltrami.geometry.sets import check_sets
from beltrami.kernels.launch.dtypes import accumulation_dtype
from beltrami.kernels.launch.saving import load_values, save_values


def pairwise_dist(x: Tensor, y: Tensor, c: Scalar = 1.0, *, tile: int = 512) -> Tensor:
    """Distances between all pairs of rows, (..., n, d) and (..., m, d) to (..., n, m).

    Accuracy, dtypes and gradients are those of `lorentz.pairwise_dist`. Use that one where the
    result is small, and this one where a few more matrices like it would not fit.

    Args:
        x: (..., n, d). y: (..., m, d).
        c: curvature −c, one for each set: a float, a tensor of shape (1,), or (..., 1, 1).
        tile: rows and columns worked on at a time. Working memory is a dozen or so float64
            matrices of tile², and of up to tile²·d for float64 points, for each set of a batch.
    """
    check_integer("tile", tile)
    _, c, _ = prepare(c, x=x, y=y)
    check_sets(x, y, c)
    out: Tensor = _PairwiseDist.apply(*distinct(x, y), c, tile)
    return out


def _tiles(n: int, tile: int) -> Iterator[slice]:
    for i in range(0, n, tile):
        yield slice(i, min(n, i + tile))


def _add(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total + part


class _PairwiseDist(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, y: Tensor, c: Scalar, tile: int) -> Tensor:
        dtype = accumulation_dtype(torch.promote_types(x.dtype, y.dtype))
        x, y = x.to(dtype), y.to(dtype)
        n, m = x.shape[-2], y.shape[-2]
        sets = c.shape[:-2] if isinstance(c, Tensor) else ()
        out = x.new_empty(*torch.broadcast_shapes(x.shape[:-2], y.shape[:-2], sets), n, m)
        for rows in _tiles(n, tile):
            for columns in _tiles(m, tile):
                part = all_distances(x[..., rows, :], y[..., columns, :], c)
                out[..., rows, columns] = part.to(dtype)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        save_values(ctx, inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, y, c, tile = load_values(ctx)
        needs = ctx.needs_input_grad[:3]
        n, m = x.shape[-2], y.shape[-2]
        a, b = x.to(g.dtype), y.to(g.dtype)
        of_rows: list[Tensor] = []
        of_columns: list[Tensor | None] = [None] * len(range(0, m, tile))
        gc = torch.zeros_like(c, dtype=torch.float64) if needs[2] else None
        for rows in _tiles(n, tile):
            of_row: Tensor | None = None
            for j, columns in enumerate(_tiles(m, tile)):
                gx, gy, part = all_gradients(
                    a[..., rows, :], b[..., columns, :], c, g[..., rows, columns], needs
                )
                if gx is not None:
                    of_row = _add(of_row, gx)
                if gy is not None:
                    of_columns[j] = _add(of_columns[j], gy)
                if gc is not None and part is not None:
                    gc = gc + part
            if of_row is not None:
                of_rows.append(of_row)
        return (
            _joined(of_rows, x) if needs[0] else None,
            _joined([t for t in of_columns if t is not None], y) if needs[1] else None,
            None if gc is None else gc.to(c.dtype),
            None,
        )

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, y: Tensor, c: Scalar, tile: int
    ) -> tuple[Tensor, int]:
        """One more leading dimension of sets: a generated rule could not write into `out`."""
        args = [t for t in (x, y, c) if isinstance(t, Tensor)]
        depth = max(t.ndim - (dim is not None) for t, dim in zip(args, in_dims, strict=False))
        led = [_lead(t, dim, depth) for t, dim in zip(args, in_dims, strict=False)]
        out: Tensor = _PairwiseDist.apply(*led, *([] if isinstance(c, Tensor) else [c]), tile)
        return out, 0


def _lead(t: Tensor, dim: int | None, depth: int) -> Tensor:
    """The mapped dimension first, or one of size 1, then `depth` dimensions."""
    t = t.unsqueeze(0) if dim is None else t.movedim(dim, 0)
    return t.reshape(t.shape[0], *[1] * (depth + 1 - t.ndim), *t.shape[1:])


def _joined(parts: list[Tensor], like: Tensor) -> Tensor:
    if not parts:
        return torch.zeros_like(like)
    return (parts[0] if len(parts) == 1 else torch.cat(parts, -2)).to(like.dtype)
