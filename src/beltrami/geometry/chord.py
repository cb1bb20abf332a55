r"""The Lorentzian chord `|x − y|²_L` and the distances made of it, with closed-form gradients.

All of the Lorentz model's two-point functions are smooth functions of the squared chord

    Q(x, y) = |x − y|²_L = (4/c)·sinh²(√c·d/2),

so this file is where their accuracy is decided. Textbook forms take Q as a small difference of
large numbers. Here it is a sum of two terms that are never negative, with n = |x|, m = |y|,
T(x) = √(1 + c·n²) (time in units of 1/√c) and `lo` the point of smaller norm:

    σ = ⟨x − y, x + y⟩              Δ = σ/(n + m)               (= n − m, without cancellation)
    S = Δ·(n + m)/(n·T(y) + m·T(x))                             (= sinh(√c(r_x − r_y))/√c)
    Q = 2S²/(1 + √(1 + c·S²))  +  (n_lo/n_hi)·|x − y − Δ·lo/n_lo|²
        along the radius           across it

It is symmetric, exactly 0 at x = y, and needs no clamp. The gradient is split in the same way, and
`∂Q/∂c` is a product of positive factors, so that a learnable curvature gets a gradient with digits
in it even for tiny distances, where `Q` hardly depends on c.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from beltrami.geometry import radial
from beltrami.geometry.checks import Scalar
from beltrami.geometry.radial_map import load_with_scalar, save_with_scalar, sum_to

# c·|x|² below which a point counts as near the origin for the choice of gradient formula, and a
# stricter one for being near while the other point is not.
_NEAR = 1.0
_NEAR_ALONE = 0.25

# Ratio of norms below which the nearer point counts as the origin: far below eps of float64.
_NEGLIGIBLE = 1e-18


def squared_chord(x: Tensor, y: Tensor, c: Scalar) -> Tensor:
    """`|x − y|²_L`, shape (..., 1). Twice differentiable everywhere; saves its inputs only."""
    out: Tensor = _Chord.apply(x, y, c, False)
    return out


def half_sinh_sq(x: Tensor, y: Tensor, c: Scalar) -> Tensor:
    """`sinh²(√c·d/2) = c·|x − y|²_L/4`, shape (..., 1). As `squared_chord`."""
    out: Tensor = _Chord.apply(x, y, c, True)
    return out


def dist_of_chord(chord: Tensor, c: Scalar) -> Tensor:
    """Geodesic distance `(2/√c)·asinh(√(c·Q)/2)`; its gradient at Q = 0 is taken as 0."""
    out: Tensor = _DistOfChord.apply(chord, c)
    return out


def dist_sq_of_chord(chord: Tensor, c: Scalar) -> Tensor:
    """Squared geodesic distance, analytic in Q also at 0."""
    out: Tensor = _DistSqOfChord.apply(chord, c)
    return out


def log_coefficients(q: Tensor) -> tuple[Tensor, Tensor]:
    """The positive (a, b) of `log_x(y) = a·(y − x) − b·x`, as functions of q = sinh²(√c·d/2).

    a = asinh(√q)/(√q·√(1+q)) and b = 2q·a.
    """
    a: Tensor = radial.asinhc_sq(q) / torch.sqrt(1 + q)
    b: Tensor = _LogRadial.apply(q)
    return a, b


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product over the last dimension, which is kept."""
    return (a * b).sum(-1, keepdim=True)


def times_of(n2: Tensor, c: Scalar) -> tuple[Tensor, Tensor]:
    """Time t = √(1/c + |x|²) and its excess τ = t − 1/√c = |x|²/(t + 1/√c), from |x|²."""
    t = torch.sqrt(1 / c + n2)
    return t, n2 / (t + c**-0.5)


def root(q: Tensor) -> Tensor:
    """√q with gradient 0, not infinity, at q = 0."""
    zero = q <= 0  # not its opposite, q > 0, which would hide NaN
    return torch.where(zero, 0.0, torch.where(zero, 1.0, q).sqrt())


def over(a: Tensor, b: Tensor) -> Tensor:
    """a/b, and 0 where b = 0."""
    return torch.where(b > 0, a / torch.where(b > 0, b, 1.0), 0.0)


class ChordParts(NamedTuple):
    """The scalars of a pair, each (..., 1); names as in the formula above."""

    delta: Tensor  # x − y, (..., d)
    n2: Tensor
    m2: Tensor
    n: Tensor
    m: Tensor
    tx: Tensor
    ty: Tensor
    sigma: Tensor
    diff: Tensor  # Δ
    shift: Tensor  # S


