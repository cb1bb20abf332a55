r"""The nearest neighbours of Lorentz points, without the matrix of all distances.

Walks over tiles of the points to be searched and keeps the k best of each row. Pairs are compared
by their squared chord `(4/c)·sinh²(√c·d/2)`, which grows with the distance: of float32 points from
one float64 matrix product (see `kernels.chords`), of float64 points pair by pair. The distances
that are returned are those of `lorentz.dist` for the pairs that were found.
"""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.geometry import lorentz
from beltrami.geometry.checks import Scalar, check_integer, prepare
from beltrami.geometry.chord import chord_of_parts, chord_parts
from beltrami.kernels.launch.dtypes import no_autocast
from beltrami.kernels.pairs.chords import Rows, chords, left, right, rows_of

# Elements of the (rows, columns, d) blocks by which float64 points are compared.
_BLOCK_ELEMENTS = 1 << 21

# A chord of float32 rows below this share of √(|x||y|) counts as 0: half an eps, under which the
# product, good to a few eps of float64 in the square, is made of rounding.
_UNRESOLVED = torch.finfo(torch.float32).eps / 2


def nearest(
    x: Tensor, y: Tensor, k: int, c: Scalar = 1.0, *, tile: int = 2048
) -> tuple[Tensor, Tensor]:
    """For each row of x the k nearest rows of y: distances and indices, both (n, k), nearest first.

    Differentiable in x, y and c through the distances of the pairs found; the choice of them is
    not. Equal distances come in the order of their indices, and of float64 points at exactly equal
    distance those with the lower index are chosen. In float32 that holds for the choice as well
    where the chords agree to within eps, or are both below 6e-8·sinh(√c·r)/√c, which float32
    coordinates at a distance r from the origin do not resolve; a rounding of the product may part
    equal rows of y, though it hardly ever does. Rows with NaN have NaN distances and come last.

    Args:
        x: points, (n, d). y: the points to search, (m, d).
        k: how many neighbours, from 1 to m.
        c: curvature −c, a number or a tensor of one element.
        tile: rows of x and of y worked on at a time; working memory is a few tile² numbers.
    """
    check_integer("k", k)
    check_integer("tile", tile)
    (x, y), c, _ = prepare(c, x=x, y=y)
    if x.ndim != 2 or y.ndim != 2:
        raise ValueError(
            f"x and y must be rows of points, (n, d) and (m, d), got shapes {tuple(x.shape)} and "
            f"{tuple(y.shape)}"
        )
    if isinstance(c, Tensor):
        if c.numel() != 1:
            raise ValueError(f"nearest takes one curvature, got a tensor of shape {tuple(c.shape)}")
        c = c.reshape(1)
    if k > y.shape[0]:
        raise ValueError(f"k must be at most the number of rows of y, {y.shape[0]}, got {k}")
    with torch.no_grad(), no_autocast(x):
        nearest_rows = _search(x, y, k, c, tile)
    distances = lorentz.dist(x.unsqueeze(1), y[nearest_rows], c)
    # `dist` rounds on its own, so neighbours that all but tie may need to change places.
    return _in_order(distances, nearest_rows)


def _in_order(distances: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Both sorted by distance, then by index."""
    by_index = torch.argsort(indices, 1)
    by_distance = torch.argsort(distances.detach().gather(1, by_index), dim=1, stable=True)
    order = by_index.gather(1, by_distance)
    return distances.gather(1, order), indices.gather(1, order)


def _search(x: Tensor, y: Tensor, k: int, c: Scalar, tile: int) -> Tensor:
    """Indices (n, k) of the nearest rows."""
    product = x.dtype != torch.float64
    nearest_rows = []
    for i in range(0, x.shape[0], tile):
        rows = x[i : i + tile]
        a = rows_of(rows, c) if product else None
        best: tuple[Tensor, Tensor] | None = None
        for j in range(0, y.shape[0], tile):
            columns = y[j : j + tile]
            if a is None:
                chord = _chords_by_pair(rows, columns, c)
            else:
                chord = _chords_by_product(a, rows_of(columns, c))
            if best is None:
                best = _smallest(chord, k)
                continue
            before = best[1].shape[1]
            values, place = _smallest(torch.cat([best[0], chord], 1), k)
            is_old = place < before
            old = best[1].gather(1, torch.where(is_old, place, 0))
            best = values, torch.where(is_old, old, place + (j - before))
        assert best is not None  # y has at least k rows
        nearest_rows.append(best[1])
    return (
        torch.cat(nearest_rows)
        if nearest_rows
        else torch.empty(0, k, dtype=torch.int64, device=x.device)
    )


def _chords_by_product(a: Rows, b: Rows) -> Tensor:
    chord = chords(left(a), right(b))
    floor = (_UNRESOLVED**2 * a.norm) * b.norm.t()
    return torch.where(chord <= floor, 0.0, chord).float()


def _chords_by_pair(x: Tensor, y: Tensor, c: Scalar) -> Tensor:
    size = max(1, _BLOCK_ELEMENTS // max(1, y.numel()))
    blocks = []
    for i in range(0, x.shape[0], size):
        a = x[i : i + size, None, :]
        blocks.append(chord_of_parts(a, y, chord_parts(a, y, c), c).squeeze(-1))
    return torch.cat(blocks)


def _smallest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k smallest of each row in order, the first of equal ones, and their places.

    `topk` may take any of equal values. So it is asked for the k-th smallest value only, and for
    the first places among those that are smaller or equal to it. All of the row if k is more.
    """
    width = values.shape[1]
    if k < width:
        last = values.topk(k, 1, largest=False).values[:, -1:]
        place = torch.arange(width, device=values.device).expand(values.shape)
        # smaller ones come first in any case, NaN last
        place = torch.where(values < last, place - width, place)
        place = torch.where(values <= last, place, place + width)
        places = place.topk(k, 1, largest=False).values.remainder(width).sort(1).values
        values, order = values.gather(1, places).sort(dim=1, stable=True)
        return values, places.gather(1, order)
    ordered = values.sort(dim=1, stable=True)
    return ordered.values, ordered.indices
