"""All distances between two sets of Lorentz points, in O(n·m) memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from beltrami.geometry import radial
from beltrami.geometry.checks import Scalar, no_autocast, prepare
from beltrami.geometry.chord import (
    chord_gradient,
    chord_of_parts,
    chord_parts,
    curvature_derivative,
    dist_of_chord,
    over,
    root,
    swap_parts,
)
from beltrami.geometry.radial_map import load_with_scalar, save_with_scalar, sum_to
from beltrami.geometry.sets import check_sets

# Elements of the (rows, m, d) blocks by which float64 inputs are worked through.
_BLOCK_ELEMENTS = 1 << 21


def pairwise_dist(x: Tensor, y: Tensor, c: Scalar = 1.0) -> Tensor:
    """Distances between all pairs of rows, (..., n, d) and (..., m, d) to (..., n, m).

    float32 (and half) inputs go through one float64 matrix product of directions,

        sinh²(√c·d/2) = sinh²(√c(r_x − r_y)/2) + c·|x||y|·(1 − x̂·ŷ)/2,

    whose rounding stays below the near-pairs bound of float32; a float32 product would lose half
    of the digits near the diagonal. float64 inputs have no wider product to go through and use the
    elementwise formula of `dist` in blocks of rows. Coincident rows get a distance of up to
    4e-8·sinh(√c·r)/√c in float32, exactly 0 in float64, and no gradient either way. Memory: a few
    n·m matrices, never n·m·d; only the inputs are kept for the backward pass.

    Args:
        x: (..., n, d). y: (..., m, d).
        c: curvature −c, one for each set: a float, a tensor of shape (1,), or (..., 1, 1).
    """
    (x, y), c, _ = prepare(c, x=x, y=y)
    check_sets(x, y, c)
    out: Tensor = _PairwiseDist.apply(x, y, c)
    return out


def all_distances(x: Tensor, y: Tensor, c: Scalar) -> Tensor:
    """`pairwise_dist` of checked inputs, in float64 and without a gradient of its own."""
    if x.dtype == torch.float64:
        blocks = [
            dist_of_chord(chord_of_parts(a, b, chord_parts(a, b, k), k), k).squeeze(-1)
            for _, a, b, k in _blocks(x, y, c)
        ]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=-2)
    with no_autocast(x):
        wide = c.double() if isinstance(c, Tensor) else c
        return dist_of_chord(_gram(x.double(), y.double(), wide).chord, wide)


def all_gradients(
    x: Tensor, y: Tensor, c: Scalar, g: Tensor, needs: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of `(g·all_distances(x, y, c)).sum()` in x, y and c, in float64.

    Computed from the inputs alone, and only where `needs` says so.
    """
    if x.dtype == torch.float64:
        return _elementwise_gradients(x, y, c, g, needs)
    with no_autocast(x):
        return _gram_gradients(x, y, c, g, needs)


# --- float64: pair by pair ------------------------------------------------------------------------


