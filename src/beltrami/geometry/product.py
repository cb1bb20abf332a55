r"""Products of manifolds: points side by side in the last dimension.

A point of a product is the concatenation of a point of each factor, so that the last dimension is
the sum of the factors' sizes (the number of coordinates of a point: d for a Lorentz, Poincaré or
Euclidean factor of dimension d, d + 1 for a sphere). The distance combines those of the factors,

    d(x, y) = (Σᵢ dᵢ(xᵢ, yᵢ)^p)^{1/p},    p ≥ 1, the largest dᵢ for p = inf.

p = 2 is the Riemannian product; p = 1 adds distances up, as boolean features do. Exponential and
logarithmic maps, transport and gradients act factor by factor whatever p is.

Factors are given as blocks `(manifold, size)` or `(manifold, size, count)`: a block of `count`
equal factors is one vectorised call on a view (..., count, size), with a curvature each if the
manifold's `c` has shape (count, 1), as that of `Curvature(size=count)` does. Neighbouring blocks of
equal manifolds and sizes are merged, so that 64 equal factors are one call, not 64.

Accuracy, gradients at singular points and dtypes are those of the factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from beltrami.geometry.checks import as_scalar
from beltrami.geometry.chord import root

if TYPE_CHECKING:
    from beltrami.geometry.manifold import Manifold

__all__ = [
    "Block",
    "blocks",
    "centroid",
    "combine",
    "dist",
    "dist0",
    "dist_sq",
    "exp",
    "exp0",
    "geodesic",
    "inner",
    "log",
    "log0",
    "midpoint",
    "norm",
    "pairwise_dist",
    "project",
    "project_tangent",
    "retract",
    "riemannian_grad",
    "split",
    "transport",
    "transport_from0",
    "transport_to0",
]


@dataclass(frozen=True)
class Block:
    """`count` factors of one manifold, each of `size` coordinates."""

    manifold: Manifold
    size: int
    count: int = 1


Factors = Sequence["tuple[Manifold, int] | tuple[Manifold, int, int] | Block"]


# --- factors --------------------------------------------------------------------------------------


def blocks(factors: Factors) -> tuple[Block, ...]:
    """Check the factors of a product and merge neighbours that are equal.

    Args:
        factors: `(manifold, size)` or `(manifold, size, count)` each, sizes and counts positive.
    """
    if isinstance(factors, tuple) and factors and all(type(f) is Block for f in factors):
        return factors  # checked before
    merged: list[Block] = []
    for factor in factors:
        block = _block(factor)
        last = merged[-1] if merged else None
        if last is not None and last.size == block.size and _mergeable(last, block):
            merged[-1] = replace(last, count=last.count + block.count)
        else:
            merged.append(block)
    if not merged:
        raise ValueError("a product needs at least one factor, for instance [(Lorentz(1.0), 8)]")
    return tuple(merged)


def _block(factor: Any) -> Block:
    if isinstance(factor, Block):
        factor = factor.manifold, factor.size, factor.count
    if not isinstance(factor, tuple) or len(factor) not in (2, 3):
        raise TypeError(
            "a factor must be a tuple (manifold, size) or (manifold, size, count), for instance "
            f"(Lorentz(1.0), 8); got {factor!r}"
        )
    block = Block(*factor)
    for name in ("size", "count"):
        number = getattr(block, name)
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name} must be an integer, got {number!r}")
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    if not hasattr(block.manifold, "pairwise_dist"):
        raise TypeError(f"a factor starts with a manifold, got {block.manifold!r}")
    several = _curvatures(block.manifold)
    if several not in (1, block.count):
        raise ValueError(
            f"{block.manifold!r} has {several} curvatures, so its block must have {several} "
            f"factors, got {block.count}: use (manifold, size, {several})"
        )
    return block


def _curvatures(manifold: Manifold) -> int:
    """How many curvatures a manifold holds, one a factor."""
    c = getattr(manifold, "c", 0.0)  # a product as a factor has none of its own
    return c.shape[-2] if isinstance(c, Tensor) and c.ndim > 1 else 1


def _mergeable(a: Block, b: Block) -> bool:
    return _curvatures(a.manifold) == 1 and bool(a.manifold == b.manifold)


def split(x: Tensor, factors: Factors, *, at_origin: bool = False, name: str = "x") -> list[Tensor]:
    """The part of each block: (..., size), or (..., count, size) for several equal factors.

    Views of x; raises if its last dimension is not the sum of the factors' sizes.

    Args:
        x: points or tangent vectors, (..., sum of sizes).
        factors: see `blocks`.
        at_origin: whether x holds tangent vectors at the origin, which for a sphere have one
            coordinate fewer.
        name: what error messages call x.
    """
    parts = blocks(factors)
    sizes = [b.manifold.tangent0_size(b.size) if at_origin else b.size for b in parts]
    widths = [size * b.count for size, b in zip(sizes, parts, strict=True)]
    _check_floating(x, name)
    if x.ndim == 0 or x.shape[-1] != sum(widths):
        raise ValueError(
            f"{name} must have a last dimension of {sum(widths)} = {' + '.join(map(str, widths))}, "
            f"the coordinates of all factors; got shape {tuple(x.shape)}"
        )
    return [
        t if b.count == 1 else t.unflatten(-1, (b.count, size))
        for b, size, t in zip(parts, sizes, x.split(widths, -1), strict=True)
    ]


def _scalars(method: str, parts: Sequence[Block], *arguments: list[Tensor]) -> Tensor:
    """One number a factor, side by side: (..., number of factors)."""
    columns = []
    for block, *args in zip(parts, *arguments, strict=True):
        value = getattr(block.manifold, method)(*args, keepdim=block.count == 1)
        columns.append(value)
    return columns[0] if len(columns) == 1 else torch.cat(columns, -1)


def _rows(method: str, parts: Sequence[Block], *arguments: list[Any]) -> Tensor:
    """One row a factor, side by side: (..., sum of sizes)."""
    rows = []
    for block, *args in zip(parts, *arguments, strict=True):
        row = getattr(block.manifold, method)(*args)
        rows.append(row if block.count == 1 else row.flatten(-2))
    return rows[0] if len(rows) == 1 else torch.cat(rows, -1)


# --- distances ------------------------------------------------------------------------------------


def combine(distances: Tensor, p: float = 2.0, *, keepdim: bool = False) -> Tensor:
    """The p-norm `(Σ dᵢ^p)^{1/p}` over the last dimension of distances that are not negative.

    Scaled by the largest distance, so that no power leaves the range. The gradient where all
    distances are 0 is 0.

    Args:
        distances: (..., k).
        p: from 1 to `math.inf`, which is the largest.
        keepdim: return (..., 1) instead of (...).
    """
    _check_p(p)
    _check_floating(distances, "distances")
    distances = distances.to(torch.promote_types(distances.dtype, torch.float32))
    if p == 1:
        return distances.sum(-1, keepdim=keepdim)
    if p == math.inf:
        return distances.amax(-1, keepdim=keepdim)
    largest = distances.detach().amax(-1, keepdim=True)
    scale = torch.where(largest > 0, largest, 1.0)
    ratio = distances / scale
    positive = ratio > 0  # at 0 the second derivative of a power p < 2 is infinite
    powers = torch.where(positive, torch.where(positive, ratio, 1.0) ** p, 0.0)
    total = powers.sum(-1, keepdim=True)
    total = torch.where(largest > 0, torch.where(largest > 0, total, 1.0) ** (1 / p), 0.0) * scale
    return as_scalar(total, keepdim)


def _check_floating(x: Tensor, name: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"{name} must be a floating point tensor, got {x.dtype}: use .float()")


def _check_p(p: float) -> None:
    if isinstance(p, bool) or not isinstance(p, int | float):
        raise TypeError(f"p must be a number, got {type(p).__name__}")
    if not p >= 1:
        raise ValueError(f"p must be at least 1 (or math.inf) to make a distance, got {p}")


def dist(
    x: Tensor, y: Tensor, factors: Factors, *, p: float = 2.0, keepdim: bool = False
) -> Tensor:
    """Distance `(Σ dᵢ^p)^{1/p}` in the product.

    For p = 2 the root of `dist_sq`, so that factors that coincide, or all of them, get gradient 0.

    Args:
        x, y: points, (..., sum of sizes), broadcasting.
        factors: see `blocks`.
        p: how the factors' distances are combined, from 1 to inf.
        keepdim: return (..., 1) instead of (...).
    """
    _check_p(p)
    if p == 2:
        return root(dist_sq(x, y, factors, keepdim=keepdim))
    parts = blocks(factors)
    d = _scalars("dist", parts, split(x, parts), split(y, parts, name="y"))
    return combine(d, p, keepdim=keepdim)


def dist_sq(
    x: Tensor, y: Tensor, factors: Factors, *, p: float = 2.0, keepdim: bool = False
) -> Tensor:
    """Squared distance; for p = 2 the sum of the factors' own, smooth at x = y."""
    _check_p(p)
    if p != 2:
        return dist(x, y, factors, p=p, keepdim=keepdim) ** 2
    parts = blocks(factors)
    d2 = _scalars("dist_sq", parts, split(x, parts), split(y, parts, name="y"))
    return d2.sum(-1, keepdim=keepdim)