def chord_parts(x: Tensor, y: Tensor, c: Scalar) -> ChordParts:
    """The scalars of a pair of points."""
    delta = x - y
    n2, m2, sigma = dot(x, x), dot(y, y), dot(delta, x + y)
    n, m = root(n2), root(m2)
    tx, ty = torch.sqrt(1 + c * n2), torch.sqrt(1 + c * m2)
    total = n + m
    diff = over(sigma, total)
    shift = diff * over(total, n * ty + m * tx)
    return ChordParts(delta, n2, m2, n, m, tx, ty, sigma, diff, shift)


def chord_of_parts(x: Tensor, y: Tensor, p: ChordParts, c: Scalar) -> Tensor:
    """Q, from the parts of its pair."""
    return _along(p, c) + _across(x, y, p)


def _along(p: ChordParts, c: Scalar) -> Tensor:
    """The part of Q along the radius."""
    s2 = p.shift * p.shift
    return 2 * s2 / (1 + torch.sqrt(1 + c * s2))


def _across(x: Tensor, y: Tensor, p: ChordParts) -> Tensor:
    """The part of Q across the radius."""
    if x.shape[-1] == 1:  # on a line: exactly 0, or the way through the origin
        return torch.where(x * y < 0, 4 * p.n * p.m, 0.0)
    x_is_lo = p.n <= p.m
    lo_norm, hi_norm = torch.where(x_is_lo, p.n, p.m), torch.where(x_is_lo, p.m, p.n)
    # A point this close to the origin has no share in the result, and 1/|lo| may overflow.
    counts = lo_norm > _NEGLIGIBLE * hi_norm
    turn = torch.where(counts, p.diff, 0.0) / torch.where(counts, lo_norm, 1.0)
    turn_x, turn_y = torch.where(x_is_lo, -turn, 0.0), torch.where(x_is_lo, 0.0, -turn)
    w = torch.addcmul(torch.addcmul(p.delta, turn_x, x), turn_y, y)
    return over(lo_norm, hi_norm) * dot(w, w)