def _blocks(x: Tensor, y: Tensor, c: Scalar) -> Iterator[tuple[slice, Tensor, Tensor, Scalar]]:
    """Blocks of rows of x, (..., rows, 1, d), with y (..., 1, m, d) and a c that broadcasts."""
    if isinstance(c, Tensor) and c.ndim > 1:
        c = c.unsqueeze(-2)
    n, columns = x.shape[-2], y.unsqueeze(-3)
    size = max(1, _BLOCK_ELEMENTS // max(1, y.shape[-2] * y.shape[-1]))
    for i in range(0, max(n, 1), size):
        rows = slice(i, min(n, i + size))
        yield rows, x[..., rows, None, :], columns, c


def _elementwise_gradients(
    x: Tensor, y: Tensor, c: Scalar, g: Tensor, needs: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    by_row: list[Tensor] = []
    gy = gc = None
    for rows, a, b, k in _blocks(x, y, c):
        w = g[..., rows, :, None]
        p = chord_parts(a, b, k)
        chord = chord_of_parts(a, b, p, k)
        q = k * chord / 4
        length = root(chord)
        h = w * over(1 / (2 * torch.sqrt(1 + q)), length)  # 0 where the distance is
        if needs[0]:
            by_row.append(chord_gradient(a, b, k, p, h, 1).sum(-2))
        if needs[1]:
            part = sum_to(chord_gradient(b, a, k, swap_parts(p), h, -1).sum(-3), y)
            gy = part if gy is None else gy + part
        if needs[2] and isinstance(c, Tensor):
            by_chord = curvature_derivative(p.shift, p.n, p.m, p.tx, p.ty, k)
            by_scale = w * length * radial.asinhc_sq_gain(q) / k
            part = sum_to((h * by_chord + by_scale).squeeze(-1), c)
            gc = part if gc is None else gc + part
    gx = sum_to(by_row[0] if len(by_row) == 1 else torch.cat(by_row, -2), x) if needs[0] else None
    return gx, gy, gc


# --- float32: one product in float64 --------------------------------------------------------------


class _Gram(NamedTuple):
    """Scalars of all pairs in float64: (…, n, 1), (…, 1, m) or (…, n, m)."""

    n: Tensor
    m: Tensor
    tx: Tensor
    ty: Tensor
    u: Tensor  # directions of x, (…, n, d)
    w: Tensor  # directions of y, (…, m, d)
    shift: Tensor  # S of chord.py
    chord: Tensor


def _unit(x: Tensor) -> tuple[Tensor, Tensor]:
    n = root((x * x).sum(-1, keepdim=True))
    return n, x / torch.where(n > 0, n, 1.0)


def _gram(x: Tensor, y: Tensor, c: Scalar) -> _Gram:
    (n, u), (m, w) = _unit(x), _unit(y)
    m = m.transpose(-1, -2)
    tx, ty = torch.sqrt(1 + c * n * n), torch.sqrt(1 + c * m * m)
    mixed = n * ty + m * tx
    shift = (n - m) * (n + m) / torch.where(mixed > 0, mixed, 1.0)
    s2 = shift * shift
    # 1 − x̂·ŷ is not negative; in float64 its rounding is far below what float32 inputs resolve.
    turn = (1 - u @ w.transpose(-1, -2)).clamp(min=0)
    chord = 2 * s2 / (1 + torch.sqrt(1 + c * s2)) + 2 * n * m * turn
    return _Gram(n, m, tx, ty, u, w, shift, chord)


def _gram_gradients(
    x: Tensor, y: Tensor, c: Scalar, g: Tensor, needs: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    wide = c.double() if isinstance(c, Tensor) else c
    p = _gram(x.double(), y.double(), wide)
    g = g.double()
    q = wide * p.chord / 4
    # ∂d/∂Q = 1/(2√Q√(1+q)), with the rounding of `turn` as a floor under √Q: without it the
    # gradient of coincident points is 0/0, and that of unresolved ones grows at will.
    raised = p.chord + 2 * p.n * p.m * torch.finfo(torch.float64).eps
    apart = raised > 0
    slope = 1 / (2 * torch.sqrt(torch.where(apart, raised, 1.0)))
    h = torch.where(apart, g * slope / torch.sqrt(1 + q), 0.0)
    gx = gy = gc = None
    if needs[0]:
        along = 2 * h * (p.shift / p.tx + p.m)
        gx = sum_to(along.sum(-1, keepdim=True) * p.u - (2 * h * p.m) @ p.w, x)
    if needs[1]:
        along = 2 * h * (p.n - p.shift / p.ty)
        gy = along.sum(-2).unsqueeze(-1) * p.w - (2 * h * p.n).transpose(-1, -2) @ p.u
        gy = sum_to(gy, y)
    if needs[2] and isinstance(c, Tensor):
        by_chord = curvature_derivative(p.shift, p.n, p.m, p.tx, p.ty, wide)
        by_scale = g * root(p.chord) * radial.asinhc_sq_gain(q) / wide
        gc = sum_to(h * by_chord + by_scale, c)
    return gx, gy, gc


class _PairwiseDist(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, c: Scalar) -> Tensor:
        out = all_distances(x, y, c)
        # A cast that does nothing would lose the gradient when torch 2.11 traces it.
        return out if out.dtype == x.dtype else out.to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Scalar], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, y, c = load_with_scalar(ctx)
        gx, gy, gc = all_gradients(x, y, c, g, ctx.needs_input_grad)
        return (
            None if gx is None else gx.to(x.dtype),
            None if gy is None else gy.to(y.dtype),
            None if gc is None else gc.to(c.dtype),
        )
