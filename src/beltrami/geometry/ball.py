r"""The scalars of a pair of points in the ball, with closed-form gradients.

Every two-point function of the Poincaré ball, and of the κ-stereographic model, is a combination of
its vectors with coefficients made of

    s = |y − x|²      A = 1 − c|x|²      B = 1 − c|y|²

(for sums such as Möbius addition, of |y + x|²). They are computed here, differences first, by
Functions that save their inputs only; what is built on top is autograd on one number a row. `c` may
have any sign: curvature is −c.

A and B are what limits a ball: one unit in the last place of x turns into 1/A of them, which is
eps·cosh(√c·r). They are taken as (1 − √c|x|)(1 + √c|x|), which adds no more than a few such units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from beltrami.geometry.checks import Scalar, debugging, no_autocast, prepare
from beltrami.geometry.chord import dot, root
from beltrami.geometry.radial_map import load_with_scalar, save_with_scalar, sum_to

# Elements of the (rows, m, d) blocks by which gradients of float64 pairs are worked through.
_BLOCK_ELEMENTS = 1 << 21


# √c times the norm of the outermost points that `project` leaves is 1 − 4 eps: rounding the
# coordinates and summing their squares cannot carry them over the border from there.
BORDER_EPS = 4.0


def prepare_in_ball(
    c: Scalar, vectors: dict[str, Tensor] | None = None, **points: Tensor
) -> tuple[list[Tensor], Scalar, torch.dtype]:
    """`prepare` for points of the ball, checked inside `debug()`, and then other vectors."""
    tensors, c, dtype = prepare(c, **points, **(vectors or {}))
    if debugging():
        for name, x in zip(points, tensors, strict=False):
            check_inside(name, x, c)
    return tensors, c, dtype


def check_inside(name: str, x: Tensor, c: Scalar) -> None:
    """Raise `ValueError` if a row of x is not in the ball |x| < 1/√c. Waits for the device."""
    outside = gap(x.detach(), c) <= 0
    if bool(outside.any()):
        norm = torch.linalg.vector_norm(x.detach(), dim=-1, keepdim=True) * c**0.5
        raise ValueError(
            f"{name} has {int(outside.sum())} points outside the ball |x| < 1/√c: the worst has "
            f"√c·|x| = {float(norm.max())}; poincare.project pulls points inside"
        )


def gap(x: Tensor, c: Scalar) -> Tensor:
    """`1 − c|x|²`, shape (..., 1): the distance to the border, and 2 over the conformal factor."""
    out: Tensor = _Gap.apply(x, c)
    return out


def pair(x: Tensor, y: Tensor, c: Scalar, sign: int = -1) -> tuple[Tensor, Tensor, Tensor]:
    """s = |y − x|², or |y + x|² for sign = 1, A and B of x and y, each (..., 1)."""
    out: tuple[Tensor, Tensor, Tensor] = _Pair.apply(x, y, c, sign, False)
    return out


def pair_and_ratio(x: Tensor, y: Tensor, c: Scalar) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`pair(x, y, c)` and A/B, whose gradient in c does not cancel for close points.

    Apart from `pair`, which also serves where a step has rounded y onto the border and B is 0.
    """
    out: tuple[Tensor, Tensor, Tensor, Tensor] = _Pair.apply(x, y, c, -1, True)
    return out


def combine(x: Tensor, y: Tensor, a: Tensor, b: Tensor, sign: int = -1) -> Tensor:
    """`a·(y + sign·x) + b·x` with coefficients a, b of shape (..., 1)."""
    out: Tensor = _Combine.apply(x, y, a, b, sign)
    return out


def combine_three(x: Tensor, y: Tensor, v: Tensor, a: Tensor, b: Tensor, e: Tensor) -> Tensor:
    """`a·(y − x) + b·x + e·v` with coefficients of shape (..., 1)."""
    out: Tensor = _CombineThree.apply(x, y, v, a, b, e)
    return out


def pairwise_sq(x: Tensor, y: Tensor) -> Tensor:
    """`|x_i − y_j|²` for rows (..., n, d) and (..., m, d): (..., n, m). Exact 0 for equal rows."""
    out: Tensor = _PairwiseSq.apply(x, y)
    return out


