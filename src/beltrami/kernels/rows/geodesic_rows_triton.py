r"""`geodesic_rows` for Triton kernels: the same numbers a row, on a block of rows.

Series take over near 0 where `geometry.radial` lets them. Triton's exp and logarithm in float32 are
right to about two units in the last place, which is enough where they are called, at arguments
beyond 1. The coefficient of x in a step is otherwise 1 plus a small number that is exactly 0 for a
covector of 0, so that rows without a gradient stay where they are.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Below these squares of their argument functions are series, as in `geometry.radial`.
_SINH_LIMIT = tl.constexpr(1.0)
_ASINH_LIMIT = tl.constexpr(1.0)
_ATANH_LIMIT = tl.constexpr(0.25)


@triton.jit
def root(q: tl.tensor) -> tl.tensor:
    """√q, correctly rounded; Triton's own is not in float32."""
    if q.dtype == tl.float64:
        return tl.sqrt(q)
    else:  # noqa: RET505 - Triton needs both branches
        return tl.sqrt_rn(q)


@triton.jit
def ratio(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """a/b, correctly rounded; Triton's own is not in float32."""
    if a.dtype == tl.float64:
        return a / b
    else:  # noqa: RET505
        return tl.div_rn(a, b)


@triton.jit
def _factorial_series(q: tl.tensor, first: tl.constexpr) -> tl.tensor:
    """Σ first!·qⁿ/(2n + first)!: sinh(√q)/√q for first = 1, (cosh √q − 1)·2/q for first = 2."""
    terms: tl.constexpr = 12 if q.dtype == tl.float64 else 7
    total = tl.full(q.shape, 1.0, q.dtype)
    for i in tl.static_range(1, terms):
        total = 1.0 + total * q * (
            1.0 / ((2 * (terms - i) + first) * (2 * (terms - i) + first - 1))
        )
    return total


@triton.jit
def _atanh_series(q: tl.tensor) -> tl.tensor:
    """Σ qⁿ/(2n + 1) = atanh(√q)/√q."""
    terms: tl.constexpr = 28 if q.dtype == tl.float64 else 15
    total = tl.full(q.shape, 1.0 / (2 * terms - 1), q.dtype)
    for i in tl.static_range(1, terms):
        total = total * q + 1.0 / (2 * (terms - i) - 1)
    return total


@triton.jit
def hyperbolic(q: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """sinh(z)/z, cosh z − 1 and e⁻ᶻ of z = √q."""
    small = q < _SINH_LIMIT
    near = tl.where(small, q, 0.0)
    z = root(tl.where(small, _SINH_LIMIT, q))
    grown, fallen = tl.exp(z), tl.exp(-z)
    sinhc, rise = _factorial_series(near, 1), near / 2 * _factorial_series(near, 2)
    return (
        tl.where(small, sinhc, (grown - fallen) / (2 * z)),
        tl.where(small, rise, (grown + fallen) / 2 - 1.0),
        tl.where(small, 1.0 + (rise - root(near) * sinhc), fallen),
    )


@triton.jit
def asinhc(q: tl.tensor) -> tl.tensor:
    """asinh(√q)/√q."""
    small = q < _ASINH_LIMIT
    near = tl.where(small, q, 0.0)
    wide = 1.0 + root(1.0 + near)
    t = near / (wide * wide)  # tanh²(asinh(√q)/2)
    far = tl.where(small, _ASINH_LIMIT, q)
    z = root(far)
    return tl.where(small, (1.0 - t) * _atanh_series(t), tl.log(z + root(1.0 + far)) / z)


@triton.jit
def atanhc(q: tl.tensor) -> tl.tensor:
    """atanh(√q)/√q of q < 1."""
    small = q < _ATANH_LIMIT
    far = tl.where(small, _ATANH_LIMIT, q)
    z = root(far)
    closed = tl.log((1.0 + z) * (1.0 + z) / (1.0 - far)) / (2 * z)
    return tl.where(small, _atanh_series(tl.where(small, q, 0.0)), closed)


@triton.jit
def tanhc(q: tl.tensor) -> tl.tensor:
    """tanh(√q)/√q."""
    small = q < _SINH_LIMIT
    near = tl.where(small, q, 0.0)
    z = root(tl.where(small, _SINH_LIMIT, q))
    fallen = tl.exp(-2 * z)
    closed = (1.0 - fallen) / ((1.0 + fallen) * z)
    series = _factorial_series(near, 1) / (1.0 + near / 2 * _factorial_series(near, 2))
    return tl.where(small, series, closed)


@triton.jit
def gap(xx: tl.tensor, c: tl.tensor) -> tl.tensor:
    """1 − c|b|² of a point b of the ball."""
    n = root(c * xx)
    return (1.0 - n) * (1.0 + n)


@triton.jit
def draw_inside(norm_sq: tl.tensor, reach: tl.tensor) -> tl.tensor:
    """What brings a point with c|b|² = norm_sq back to √c|b| = `reach`; 1 if it is within that."""
    outside = norm_sq > reach * reach
    return tl.where(outside, reach / root(tl.where(outside, norm_sq, 1.0)), 1.0)


@triton.jit
def size_sq(
    xx: tl.tensor, xp: tl.tensor, pp: tl.tensor, c: tl.tensor, ball: tl.constexpr
) -> tl.tensor:
    """Squared metric norm of the covector p at x."""
    if ball:
        half = gap(xx, c) / 2
        return pp * half * half
    else:  # noqa: RET505
        return pp + c * xp * xp


@triton.jit
def pull(xx: tl.tensor, c: tl.tensor, ball: tl.constexpr) -> tl.tensor:
    """The number w with gradient w·x of half the squared distance from the origin."""
    q = c * xx
    if ball:
        return 4 * atanhc(q) / gap(xx, c)
    else:  # noqa: RET505
        return asinhc(q) / root(1.0 + q)


@triton.jit
def shrink(
    xx: tl.tensor, xp: tl.tensor, keep: tl.tensor, c: tl.tensor, ball: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """(f, d, e) of x ↦ f·x, to `keep` times its distance from the origin, and p ↦ d·x + e·p."""
    q = c * xx
    if ball:
        log = atanhc(q)
        f = keep * log * tanhc(keep * keep * log * log * q)
        return f, tl.zeros_like(f), gap(xx, c) / gap(f * f * xx, c)
    else:  # noqa: RET505
        log = asinhc(q)
        sinhc, _, _ = hyperbolic(keep * keep * log * log * q)
        f = keep * log * sinhc
        t, t_new = root(1.0 + q), root(1.0 + f * f * q)
        d = c * (1.0 - f) * (1.0 + f) / ((t + t_new) * t_new) * xp
        return f, d, tl.full(f.shape, 1.0, f.dtype)


@triton.jit
def _stretch(
    xp: tl.tensor,
    pp: tl.tensor,
    size_sq: tl.tensor,
    step: tl.tensor,
    alpha: tl.tensor,
    c: tl.tensor,
) -> tl.tensor:
    """ρ = T(y)/T(x) of the step along −α·p from Lorentz products; see `geodesic_rows._step`.

    `step` is what `hyperbolic` says of the step's length.
    """
    sinhc, rise, fallen = step
    moving = size_sq > 0
    size = root(tl.where(moving, size_sq, 1.0))
    along = root(c) * xp
    sinh = alpha * root(c) * size * sinhc
    inward = fallen + sinh * (pp / size) / (size + tl.abs(along))
    outward = 1.0 + (rise - sinh * (along / size))
    return tl.where(moving, tl.where(along > 0, inward, outward), 1.0)


@triton.jit
def advance(
    xx: tl.tensor,
    xp: tl.tensor,
    pp: tl.tensor,
    alpha: tl.tensor,
    c: tl.tensor,
    reach: tl.tensor,
    ball: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """(a, b, d, e) of the step along −α·p: x ↦ a·x + b·p and p ↦ d·x + e·p.

    In the ball, with λ and T at x and a = x·p/T, from `geodesic_rows.PoincareRows`: since
    λ = 1 + T, the coefficient of x is 1 + (cosh s − 1)/λ(y). `reach` is the largest √c|y|.
    """
    length_sq = size_sq(xx, xp, pp, c, ball)
    step = hyperbolic(c * alpha * alpha * length_sq)
    sinhc, rise, _ = step
    if ball:
        width = gap(xx, c)
        t = ratio(2.0 - width, width)
        lam, along = 1.0 + t, xp / t
        across = length_sq - c * along * along  # 0 along the radius, up to rounding
        across = tl.where(across > 0, across, 0.0)
        rho = _stretch(along, across, length_sq, step, alpha, c)
        lam_new = 1.0 + rho * t
        a, b = 1.0 + rise / lam_new, -alpha * sinhc / (lam * lam_new)
        inside = draw_inside(c * (a * a * xx + 2 * a * b * xp + b * b * pp), reach)
        # p goes with the point that was drawn inside, half as long, as in `geodesic_rows`
        half_lam = 1.0 / ((1.0 - reach) * (1.0 + reach))
        kept = tl.where(inside < 1, half_lam / lam_new, 1.0) / rho
        turn = -alpha * sinhc * length_sq / (2.0 + rise) * (1.0 + rho)
        d = kept * c * (turn * (lam_new + rise) + along * rise)
        e = kept * (lam_new / lam - c * (along + turn) * (alpha * sinhc / lam))
        return inside * a, inside * b, d, e
    else:  # noqa: RET505
        rho = _stretch(xp, pp, length_sq, step, alpha, c)
        return rho, -alpha * sinhc, tl.zeros_like(rho), 1.0 / rho