class _Chord(torch.autograd.Function):
    """Q, or c·Q/4 when `scaled`.

    The scaled form is not left to the product rule: its derivative in c is the sum of two positive
    terms, of which `Q/4 + (c/4)·∂Q/∂c` is a cancelling difference.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, c: Scalar, scaled: bool) -> Tensor:
        p = chord_parts(x, y, c)
        chord = chord_of_parts(x, y, p, c)
        return c * chord / 4 if scaled else chord

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs[:3])
        ctx.scaled = inputs[3]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, y, c = load_with_scalar(ctx)
        p = chord_parts(x, y, c)
        by_chord = c * g / 4 if ctx.scaled else g
        gx = gy = gc = None
        if ctx.needs_input_grad[0]:
            gx = sum_to(chord_gradient(x, y, c, p, by_chord, 1), x)
        if ctx.needs_input_grad[1]:
            gy = sum_to(chord_gradient(y, x, c, swap_parts(p), by_chord, -1), y)
        if ctx.needs_input_grad[2] and isinstance(c, Tensor):
            if ctx.scaled:
                by_c = _scaled_curvature_derivative(x, y, p, c)
            else:
                by_c = curvature_derivative(p.shift, p.n, p.m, p.tx, p.ty, c)
            gc = sum_to(g * by_c, c)
        return gx, gy, gc, None


def swap_parts(p: ChordParts) -> ChordParts:
    """The parts of (y, x), but for `delta`, whose sign is left to a scalar."""
    return ChordParts(p.delta, p.m2, p.n2, p.m, p.n, p.ty, p.tx, -p.sigma, -p.diff, -p.shift)


def chord_gradient(x: Tensor, y: Tensor, c: Scalar, p: ChordParts, g: Tensor, sign: int) -> Tensor:
    """`g·∂Q/∂x` as a combination a·(x−y) + b·x + e·y; `sign·p.delta` is x − y.

    Three exact forms of `∂Q/∂x = 2[(x − y) − (T(x) − T(y))/T(x)·x]`, each where it does not cancel:
    as it stands near the origin; as `(T(y)/T(x))·x − y` when only y is near it; and split along
    and across the radius, `(S/T(x))·x̂ + m·(x̂ − ŷ)`, when neither is.
    """
    near_x = c * p.n2 < _NEAR
    only_y = ~near_x & (c * p.m2 < _NEAR_ALONE)
    drop = c * p.sigma / (p.tx + p.ty)  # T(x) − T(y)
    x_is_lo = p.n <= p.m
    n = torch.where(near_x, 1.0, p.n)  # safe to divide by
    along = p.shift / (p.tx * n)
    if x.shape[-1] == 1:
        same_side = x * y >= 0
        b = torch.where(same_side, along, along + 2 * p.m / n)
        b = torch.where(near_x, -drop / p.tx, torch.where(only_y, p.ty / p.tx, b))
        rest = torch.where(near_x, sign * p.delta, torch.where(only_y, -y, 0.0))
        return 2 * g * (rest + b * x)
    a = torch.where(near_x, 1.0, torch.where(only_y, 0.0, torch.where(x_is_lo, 1.0, p.m / n)))
    b = torch.where(x_is_lo, along - p.diff / n, along)
    b = torch.where(near_x, -drop / p.tx, torch.where(only_y, p.ty / p.tx, b))
    e = torch.where(x_is_lo, 0.0, -p.diff / n)
    e = torch.where(near_x, 0.0, torch.where(only_y, -1.0, e))
    g2 = 2 * g
    return torch.addcmul(torch.addcmul((g2 * a * sign) * p.delta, g2 * b, x), g2 * e, y)


def curvature_derivative(
    shift: Tensor, n: Tensor, m: Tensor, tx: Tensor, ty: Tensor, c: Scalar
) -> Tensor:
    """`∂Q/∂c` at fixed space parts: minus a product of positive factors."""
    s2 = shift * shift
    excess_x, excess_y = n * n / (1 + tx), m * m / (1 + ty)
    factor = c * excess_x * excess_y + excess_x + excess_y + n * m
    return -(s2 / (1 + torch.sqrt(1 + c * s2))) * (factor / (tx * ty))


def _scaled_curvature_derivative(x: Tensor, y: Tensor, p: ChordParts, c: Scalar) -> Tensor:
    """`∂(c·Q/4)/∂c = |T(y)·x − T(x)·y|²/(4·T(x)·T(y))`.

    As it stands when a point is near the origin, where it is smooth; summed along and across the
    radius when neither is, since it cancels there.
    """
    near_x, near_y = c * p.n2 < _NEAR, c * p.m2 < _NEAR
    both = near_x & near_y
    far = ~(near_x | near_y)
    # T(y)·x − T(x)·y, through x − y where both are near, over √(T(x)·T(y)) to stay in range
    rise = c * p.sigma / (p.tx + p.ty)  # T(x) − T(y)
    tx, ty = torch.where(far, 1.0, p.tx), torch.where(far, 1.0, p.ty)
    scale = 1 / torch.sqrt(tx * ty)
    by_step = torch.where(both, ty * scale, 0.0)
    by_x = torch.where(both | far, 0.0, ty * scale)
    by_y = torch.where(far, 0.0, -torch.where(both, rise, tx) * scale)
    v = by_step * p.delta + by_x * x + by_y * y
    split = (p.shift / p.tx) * (p.shift / p.ty) + _across(x, y, p)
    return torch.where(far, split, dot(v, v)) / 4


class _DistOfChord(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(chord: Tensor, c: Scalar) -> Tensor:
        return chord.sqrt() * radial.asinhc_sq(c * chord / 4)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Scalar], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None]:
        chord, c = load_with_scalar(ctx)
        q = c * chord / 4
        length = root(chord)
        g_chord = g * over(1 / (2 * torch.sqrt(1 + q)), length)
        gc = None
        if ctx.needs_input_grad[1] and isinstance(c, Tensor):
            gc = sum_to(g * length * radial.asinhc_sq_gain(q) / c, c)
        return g_chord, gc


class _DistSqOfChord(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(chord: Tensor, c: Scalar) -> Tensor:
        return chord * radial.asinhc_sq(c * chord / 4) ** 2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Scalar], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None]:
        chord, c = load_with_scalar(ctx)
        q = c * chord / 4
        ratio = radial.asinhc_sq(q)
        gc = None
        if ctx.needs_input_grad[1] and isinstance(c, Tensor):
            gc = sum_to(g * (2 * chord * ratio * radial.asinhc_sq_gain(q) / c), c)
        return g * ratio / torch.sqrt(1 + q), gc


class _LogRadial(torch.autograd.Function):
    """b(q) = 2√q·asinh(√q)/√(1+q), whose derivative cancels for large q when left to autograd."""

    generate_vmap_rule = True

    @staticmethod
    def forward(q: Tensor) -> Tensor:
        return 2 * q * radial.asinhc_sq(q) / torch.sqrt(1 + q)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (q,) = ctx.saved_tensors
        p = 1 + q
        out: Tensor = g * (radial.asinhc_sq(q) / torch.sqrt(p) + 1) / p
        return out
