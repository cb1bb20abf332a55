"""The factors of a parameter's manifold, and the rows of a tensor that belong to each.

A product is stepped factor by factor, as Riemannian Adam is defined: each row of each factor has a
second moment of its own. Everything here is a view, so kernels work on the parameter in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, PoincareBall, Product
from beltrami.geometry.checks import Scalar
from beltrami.optim.sharded import full, is_sharded

# The models that have kernels of their own; others are stepped by the methods of their manifold.
_KERNELS: dict[type[Manifold], str] = {Lorentz: "lorentz", PoincareBall: "poincare"}


@dataclass(frozen=True)
class Factor:
    """`count` factors of one manifold: where their coordinates and their numbers stand in a row."""

    manifold: Manifold
    start: int
    size: int
    count: int
    first: int

    @property
    def model(self) -> str | None:
        """The kernels' name of the manifold, if they know it."""
        return _KERNELS.get(type(self.manifold))

    @property
    def c(self) -> Scalar:
        """The curvature to call a kernel with."""
        c = self.manifold.c
        return c.detach() if isinstance(c, Tensor) else c

    @property
    def alike(self) -> bool:
        """Whether a row has its curvature wherever it stands, so that dimensions may merge."""
        return curvature_shape(self.manifold).numel() in (1, self.count)

    def rows(self, t: Tensor) -> Tensor:
        """Coordinates of these factors in a tensor like the parameter: (..., [count,] size)."""
        part = t[..., self.start : self.start + self.size * self.count]
        return part.unflatten(-1, (self.count, self.size)) if self.count > 1 else part

    def numbers(self, t: Tensor) -> Tensor:
        """Their numbers in a tensor with one number a row and factor: (..., [count,] 1)."""
        part = t[..., self.first : self.first + self.count]
        return part.unsqueeze(-1) if self.count > 1 else part


def factors_of(manifold: Manifold, width: int) -> list[Factor]:
    """The factors of a manifold whose points have `width` coordinates, with curvatures as they are.

    Every process must ask, if the curvature is split over processes.
    """
    if not isinstance(manifold, Product):
        return [Factor(_gathered(manifold), 0, width, 1, 0)]
    factors: list[Factor] = []
    start = first = 0
    for block in manifold.factors:
        if isinstance(block.manifold, Product):  # a product in a product, copy by copy
            for _ in range(block.count):
                for inner in factors_of(block.manifold, block.size):
                    place = start + inner.start, inner.size, inner.count, first + inner.first
                    factors.append(Factor(inner.manifold, *place))
                start, first = start + block.size, first + count_factors(block.manifold)
            continue
        factors.append(Factor(_gathered(block.manifold), start, block.size, block.count, first))
        start, first = start + block.size * block.count, first + block.count
    return factors


def count_factors(manifold: Manifold) -> int:
    """How many numbers a row has: one, or one a factor."""
    if not isinstance(manifold, Product):
        return 1
    return sum(block.count * count_factors(block.manifold) for block in manifold.factors)


def inner_dims(manifold: Manifold) -> int:
    """How many of the last dimensions belong together: rows, and what several curvatures span."""
    if isinstance(manifold, Product):
        return 1  # its factors stand side by side in a row
    shape = curvature_shape(manifold)
    return len(shape) if shape.numel() > 1 else 1


def has_kernels(manifold: Manifold) -> bool:
    """Whether kernels, or torch itself, step all factors of a manifold."""
    if isinstance(manifold, Product):
        return all(has_kernels(b.manifold) and b.manifold != Euclidean() for b in manifold.factors)
    return type(manifold) in (*_KERNELS, Euclidean)


def curvature_shape(manifold: Manifold) -> torch.Size:
    """The shape of a manifold's curvature, which broadcasts against x[..., :1]."""
    curvature = getattr(manifold, "curvature", None)
    if isinstance(curvature, Curvature):
        return torch.Size((1,) if curvature.size == 1 else (curvature.size, 1))
    given = getattr(manifold, "_given", None)
    return given.shape if isinstance(given, Tensor) else torch.Size()


def _gathered(manifold: Manifold) -> Manifold:
    """The manifold with its curvature whole, where FSDP2 has split it."""
    curvature = getattr(manifold, "curvature", None)
    raw = getattr(manifold, "_given", None) if curvature is None else curvature.raw
    if not isinstance(raw, Tensor) or not is_sharded(raw):
        return manifold
    whole = full(raw.detach())
    return type(manifold)(whole if curvature is None else curvature.value_at(whole))  # type: ignore[call-arg]
