r"""Points of Sarkar's construction in arithmetic of any precision.

Each inner node v holds a frame: a Lorentz matrix F whose column 0 is the point (t, x) and whose
other columns are an orthonormal basis of the tangent space there. A neighbour in the direction s
(a unit vector in that basis) at distance τ is

    p = cosh τ·F₀ + sinh τ·f,    f = Σ_i s_i·F_i,

and the frame transported there along the edge is F_i + s_i·(sinh τ·F₀ + cosh τ·f − f), in whose
coordinates the way back is −s. The neighbours of a node are at the directions of a spherical code
that is turned until its first direction is the way back.

With a precision of p bits the coordinates of a point at radius r are right to a few 2^−p·e^r, and
that is how far the point is off: radius R takes R/log 2 bits more than the accuracy wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from beltrami.models.hierarchy.spherical_code import spherical_code

Number = Any  # mpmath's numbers have no types
Vector = list[Number]
Matrix = list[Vector]  # by rows

ACCURACY_BITS = 64  # points are right to 2^−64 curvature radii
_GUARD_BITS = 16


def context(bits: int) -> Any:
    """An mpmath context of its own with this precision, so that nobody else's is changed."""
    from mpmath.ctx_mp import MPContext  # type: ignore[import-untyped]

    made = MPContext()
    made.prec = bits
    return made


def bits_needed(edge: float, depth: int, dim: int) -> int:
    """Bits at which the points of a tree of this depth are right to `ACCURACY_BITS`."""
    radius = math.ceil(edge * depth / math.log(2))
    steps = math.ceil(2 * math.log2((depth + 1) * dim))
    return radius + ACCURACY_BITS + _GUARD_BITS + steps


def place(
    children: Sequence[Sequence[int]], edge: Number, dim: int, ctx: Any
) -> tuple[list[Vector], Tensor]:
    """Space coordinates of all nodes, and the direction in which each is seen from its parent.

    Args:
        children: of each node; node 0 is the root, and a parent comes before its children.
        edge: τ in units of the curvature radius, a number of the context.
        dim: of the space.
        ctx: where the arithmetic is done.

    Returns:
        n vectors of `dim` numbers (curvature −1), and float64 (n, dim): unit vectors in the frames
        of the parents, 0 for the root.
    """
    cosh, sinh = ctx.cosh(edge), ctx.sinh(edge)
    codes: dict[int, list[Vector]] = {}
    unit, zero = ctx.mpf(1), ctx.mpf(0)
    identity = [[unit if i == j else zero for j in range(dim + 1)] for i in range(dim + 1)]
    frames: dict[int, tuple[Matrix, Vector | None]] = {0: (identity, None)}
    points: list[Vector] = [[zero] * dim for _ in children]
    headings = [[0.0] * dim for _ in children]
    for node, below in enumerate(children):
        if not below:
            continue
        frame, back = frames.pop(node)
        count = len(below) + (back is not None)
        if count not in codes:
            codes[count] = _exact_code(count, dim, ctx)
        for child, s in zip(below, _turned(codes[count], back, ctx), strict=True):
            headings[child] = [float(a) for a in s]
            f = [ctx.fdot(row[1:], s) for row in frame]
            points[child] = [
                cosh * row[0] + sinh * a for row, a in zip(frame[1:], f[1:], strict=True)
            ]
            if children[child]:
                frames[child] = _moved(frame, f, s, cosh, sinh), [-a for a in s]
    return points, torch.tensor(headings, dtype=torch.float64)


def _moved(frame: Matrix, f: Vector, s: Vector, cosh: Number, sinh: Number) -> Matrix:
    """The frame one edge further in the direction s, which is f in the ambient space."""
    rows = []
    for row, along in zip(frame, f, strict=True):
        turn = sinh * row[0] + cosh * along - along
        rows.append(
            [cosh * row[0] + sinh * along] + [a + b * turn for a, b in zip(row[1:], s, strict=True)]
        )
    return rows


def _exact_code(count: int, dim: int, ctx: Any) -> list[Vector]:
    """The spherical code in the context's precision: in the plane the roots of unity."""
    if dim == 2:
        shares = [ctx.mpf(2 * j) / count for j in range(count)]
        return [[ctx.cospi(share), ctx.sinpi(share)] for share in shares]
    rows = [[ctx.mpf(a) for a in row] for row in spherical_code(count, dim).tolist()]
    lengths = [ctx.sqrt(ctx.fdot(row, row)) for row in rows]
    return [[a / length for a in row] for row, length in zip(rows, lengths, strict=True)]


def _turned(code: list[Vector], back: Vector | None, ctx: Any) -> list[Vector]:
    """The directions of a node's children: the code turned so that its first one is `back`."""
    if back is None:
        return code
    if len(back) == 2:  # a rotation, which keeps the order of the children around every node
        (bx, by), rest = back, code[1:]  # the first direction is (1, 0)
        return [[bx * x - by * y, bx * y + by * x] for x, y in rest]
    reflect = _reflection(code[0], back, ctx)
    return [reflect(direction) for direction in code[1:]]


def _reflection(a: Vector, b: Vector, ctx: Any) -> Callable[[Vector], Vector]:
    """An orthogonal map that takes the unit vector a to b.

    The mirror of a − b does, and so does minus the mirror of a + b; the longer of the two has the
    digits.
    """
    sign = 1 if ctx.fdot(a, b) < 0 else -1
    normal = [p - sign * q for p, q in zip(a, b, strict=True)]
    scale = 2 / ctx.fdot(normal, normal)

    def reflect(x: Vector) -> Vector:
        along = scale * ctx.fdot(normal, x)
        return [sign * (p - along * q) for p, q in zip(x, normal, strict=True)]

    return reflect


def distance(x: Vector, y: Vector, ctx: Any) -> Number:
    """Hyperbolic distance (curvature −1) of two points in the precision they are known to.

    sinh²(d/2) = sinh²((r_x − r_y)/2) + |m·x − n·y|²/(4nm), with n = |x| = sinh r_x and m = |y|: no
    digits are lost beyond those that the points themselves lack.
    """
    n, m = ctx.sqrt(ctx.fdot(x, x)), ctx.sqrt(ctx.fdot(y, y))
    radial = ctx.asinh(n) - ctx.asinh(m)
    if n == 0 or m == 0:
        return abs(radial)
    gap = [m * a - n * b for a, b in zip(x, y, strict=True)]
    square = ctx.sinh(radial / 2) ** 2 + ctx.fdot(gap, gap) / (4 * n * m)
    return 2 * ctx.asinh(ctx.sqrt(square))