def dist0(x: Tensor, factors: Factors, *, p: float = 2.0, keepdim: bool = False) -> Tensor:
    """Distance from the origin, (...); gradient 0 there."""
    parts = blocks(factors)
    return combine(_scalars("dist0", parts, split(x, parts)), p, keepdim=keepdim)


def pairwise_dist(x: Tensor, y: Tensor, factors: Factors, *, p: float = 2.0) -> Tensor:
    """All distances between the rows of x, (..., n, D), and of y, (..., m, D): (..., n, m)."""
    _check_p(p)
    parts = blocks(factors)
    columns = []
    for block, a, b in zip(parts, split(x, parts), split(y, parts, name="y"), strict=True):
        if block.count == 1:
            columns.append(block.manifold.pairwise_dist(a, b).unsqueeze(-1))
        else:  # sets of points are the last but one dimension: (..., count, n, size)
            d = block.manifold.pairwise_dist(a.transpose(-2, -3), b.transpose(-2, -3))
            columns.append(d.movedim(-3, -1))
    return combine(torch.cat(columns, -1), p)  # (..., n, m, k)


# --- metric ---------------------------------------------------------------------------------------


def inner(x: Tensor, u: Tensor, v: Tensor, factors: Factors, *, keepdim: bool = False) -> Tensor:
    """The Riemannian metric of the product at x: the sum of the factors', whatever p is."""
    parts = blocks(factors)
    args = split(x, parts), split(u, parts, name="u"), split(v, parts, name="v")
    return _scalars("inner", parts, *args).sum(-1, keepdim=keepdim)


