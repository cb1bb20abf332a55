"""Matrices that measures are given: distances, and rows whose directions count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from beltrami.analysis.checks import check_tensor
from beltrami.analysis.rows import row_slices
from beltrami.geometry.checks import check_finite

FlatMetric = Literal["euclidean", "angle"]
NeighbourMetric = Literal["euclidean", "angle", "distances", "precomputed"]
_ASYMMETRY = 1e-6  # of distances, as a share of the largest, that is taken for rounding


def check_distances(d: Tensor) -> None:
    """Raise unless distances (n, n) are finite, not negative and, but for rounding, symmetric."""
    check_tensor("distances", d, "n n")
    check_finite(distances=d)
    if d.numel() == 0:
        return
    if float(d.min()) < 0:
        i, j = divmod(int(d.argmin()), len(d))
        raise ValueError(f"distances must not be negative, got {d[i, j].item()} at ({i}, {j})")
    allowed = _ASYMMETRY * float(d.max())
    own = d.diagonal()
    if float(own.max()) > allowed:
        i = int(own.argmax())
        raise ValueError(f"distances must be 0 on the diagonal, got {own[i].item()} at ({i}, {i})")
    for rows in row_slices(len(d)):
        off = (d[rows] - d[:, rows].mT).abs()
        if float(off.max()) > allowed:
            i, j = divmod(int(off.argmax()), len(d))
            i += rows.start
            raise ValueError(
                f"distances must be symmetric, but are {d[i, j].item()} at ({i}, {j}) and "
                f"{d[j, i].item()} at ({j}, {i})"
            )


def symmetric(d: Tensor) -> Tensor:
    """Distances as they are but for rounding: the same both ways, and 0 from a point to itself."""
    return torch.maximum(d, d.mT).fill_diagonal_(0.0)


def flat_distances(
    x: Tensor, metric: FlatMetric = "euclidean", *, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Between all rows of x, (n, n), computed in float64 and kept in `dtype`."""
    x = x.detach().double()
    if metric == "angle":
        return all_distances(directions(x), angles, dtype)
    # What all points share would cost the distances digits.
    return all_distances(x - x.mean(0), torch.cdist, dtype)


def all_distances(
    x: Tensor, between: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype
) -> Tensor:
    """`between(rows, x)` of all rows, (n, n), a block at a time."""
    distances = torch.empty(len(x), len(x), dtype=dtype, device=x.device)
    for rows in row_slices(len(x)):
        distances[rows] = between(x[rows], x)
    return symmetric(distances)


def classical_scaling(d: Tensor) -> Tensor:
    """Points of flat space for distances, (n, n): principal axes first, float64.

    Their distances are the given ones where those are of a flat space; what else they have, an
    imaginary part, is left out.
    """
    squares = d.detach().double().square()
    centred = squares - squares.mean(0) - squares.mean(1, keepdim=True) + squares.mean()
    return principal_coordinates(-centred / 2)


def principal_coordinates(products: Tensor) -> Tensor:
    """Points whose scalar products are given, (n, n): principal axes first, imaginary ones 0."""
    values, vectors = torch.linalg.eigh(products)
    points: Tensor = (vectors * values.clamp(min=0.0).sqrt()).flip(1)
    return points


def angles(u: Tensor, v: Tensor) -> Tensor:
    """Between rows of length 1, (n, m), also small ones, of which the arccosine loses digits."""
    return 2 * torch.atan2(torch.cdist(u, v), torch.cdist(u, -v))


def directions(x: Tensor) -> Tensor:
    """Rows of length 1, of any that are not 0, however short."""
    largest = x.abs().amax(-1, keepdim=True)
    if bool((empty := largest[:, 0] == 0).any()):
        raise ValueError(f"row {int(empty.nonzero()[0])} is 0 and has no direction")
    return torch.nn.functional.normalize(x / largest, dim=-1)