def turn(
    x: Tensor, y: Tensor, w: Tensor, c: Scalar, *, metric: bool, total: Tensor | None = None
) -> Tensor:
    """The rotation gyr[y, −x] of w, times B/A if `metric`: parallel transport from x to y.

    `w + (2c/D)·[(A·p − c·s·k)·x − ((B + c·s)·k + c|x|²·p)·(y − x)]` with p = (y − x)·w, k = x·w and
    D = AB + c·s, or `total`.
    """
    s, a, b, p, k, *ratio = _PairAndVector.apply(x, y, w, c, metric)
    cs = c * s
    gain = 2 * c / (a * b + cs if total is None else total)
    along_x = gain * (a * p - cs * k)
    along_step = -gain * ((b + cs) * k + (1 - a) * p)
    scale = 1 / ratio[0] if metric else torch.ones_like(a)
    return combine_three(x, y, w, along_step * scale, along_x * scale, scale)


def mobius(x: Tensor, y: Tensor, c: Scalar) -> Tensor:
    """Möbius addition x ⊕ y, `(A·(x + y) + c·s·x)/(AB + c·s)` with s = |x + y|²."""
    s, a, b = pair(x, y, c, 1)
    cs = c * s
    total = a * b + cs
    return combine(x, y, a / total, cs / total, 1)


def halfway(x: Tensor, y: Tensor, c: Scalar, *, total: Tensor | None = None) -> Tensor:
    """The midpoint, `(B·x + A·y)/(√(AB·D) + A + B − AB)` with D = AB + c·s, or `total`."""
    s, a, b = pair(x, y, c)
    ab = a * b
    weight = root(ab * (ab + c * s if total is None else total)) + a + b * (1 - a)
    return b / weight * x + a / weight * y


def _gap(x: Tensor, c: Scalar) -> Tensor:
    n: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    if isinstance(c, Tensor):
        z = c.abs().sqrt() * n
        return torch.where(c > 0, (1 - z) * (1 + z), 1 + z * z)
    z = math.sqrt(abs(c)) * n
    return (1 - z) * (1 + z) if c > 0 else 1 + z * z


def _sq(x: Tensor) -> Tensor:
    n: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return n * n


def _one_shape(*scalars: Tensor) -> Sequence[Tensor]:
    """Broadcast the outputs of a Function, whose backward adds their gradients before it sums.

    As copies: a Function that returns views loses its gradient under torch.compile before 2.13.
    """
    # One by one: a set of shapes would make a compiler fix every dynamic size.
    if all(t.shape == scalars[0].shape for t in scalars[1:]):
        return scalars
    return [t.clone() for t in torch.broadcast_tensors(*scalars)]


class _Gap(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, c: Scalar) -> Tensor:
        return _gap(x, c)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Scalar], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, c = load_with_scalar(ctx)
        gx = gc = None
        if ctx.needs_input_grad[0]:
            gx = sum_to((-2 * c * g) * x, x)
        if ctx.needs_input_grad[1] and isinstance(c, Tensor):
            gc = sum_to(-g * dot(x, x), c)
        return gx, gc


class _Pair(torch.autograd.Function):
    """s, A, B and, `with_ratio`, A/B."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, c: Scalar, sign: int, with_ratio: bool) -> tuple[Tensor, ...]:
        s = _sq(torch.add(y, x, alpha=sign))
        s, a, b = _one_shape(s, _gap(x, c), _gap(y, c))
        return (s, a, b, a / b) if with_ratio else (s, a, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, y, c, ctx.sign, with_ratio = inputs
        save_with_scalar(ctx, x, y, *(output[2:] if with_ratio else ()), c)

    @staticmethod
    def backward(
        ctx: Any, gs: Tensor, ga: Tensor, gb: Tensor, *gr: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, y, *of_ratio, c = load_with_scalar(ctx)
        gx = gy = gc = None
        step = torch.add(y, x, alpha=ctx.sign)
        ga_all, gb_all = _with_ratio(ga, gb, *gr, *of_ratio)
        if ctx.needs_input_grad[0]:
            gx = sum_to(torch.addcmul((2 * ctx.sign * gs) * step, -2 * c * ga_all, x), x)
        if ctx.needs_input_grad[1]:
            gy = sum_to(torch.addcmul((2 * gs) * step, -2 * c * gb_all, y), y)
        if ctx.needs_input_grad[2] and isinstance(c, Tensor):
            gc = sum_to(_by_curvature(x, y, ga, gb, *gr, *of_ratio), c)
        return gx, gy, gc, None, None


def _with_ratio(ga: Tensor, gb: Tensor, *parts: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients in A and B with what A/B adds; `parts` is empty, or its gradient, B and A/B."""
    if not parts:
        return ga, gb
    gr, b, ratio = parts
    return ga + gr / b, gb - gr * ratio / b


def _by_curvature(x: Tensor, y: Tensor, ga: Tensor, gb: Tensor, *parts: Tensor) -> Tensor:
    """From `∂A/∂c = −|x|²`, `∂B/∂c = −|y|²` and `B²·∂(A/B)/∂c = |y|² − |x|² = (y−x)·(y+x)`."""
    out = -ga * dot(x, x) - gb * dot(y, y)
    return out + parts[0] / (parts[1] * parts[1]) * dot(y - x, y + x) if parts else out