def norm(
    x: Tensor, v: Tensor, factors: Factors, *, p: float = 2.0, keepdim: bool = False
) -> Tensor:
    """Length of a tangent vector at x, `(Σ |vᵢ|^p)^{1/p}`; its gradient at v = 0 is 0.

    So `dist(x, exp(x, v)) = norm(x, v)` for every p; for p = 2 it is the root of `inner(x, v, v)`.
    """
    parts = blocks(factors)
    lengths = _scalars("norm", parts, split(x, parts), split(v, parts, name="v"))
    return combine(lengths, p, keepdim=keepdim)


def riemannian_grad(x: Tensor, g: Tensor, factors: Factors) -> Tensor:
    """The factors' Riemannian gradients side by side: that of the metric `inner`."""
    parts = blocks(factors)
    return _rows("riemannian_grad", parts, split(x, parts), split(g, parts, name="g"))


# --- maps, factor by factor -----------------------------------------------------------------------


def exp(x: Tensor, v: Tensor, factors: Factors) -> Tensor:
    """Exponential map at x, (..., D), of each factor."""
    parts = blocks(factors)
    return _rows("exp", parts, split(x, parts), split(v, parts, name="v"))


def log(x: Tensor, y: Tensor, factors: Factors) -> Tensor:
    """Logarithmic map at x, (..., D), of each factor."""
    parts = blocks(factors)
    return _rows("log", parts, split(x, parts), split(y, parts, name="y"))


