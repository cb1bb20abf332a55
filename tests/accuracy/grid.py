"""Measure geometry functions against `mp`: cases, inputs, errors in units of the contract's bound.

A `Case` pairs a torch function with its reference and says how to draw inputs. `measure` draws them
in float64, rounds them to the dtype, and computes the reference *from the rounded inputs*, so that
the result is the error of the algorithm and not of the representation.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import mpmath
import torch
from torch import Tensor

from tests.accuracy import mp

RADII = (1e-6, 1e-3, 0.1, 1.0, 5.0, 10.0, 20.0, 40.0)
CURVATURES = (0.01, 0.1, 1.0, 10.0)
DIMS = (1, 2, 3, 64, 513)
DTYPES = (torch.float32, torch.float64)

# How far apart near pairs are, as a share of min(radius, 1).
NEAR_STEP = 0.01

# Gradients are compared along all axes up to this dimension, and along a few directions beyond.
_ALL_AXES = 3


@dataclass(frozen=True)
class Cell:
    """One place of the grid; `radius` is √c times the distance from the origin."""

    dtype: torch.dtype
    radius: float
    c: float
    dim: int

    @property
    def eps(self) -> float:
        return torch.finfo(self.dtype).eps

    def generator(self, name: str) -> torch.Generator:
        seed = zlib.crc32(f"{name}{self.radius}{self.c}{self.dim}".encode())
        return torch.Generator().manual_seed(seed)


Inputs = Callable[[Cell, int, torch.Generator], list[Tensor]]
Bound = Callable[[Cell], float]


# The contract's bounds, in units of eps.
def well_conditioned(cell: Cell) -> float:
    return 16.0


def near_pairs(cell: Cell) -> float:
    """What rounding the coordinates of two close points costs any formula."""
    return 16.0 * math.cosh(cell.radius)


def exp_type(cell: Cell) -> float:
    return 16.0 * max(1.0, cell.radius)


def near_mean(cell: Cell) -> float:
    """Directions between points and their mean, which is rounded, NEAR_STEP of the radius apart."""
    return near_pairs(cell) / NEAR_STEP


@dataclass(frozen=True)
class Case:
    """A function, its reference and its inputs.

    `function(*tensors, c)` works on (N, d) batches; `reference(*vectors, c)` on one row of `mp`
    numbers. `gradients` says whether to compare them too. The gradient in c is compared relative
    to itself where `strict_c`, and to f/c elsewhere: far out most functions of given coordinates
    hardly depend on c any more, and a derivative that is a small rest of larger terms has no use
    for digits.
    """

    name: str
    function: Callable[..., Tensor]
    reference: Callable[..., Any]
    inputs: Inputs
    bound: Bound = well_conditioned
    gradient_bound: Bound | None = None
    gradients: bool = True
    strict_c: bool = False
    max_radius: dict[torch.dtype, float] = field(
        default_factory=lambda: {torch.float32: 40.0, torch.float64: 40.0}
    )
    min_dim: int = 1
    max_dim: int = max(DIMS)

    def cells(self, cells: Iterator[Cell]) -> Iterator[Cell]:
        """The cells the case can be measured in, and those at the very end of its reach."""
        for cell in cells:
            limit = self.max_radius[cell.dtype]
            if not self.min_dim <= cell.dim <= self.max_dim:
                continue
            if cell.radius <= limit:
                yield cell
            elif limit not in RADII and cell.radius == min(r for r in RADII if r > limit):
                yield replace(cell, radius=limit)


@dataclass(frozen=True)
class Errors:
    """Largest relative errors of a cell; a NaN or infinity counts as infinite."""

    value: float
    gradient: float
    c_gradient: float


# --- inputs, all in float64 -----------------------------------------------------------------------


def directions(n: int, dim: int, g: torch.Generator) -> Tensor:
    v = torch.randn(n, dim, dtype=torch.float64, generator=g)
    return v / v.norm(dim=-1, keepdim=True)


def points(cell: Cell, n: int, g: torch.Generator, scale: float = 1.0) -> Tensor:
    """Lorentz points at the cell's radius (times `scale`)."""
    return directions(n, cell.dim, g) * (math.sinh(cell.radius * scale) / math.sqrt(cell.c))


def tangents(x: Tensor, c: float, length: float, g: torch.Generator) -> Tensor:
    """Tangent vectors at x of metric norm `length`, in equal parts along and across the radius."""
    unit = directions(x.shape[0], x.shape[1], g)
    r = x / x.norm(dim=-1, keepdim=True)
    along = torch.sign((unit * r).sum(-1, keepdim=True)) * r
    along = along * torch.sqrt(1 + c * (x * x).sum(-1, keepdim=True))
    if x.shape[1] == 1:
        return length * along
    across = unit - (unit * r).sum(-1, keepdim=True) * r
    across = across / across.norm(dim=-1, keepdim=True)
    return length * math.sqrt(0.5) * (along + across)


