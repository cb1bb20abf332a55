"""A table of points, one a token."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.checks import check_integer, check_positive
from beltrami.geometry import Lorentz, Manifold, PoincareBall
from beltrami.nn.layer import Layer, initial_curvature

# √c·radius that float32 holds: ball points beyond it round onto the border, Lorentz ones overflow.
_REACH = {PoincareBall: 15.0, Lorentz: 44.0}


class Embedding(Layer):
    """`weight[ids]`: integers (...) to points (..., size), the rows of a learnable table.

    The rows are parameters on the manifold (Nickel and Kiela 2017, 2018). They start as a wrapped
    normal about the origin whose root mean square geodesic distance from it is `radius`, in every
    model: `exp0(v)` with the entries of v of standard deviation radius/√size. Normalised to a fixed
    norm instead, as public code does, every token would start at one radius, whatever was asked.

    With `manifold=Euclidean()` it is `torch.nn.Embedding` with that start, the limit c → 0.

    Args:
        num: rows. size: the last dimension of points.
        manifold: where the rows live.
        radius: root mean square distance of the rows from the origin at the start. If None, that of
            coordinates of variance 1, asinh(√(c·size))/√c (√size in flat space): the start of
            `torch.nn.Embedding`, at which a transformer's branches do not swamp its tokens. For
            trees and graphs, whose points are to find their own radius, 0.01 is usual.
        padding_idx: a row that is the origin and gets no gradient; may be negative, as in torch.
        sparse: whether the gradient of `weight` is a sparse tensor.

    Shapes: ids (...), int32 or int64, to (..., size).
    """

    def __init__(
        self,
        num: int,
        size: int,
        *,
        manifold: Manifold,
        radius: float | None = None,
        padding_idx: int | None = None,
        sparse: bool = False,
    ) -> None:
        super().__init__(manifold)
        self.num = check_integer("Embedding: num", num)
        self.size = check_integer("Embedding: size", size)
        self.radius = (
            unit_variance_radius(size, manifold)
            if radius is None
            else check_radius(radius, manifold, "Embedding")
        )
        self.padding_idx = _row(padding_idx, num)
        self.sparse = sparse
        self.weight = nn.Parameter(torch.empty(num, size))
        self.manifold_of["weight"] = manifold
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the rows anew."""
        init_points(self.weight, self.manifold, self.radius)
        if self.padding_idx is not None:
            with torch.no_grad():
                self.weight[self.padding_idx].zero_()

    def forward(self, ids: Tensor) -> Tensor:
        """The rows of the ids."""
        if ids.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"Embedding takes ids of dtype int32 or int64, got {ids.dtype}")
        if torch.compiler.is_compiling():
            return self._rows(ids)
        try:
            return self._rows(ids)
        except IndexError:  # on the CPU; a GPU stops with an assertion of its own
            low, high = int(ids.min()), int(ids.max())
            raise IndexError(
                f"Embedding has rows 0 to {self.num - 1}, got ids from {low} to {high}"
            ) from None

    def _rows(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight, self.padding_idx, sparse=self.sparse)

    def no_weight_decay(self) -> set[str]:
        """The rows: decay would pull every token to the origin."""
        return {"weight"}

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        extra = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        extra += ", sparse=True" if self.sparse else ""
        return f"{self.num}, {self.size}, manifold={self.manifold!r}, radius={self.radius:g}{extra}"


@torch.no_grad()
def init_points(weight: Tensor, manifold: Manifold, radius: float) -> None:
    """Fill (..., size) with points whose root mean square distance from the origin is `radius`."""
    std = radius * weight.shape[-1] ** -0.5
    points = manifold.random(*weight.shape, std=std, dtype=weight.dtype, device=weight.device)
    weight.copy_(points)


def unit_variance_radius(size: int, manifold: Manifold) -> float:
    """Distance from the origin of a Lorentz point with `size` coordinates of variance 1."""
    c = initial_curvature(manifold)
    return math.sqrt(size) if c == 0 else math.asinh(math.sqrt(c * size)) / math.sqrt(c)


def check_radius(radius: float, manifold: Manifold, layer: str) -> float:
    """A distance from the origin given to a constructor, within what float32 holds."""
    radius = check_positive(f"{layer}: radius", radius)
    reach = next((r for kind, r in _REACH.items() if isinstance(manifold, kind)), None)
    c = manifold.c
    if reach is None or (isinstance(c, Tensor) and c.is_meta):
        return radius
    scaled = radius * float(c.detach().max() if isinstance(c, Tensor) else c) ** 0.5
    if scaled >= reach:
        raise ValueError(
            f"{layer}: points on {manifold!r} need √c·radius < {reach:g}, got radius={radius:g} "
            f"with √c·radius={scaled:g}"
        )
    return radius


def _row(index: int | None, num: int) -> int | None:
    """A row's index counted from the front."""
    if index is None:
        return None
    if isinstance(index, bool) or not isinstance(index, int):
        raise TypeError(
            f"Embedding: padding_idx must be an integer or None, got {type(index).__name__}"
        )
    if not -num <= index < num:
        raise ValueError(
            f"Embedding: padding_idx must lie between {-num} and {num - 1} for num={num}, "
            f"got {index}"
        )
    return index % num