def exp0(v: Tensor, factors: Factors) -> Tensor:
    """Exponential map at the origin of each factor; spheres take one coordinate fewer."""
    parts = blocks(factors)
    return _rows("exp0", parts, split(v, parts, at_origin=True, name="v"))


def log0(x: Tensor, factors: Factors) -> Tensor:
    """Logarithmic map at the origin of each factor; spheres give one coordinate fewer."""
    parts = blocks(factors)
    return _rows("log0", parts, split(x, parts))


def transport(x: Tensor, y: Tensor, v: Tensor, factors: Factors) -> Tensor:
    """Parallel transport of v from x to y in each factor."""
    parts = blocks(factors)
    args = split(x, parts), split(y, parts, name="y"), split(v, parts, name="v")
    return _rows("transport", parts, *args)


def transport_from0(y: Tensor, v: Tensor, factors: Factors) -> Tensor:
    """Parallel transport of v from the origin to y in each factor."""
    parts = blocks(factors)
    args = split(y, parts, name="y"), split(v, parts, at_origin=True, name="v")
    return _rows("transport_from0", parts, *args)


def transport_to0(x: Tensor, v: Tensor, factors: Factors) -> Tensor:
    """Parallel transport of v from x to the origin in each factor."""
    parts = blocks(factors)
    return _rows("transport_to0", parts, split(x, parts), split(v, parts, name="v"))


def retract(x: Tensor, v: Tensor, factors: Factors) -> Tensor:
    """The factors' cheap first-order steps from x along v."""
    parts = blocks(factors)
    return _rows("retract", parts, split(x, parts), split(v, parts, name="v"))


def project(x: Tensor, factors: Factors) -> Tensor:
    """The nearest point, factor by factor."""
    parts = blocks(factors)
    return _rows("project", parts, split(x, parts))


def project_tangent(x: Tensor, v: Tensor, factors: Factors) -> Tensor:
    """The nearest tangent vector at x, factor by factor."""
    parts = blocks(factors)
    return _rows("project_tangent", parts, split(x, parts), split(v, parts, name="v"))


# --- geodesics and means --------------------------------------------------------------------------


def geodesic(x: Tensor, y: Tensor, t: Tensor | float, factors: Factors) -> Tensor:
    """The point at fraction t of the geodesic from x to y, which is one in each factor.

    A tensor t broadcasts against x[..., :1].
    """
    parts = blocks(factors)
    fractions = [
        t.unsqueeze(-2) if isinstance(t, Tensor) and t.ndim and b.count > 1 else t for b in parts
    ]
    return _rows("geodesic", parts, split(x, parts), split(y, parts, name="y"), fractions)


def midpoint(x: Tensor, y: Tensor, factors: Factors) -> Tensor:
    """The point halfway between x and y."""
    parts = blocks(factors)
    return _rows("midpoint", parts, split(x, parts), split(y, parts, name="y"))


def centroid(x: Tensor, weights: Tensor | None, factors: Factors) -> Tensor:
    """The factors' weighted centroids.

    Args:
        x: points, (..., n, D).
        weights: (..., n), shared by all factors, or None for equal ones.
        factors: see `blocks`.
    """
    parts = blocks(factors)
    rows = []
    for block, t in zip(parts, split(x, parts), strict=True):
        if block.count == 1:
            rows.append(block.manifold.centroid(t, weights))
        else:  # (..., count, n, size)
            w = None if weights is None else weights.unsqueeze(-2)
            rows.append(block.manifold.centroid(t.transpose(-2, -3), w).flatten(-2))
    return torch.cat(rows, -1)