def one_point(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    return [points(cell, n, g)]


def one_tangent(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """Tangent vectors at the origin of length radius/√c."""
    return [directions(n, cell.dim, g) * (cell.radius / math.sqrt(cell.c))]


def far_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """Directions at least 60° apart, radii 1 and 0.8 times the cell's."""
    return _apart(points(cell, n, g), points(cell, n, g, scale=0.8))


def _apart(x: Tensor, y: Tensor) -> list[Tensor]:
    """Turn y around where it lies within 60° of x: nearly parallel pairs have rounded angles."""
    close = torch.cosine_similarity(x, y, dim=-1).unsqueeze(-1) > 0.5
    return [x, torch.where(close, -y, y)]


def sideways_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """As `far_pair`, but neither close in direction nor opposite (on a line: on the same side)."""
    x, y = points(cell, n, g), points(cell, n, g, scale=0.8)
    u = x / x.norm(dim=-1, keepdim=True)
    along = (y * u).sum(-1, keepdim=True) * u
    if cell.dim == 1:
        return [x, y * torch.sign(x * y)]
    across = y - along
    return [x, across * (y.norm(dim=-1, keepdim=True) / across.norm(dim=-1, keepdim=True))]


def far_triple(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x, y = far_pair(cell, n, g)
    return [x, y, points(cell, n, g, scale=0.5)]


def near_triple(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x, y = near_pair(cell, n, g)
    return [x, y, (x + y) / 2]


def near_opposite_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """y close to −x: what a boost that takes x to the origin sees."""
    x, y = near_pair(cell, n, g)
    return [y, -x]


def unequal_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """One point far out, one at a tenth of its radius, in directions at least 60° apart."""
    return _apart(points(cell, n, g), points(cell, n, g, scale=0.1))


def origin_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x = points(cell, n, g)
    return [torch.zeros_like(x), x]


def near_pair(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """y one hundredth of min(radius, 1) away from x, in a random direction."""
    x = points(cell, n, g)
    step = NEAR_STEP * min(cell.radius, 1.0)
    v = tangents(x, cell.c, step / math.sqrt(cell.c), g)
    return [x, math.cosh(step) * x + math.sinh(step) / step * v]


def point_and_tangent(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A step of half the radius, at most 1/2; across it where its part along would be rounded off.

    Rounding a tangent vector along the radius turns it by eps·cosh(radius): beyond 0.1 the rounded
    vector has nothing to do with the one that was meant.
    """
    if cell.eps * math.cosh(cell.radius) > 0.1:
        return point_and_step_across(cell, n, g)
    x = points(cell, n, g)
    return [x, tangents(x, cell.c, 0.5 * min(cell.radius, 1.0) / math.sqrt(cell.c), g)]


def point_and_step_across(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A step of half the radius, at most 1/2, across the radius (along it on a line)."""
    x = points(cell, n, g)
    v = tangents(x, cell.c, 0.5 * min(cell.radius, 1.0) / math.sqrt(cell.c), g)
    if cell.dim > 1:
        r = x / x.norm(dim=-1, keepdim=True)
        v = v - (v * r).sum(-1, keepdim=True) * r
    return [x, v]


def point_and_covector(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """A covector at an acute angle to the point, so that their product does not cancel."""
    x = points(cell, n, g)
    u = directions(n, cell.dim, g)
    side = torch.where((u * x).sum(-1, keepdim=True) < 0, -1.0, 1.0)
    return [x, u + side * x / x.norm(dim=-1, keepdim=True)]


def point_and_two_tangents(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    """Two tangent vectors at an acute angle, so that their product does not cancel."""
    x, u = point_and_tangent(cell, n, g)
    v = tangents(x, cell.c, 0.3 * float(u.norm(dim=-1).min()), g)
    r = x / x.norm(dim=-1, keepdim=True)
    return [x, u, u + v - (v * r).sum(-1, keepdim=True) * r]


def far_pair_and_tangent(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x, y = far_pair(cell, n, g)
    return [x, y, tangents(x, cell.c, 1.0, g)]


def near_pair_and_tangent(cell: Cell, n: int, g: torch.Generator) -> list[Tensor]:
    x, y = near_pair(cell, n, g)
    return [x, y, tangents(x, cell.c, 1.0, g)]


# --- measuring ------------------------------------------------------------------------------------


def grid(
    radii: tuple[float, ...] = RADII,
    curvatures: tuple[float, ...] = CURVATURES,
    dims: tuple[int, ...] = DIMS,
    dtypes: tuple[torch.dtype, ...] = DTYPES,
) -> Iterator[Cell]:
    for dtype in dtypes:
        for radius in radii:
            for c in curvatures:
                for dim in dims:
                    yield Cell(dtype, radius, c, dim)


def measure(case: Case, cell: Cell, samples: int = 2) -> Errors:
    """Largest relative errors of `case` over `samples` inputs of the cell."""
    g = cell.generator(case.name)
    inputs = [t.to(cell.dtype).requires_grad_() for t in case.inputs(cell, samples, g)]
    c = torch.tensor([[cell.c]], dtype=cell.dtype).expand(samples, 1).clone().requires_grad_()
    out = case.function(*inputs, c)
    cotangent = torch.ones_like(out)
    if out.ndim == 2:
        cotangent = _cotangent(out, inputs[0], g).to(cell.dtype)
    grads = [None] * (len(inputs) + 1)
    if case.gradients:
        grads = torch.autograd.grad(out, [*inputs, c], cotangent, allow_unused=True)
    worst = [0.0, 0.0, 0.0]
    for i in range(samples):
        args = [mp.vector(t[i].tolist()) for t in inputs] + [mpmath.mpf(c[i].item())]
        w = mp.vector(cotangent[i].tolist()) if out.ndim == 2 else None
        value = case.reference(*args)
        worst[0] = max(worst[0], _relative(out[i], value))
        if not case.gradients:
            continue

        def scalar(*a: Any, w: Any = w) -> Any:
            value = case.reference(*a)
            return value if w is None else mp.dot(w, value)

        for k in range(len(inputs)):
            worst[1] = max(worst[1], _gradient_error(scalar, args, k, grads[k], i, cell, g))
        if grads[-1] is not None:
            truth = mp.directional(scalar, args, len(inputs), mpmath.mpf(1))
            floor = mp.size(value) if isinstance(value, list) else abs(value)
            floor = 0 if case.strict_c else floor / args[-1]
            worst[2] = max(worst[2], _relative(grads[-1][i, 0], truth, floor))
    return Errors(*worst)


def _cotangent(out: Tensor, base: Tensor, g: torch.Generator) -> Tensor:
    """Random, but far from parallel and from right angles to the base point and the result.

    Where a scalar product with them cancels, or the part across them is a small rest, the gradient
    has no digits to compare.
    """
    total = directions(out.shape[0], out.shape[1], g)
    if base.shape == out.shape and out.shape[1] > 1:
        r = torch.nn.functional.normalize(base.detach().double(), dim=-1)
        across = total - (total * r).sum(-1, keepdim=True) * r
        total = r + torch.nn.functional.normalize(across, dim=-1)
    unit = torch.nn.functional.normalize(out.detach().double(), dim=-1)
    side = torch.where((total * unit).sum(-1, keepdim=True) < 0, -0.5, 0.5)
    return total + side * unit


def _relative(value: Tensor, truth: Any, floor: Any = 0) -> float:
    """|value − truth|/max(|truth|, floor), for a number or in the Euclidean norm for a vector."""
    if not bool(torch.isfinite(value).all()):
        return math.inf
    if isinstance(truth, list):
        error = mp.size(mp.combine((1, mp.vector(value.tolist())), (-1, truth)))
        scale = mp.size(truth)
    else:
        error, scale = abs(mpmath.mpf(value.item()) - truth), abs(truth)
    scale = max(scale, floor)
    return 0.0 if error == 0 else (math.inf if scale == 0 else float(error / scale))


def _gradient_error(
    f: Callable[..., Any],
    args: list[Any],
    k: int,
    grads: Tensor,
    row: int,
    cell: Cell,
    g: torch.Generator,
) -> float:
    """Error of one gradient row relative to its norm."""
    if not bool(torch.isfinite(grads[row]).all()):
        return math.inf
    grad = mp.vector(grads[row].tolist())
    dim = len(grad)
    if dim <= _ALL_AXES:
        axes = [[mpmath.mpf(int(i == j)) for i in range(dim)] for j in range(dim)]
        truth = [mp.directional(f, args, k, e) for e in axes]
        return _relative(grads[row], truth)
    size = mp.size(grad)
    probes = [mp.vector(directions(1, dim, g)[0].tolist())]
    if size != 0:  # the computed gradient's own direction: catches one that is plainly wrong
        probes.append([v / size for v in grad])
    radius = mp.size(args[0])
    if radius != 0 and len(args[0]) == dim:
        probes.append([v / radius for v in args[0]])
    truths = [mp.directional(f, args, k, e) for e in probes]
    scale = max([size, *map(abs, truths)])
    if scale == 0:
        return 0.0
    return max(float(abs(mp.dot(grad, e) - t) / scale) for e, t in zip(probes, truths, strict=True))