class _PairAndVector(torch.autograd.Function):
    """s, A, B, (y − x)·v, x·v and, `with_ratio`, A/B, each (..., 1)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, v: Tensor, c: Scalar, with_ratio: bool) -> tuple[Tensor, ...]:
        step = y - x
        s, a, b, p, k = _one_shape(_sq(step), _gap(x, c), _gap(y, c), dot(step, v), dot(x, v))
        return (s, a, b, p, k, a / b) if with_ratio else (s, a, b, p, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, y, v, c, with_ratio = inputs
        save_with_scalar(ctx, x, y, v, *((output[2], output[5]) if with_ratio else ()), c)

    @staticmethod
    def backward(
        ctx: Any, gs: Tensor, ga: Tensor, gb: Tensor, gp: Tensor, gk: Tensor, *gr: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, y, v, *of_ratio, c = load_with_scalar(ctx)
        gx = gy = gv = gc = None
        step = y - x
        ga_all, gb_all = _with_ratio(ga, gb, *gr, *of_ratio)
        if ctx.needs_input_grad[0]:
            gx = torch.addcmul((-2 * gs) * step, -2 * c * ga_all, x)
            gx = sum_to(torch.addcmul(gx, gk - gp, v), x)
        if ctx.needs_input_grad[1]:
            gy = torch.addcmul((2 * gs) * step, -2 * c * gb_all, y)
            gy = sum_to(torch.addcmul(gy, gp, v), y)
        if ctx.needs_input_grad[2]:
            gv = sum_to(torch.addcmul(gp * step, gk, x), v)
        if ctx.needs_input_grad[3] and isinstance(c, Tensor):
            gc = sum_to(_by_curvature(x, y, ga, gb, *gr, *of_ratio), c)
        return gx, gy, gv, gc, None


class _Combine(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, a: Tensor, b: Tensor, sign: int) -> Tensor:
        return torch.addcmul(a * torch.add(y, x, alpha=sign), b, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:4])
        ctx.sign = inputs[4]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, y, a, b = ctx.saved_tensors
        gx = gy = None
        if ctx.needs_input_grad[0]:
            gx = sum_to((ctx.sign * a + b) * g, x)
        if ctx.needs_input_grad[1]:
            gy = sum_to(a * g, y)
        ga = sum_to(dot(torch.add(y, x, alpha=ctx.sign), g), a)
        return gx, gy, ga, sum_to(dot(x, g), b), None


class _CombineThree(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, v: Tensor, a: Tensor, b: Tensor, e: Tensor) -> Tensor:
        return torch.addcmul(torch.addcmul(a * (y - x), b, x), e, v)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, y, v, a, b, e = ctx.saved_tensors
        gx = gy = gv = None
        if ctx.needs_input_grad[0]:
            gx = sum_to((b - a) * g, x)
        if ctx.needs_input_grad[1]:
            gy = sum_to(a * g, y)
        if ctx.needs_input_grad[2]:
            gv = sum_to(e * g, v)
        ga, gb, ge = sum_to(dot(y - x, g), a), sum_to(dot(x, g), b), sum_to(dot(v, g), e)
        return gx, gy, gv, ga, gb, ge


class _PairwiseSq(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        # Not by a matrix product, which would lose half of the digits of close pairs.
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        gx = gy = None
        if ctx.needs_input_grad[0]:
            gx = sum_to(_weighted_steps(x, y, 2 * g), x)
        if ctx.needs_input_grad[1]:
            gy = sum_to(_weighted_steps(y, x, 2 * g.transpose(-1, -2)), y)
        return gx, gy


def _weighted_steps(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """`Σ_j w_ij·(x_i − y_j)`, (..., n, d).

    float32 goes through one float64 matrix product, whose rounding is below what float32 points
    resolve; float64 has no wider product and takes the differences first, a block at a time.
    """
    if x.dtype != torch.float64 and x.device.type != "mps":
        with no_autocast(x):
            w, wide = w.double(), x.double()
            return (w.sum(-1, keepdim=True) * wide - w @ y.double()).to(x.dtype)
    rows = max(1, _BLOCK_ELEMENTS // max(1, y.shape[-2] * y.shape[-1]))
    blocks = [
        (w[..., i : i + rows, :, None] * (x[..., i : i + rows, None, :] - y[..., None, :, :])).sum(
            -2
        )
        for i in range(0, max(x.shape[-2], 1), rows)
    ]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=-2)
