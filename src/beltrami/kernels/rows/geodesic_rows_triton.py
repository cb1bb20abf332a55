r"""`geodesic_rows` for Triton kernels: the same numbers a row, on a block of rows.

The coefficient of x in a step is 1 plus a small number that is exactly 0 for a covector of 0, so
that rows without a gradient stay where they are.
"""

from __future__ import annotations

import triton
import triton.language as tl

from beltrami.kernels.launch.triton_math import asinhc, atanhc, hyperbolic, ratio, root, tanhc


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
        lam_ratio = tl.where(inside < 1, half_lam / lam_new, 1.0) / rho
        turn = -alpha * sinhc * length_sq / (2.0 + rise) * (1.0 + rho)
        d = lam_ratio * c * (turn * (lam_new + rise) + along * rise)
        e = lam_ratio * (lam_new / lam - c * (along + turn) * (alpha * sinhc / lam))
        return inside * a, inside * b, d, e
    else:  # noqa: RET505
        rho = _stretch(xp, pp, length_sq, step, alpha, c)
        return rho, -alpha * sinhc, tl.zeros_like(rho), 1.0 / rho
