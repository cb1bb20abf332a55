r"""How a point and its covectors move along a geodesic, as a few numbers a row.

A gradient that autograd returns is a *covector* p, and the optimisers keep their moments as
covectors too, since that makes everything cheap and accurate. In space-only Lorentz coordinates,
with T = √(1 + c|x|²), the metric norm of p is a sum of squares, `|p|² + c(x·p)²`, where that of a
tangent vector is a difference. (x·p itself is as good as x's direction: across the radius, forces
below eps·√c|x| of |p| are lost.) And p/T is the velocity of the point's Klein coordinates x/T, in
which geodesics are straight lines: so a covector carried along its own geodesic keeps its
direction. The whole step from x along −α·p, with s = √c·α·|p|_x its length, is

    ρ = T(y)/T(x) = cosh s − α·c·(x·p)·sinh(s)/s,
    y = ρ·x − α·sinh(s)/s·p,      p at y = p/ρ.

In every model a step takes x and p to combinations of x and p: `y = a·x + b·p`, `p' = d·x + e·p`.
This file computes such coefficients from the products x·x, x·p and p·p of a row; the optimisers'
kernels form the products and the combinations, each in one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from beltrami.geometry import poincare, radial
from beltrami.geometry.ball import BORDER_EPS
from beltrami.geometry.checks import Scalar
from beltrami.geometry.chord import dot
from beltrami.kernels.launch.dtypes import upcast
from beltrami.kernels.rows.row_blocks import in_range

Number = float | Tensor


class Products(NamedTuple):
    """Of a point x and a covector p: x·x, x·p and p·p, each (..., 1)."""

    xx: Tensor
    xp: Tensor
    pp: Tensor


class Plane(NamedTuple):
    """A map of the plane of x and p: x ↦ a·x + b·p, p ↦ d·x + e·p; each (..., 1)."""

    a: Tensor
    b: Tensor
    d: Tensor
    e: Tensor

    def after(self, first: Plane) -> Plane:
        """This map applied to what `first` returns."""
        return Plane(
            self.a * first.a + self.b * first.d,
            self.a * first.b + self.b * first.e,
            self.d * first.a + self.e * first.d,
            self.d * first.b + self.e * first.e,
        )

    def products(self, of: Products) -> Products:
        """x·x, x·p and p·p after the map."""
        a, b, d, e = self
        xx, xp, pp = of
        return Products(
            a * a * xx + 2 * a * b * xp + b * b * pp,
            a * d * xx + (a * e + b * d) * xp + b * e * pp,
            d * d * xx + 2 * d * e * xp + e * e * pp,
        )


class Carry(NamedTuple):
    """A step along q ≠ p: x ↦ a·x + b·q and p ↦ p scaled by e, plus d·x + f·q; each (..., 1)."""

    a: Tensor
    b: Tensor
    d: Tensor
    e: Tensor
    f: Tensor


class RowGeometry(Protocol):
    """What a model of hyperbolic space must say about its rows."""

    straight: bool
    """Whether `advance` keeps the direction of p (d = 0) and looks at x·p and p·p alone."""

    def size_sq(self, of: Products, c: Scalar) -> Tensor:
        """Squared metric norm of the covector p at x."""

    def pull(self, xx: Tensor, c: Scalar) -> Tensor:
        """The number w with gradient w·x of half the squared distance from the origin."""

    def shrink(self, of: Products, keep: Number, c: Scalar) -> Plane:
        """Move x along its radius to `keep` times its distance from the origin, p with it."""

    def advance(self, of: Products, alpha: Number, c: Scalar) -> Plane:
        """Step from x along −α·p, p with it."""

    def carry(self, x_q: Products, xp: Tensor, qp: Tensor, alpha: Number, c: Scalar) -> Carry:
        """Step from x along −α·q, and carry p with it; `x_q` are the products of x and q."""

    def rounded(self, x: Tensor, p: Tensor, dtype: torch.dtype, c: Scalar) -> tuple[Tensor, Tensor]:
        """Points in the dtype they are stored in, and p at them."""

    def holds(self, x: Tensor, c: Scalar) -> Tensor:
        """Whether rows, as they are to be stored, are points to which distances are finite."""


class _Step(NamedTuple):
    """The numbers of a step in Lorentz coordinates."""

    sinhc: Tensor  # sinh(s)/s
    rise: Tensor  # cosh s − 1
    rho: Tensor  # T(y)/T(x) > 0


def _step(xp: Tensor, pp: Tensor, size_sq: Tensor, alpha: Number, c: Scalar) -> _Step:
    """The step along −α·p from Lorentz products; `size_sq` = pp + c·xp².

    ρ = cosh s − θ·sinh s with θ = √c·(x·p)/|p|_x in [−1, 1]. For θ > 0 it is written
    e⁻ˢ + (1 − θ)·sinh s with 1 − θ = pp/(|p|_x(|p|_x + √c·x·p)), which cannot cancel below 0.
    """
    s2 = c * alpha * alpha * size_sq
    sinhc, half = radial.sinhc_sq(s2), radial.sinhc_sq(s2 / 4)
    rise = s2 / 2 * half * half
    moving = size_sq > 0
    size = torch.where(moving, size_sq, 1.0).sqrt()
    along = c**0.5 * xp
    sinh = alpha * c**0.5 * size * sinhc
    inward = torch.exp(-s2.sqrt()) + sinh * (pp / size) / (size + along.abs())
    outward = 1 + (rise - sinh * (along / size))
    rho = torch.where(moving, torch.where(along > 0, inward, outward), 1.0)
    return _Step(sinhc, rise, rho)


class LorentzRows:
    """Space-only Lorentz coordinates; see the head of this file."""

    straight = True

    def size_sq(self, of: Products, c: Scalar) -> Tensor:
        """`p·p + c(x·p)²`."""
        return of.pp + c * of.xp * of.xp

    def pull(self, xx: Tensor, c: Scalar) -> Tensor:
        """`r·∂r/∂x = asinhc(√c|x|)/T·x`."""
        q = c * xx
        return radial.asinhc_sq(q) / torch.sqrt(1 + q)

    def shrink(self, of: Products, keep: Number, c: Scalar) -> Plane:
        """x ↦ f·x with f = sinh(k·z)/sinh(z), z = asinh(√c|x|).

        Across the radius p stays, along it p is multiplied by T/T(f·x), which written as
        `p + d·x` divides by no norm.
        """
        q = c * of.xx
        f = _shrunk(radial.asinhc_sq(q), radial.sinhc_sq, q, keep)
        t, t_new = torch.sqrt(1 + q), torch.sqrt(1 + f * f * q)
        d = c * (1 - f) * (1 + f) / ((t + t_new) * t_new) * of.xp
        return Plane(f, torch.zeros_like(f), d, torch.ones_like(f))

    def advance(self, of: Products, alpha: Number, c: Scalar) -> Plane:
        """The step at the head of this file."""
        sinhc, _, rho = _step(of.xp, of.pp, self.size_sq(of, c), alpha, c)
        return Plane(rho, -alpha * sinhc, torch.zeros_like(rho), 1 / rho)

    def carry(self, x_q: Products, xp: Tensor, qp: Tensor, alpha: Number, c: Scalar) -> Carry:
        """`p' = p + (α·sinhc/ρ)·c·(x·p + k)·q`, k = −α·sinhc·⟨q, p⟩/(1 + cosh)."""
        step = _step(x_q.xp, x_q.pp, self.size_sq(x_q, c), alpha, c)
        k = -alpha * step.sinhc * (qp + c * x_q.xp * xp) / (2 + step.rise)
        f = alpha * step.sinhc / step.rho * c * (xp + k)
        unit = torch.ones_like(f)
        return Carry(step.rho, -alpha * step.sinhc, torch.zeros_like(f), unit, f)

    def rounded(self, x: Tensor, p: Tensor, dtype: torch.dtype, c: Scalar) -> tuple[Tensor, Tensor]:
        """Every tensor is a point."""
        return x.to(dtype), p

    def holds(self, x: Tensor, c: Scalar) -> Tensor:
        """The squares that distances are made of must not overflow."""
        return in_range(x, c)


class _BallStep(NamedTuple):
    """The numbers of a step along q in the ball."""

    lorentz: _Step
    t: Tensor  # time at b
    lam: Tensor  # λ at b
    lam_new: Tensor  # and where the geodesic ends
    xq: Tensor  # x·q in Lorentz coordinates
    size_sq: Tensor
    a: Tensor  # y = a·b + b·q
    b: Tensor
    lam_ratio: Tensor  # λ at y over lam_new: less than 1 where y was drawn inside


class PoincareRows:
    """The ball. Its point is x/(1 + T) for the Lorentz point x, and J = λ + λ²c·b·bᵀ relates them.

    With e = 1 − c|b|², λ = 2/e, T = (1 + c|b|²)/e the Lorentz covector of p is
    `p/λ − c·(b·p)/T·b`, and x·p there is a = b·p/T here. The step is taken there, on the numbers
    alone, and returned to the ball.
    """

    straight = False

    def size_sq(self, of: Products, c: Scalar) -> Tensor:
        """The squared length `p·p/λ²`."""
        e = _gap(of.xx, c)
        return of.pp * e * e / 4

    def pull(self, xx: Tensor, c: Scalar) -> Tensor:
        """`2λ·atanhc(√c|b|)`: 4 at the origin, where λ = 2."""
        return 4 * radial.atanhc_sq(c * xx) / _gap(xx, c)

    def shrink(self, of: Products, keep: Number, c: Scalar) -> Plane:
        """b ↦ f·b with f = tanh(k·z)/tanh(z), z = atanh(√c|b|), and p in proportion to λ."""
        q = c * of.xx
        f = _shrunk(radial.atanhc_sq(q), radial.tanhc_sq, q, keep)
        zero = torch.zeros_like(f)
        return Plane(f, zero, zero, _gap(of.xx, c) / _gap(f * f * of.xx, c))

    def advance(self, of: Products, alpha: Number, c: Scalar) -> Plane:
        """The Lorentz step, in which p becomes p/ρ, between the two changes of coordinates."""
        step = self._step(of, alpha, c)
        sinhc, rise, rho = step.lorentz
        turn = -alpha * sinhc * step.size_sq / (2 + rise) * (1 + rho)  # y·p − x·p there, times ρ
        d = c / rho * (turn * (step.lam_new + rise) + step.xq * rise)
        e = step.lam_new / (step.lam * rho) - c * (step.xq + turn) / rho * (
            alpha * sinhc / step.lam
        )
        return Plane(step.a, step.b, step.lam_ratio * d, step.lam_ratio * e)

    def carry(self, x_q: Products, xp: Tensor, qp: Tensor, alpha: Number, c: Scalar) -> Carry:
        """The Lorentz step along q, p carried, and both changes of coordinates."""
        step = self._step(x_q, alpha, c)
        sinhc, rise, rho = step.lorentz
        lam, lam_new, a_q, a_p = step.lam, step.lam_new, step.xq, xp / step.t
        k = -alpha * sinhc * (qp / (lam * lam)) / (2 + rise)
        f = alpha * sinhc / rho * c * (a_p + k)  # p + f·q in Lorentz coordinates
        a_new = (a_p + k * (1 + rho)) / rho  # y·p there
        d = c * (a_new * (lam_new + rise) - lam_new * (a_p + f * a_q))
        e = lam_new / lam
        return Carry(
            step.a,
            step.b,
            step.lam_ratio * d,
            step.lam_ratio * e,
            step.lam_ratio * (e * f - c * a_new * (alpha * sinhc / lam)),
        )

    def _step(self, of: Products, alpha: Number, c: Scalar) -> _BallStep:
        """What both have in common: where x goes, and the numbers of the step."""
        gap = _gap(of.xx, c)
        t = (2 - gap) / gap  # 1 + c|b|² = 2 − e
        lam = 1 + t
        xq = of.xp / t
        size_sq = of.pp / (lam * lam)
        # |q|² in Lorentz coordinates; 0 for a covector along the radius, up to rounding
        across = size_sq - c * xq * xq
        across = torch.where(across > 0, across, 0.0)
        lorentz = _step(xq, across, size_sq, alpha, c)
        lam_new = 1 + lorentz.rho * t
        # y = (λ(y) + cosh s − 1)·b − …·q, so that without a step it is b to the last digit
        a, b = 1 + lorentz.rise / lam_new, -alpha * lorentz.sinhc / (lam * lam_new)
        inside, lam_inside = _inside(a, b, of, c)
        # p goes with the point that was drawn inside, where the same length has smaller coordinates
        # (or it would grow with every step that is cut short)
        lam_ratio = torch.where(inside < 1, lam_inside / lam_new, 1.0)
        return _BallStep(lorentz, t, lam, lam_new, xq, size_sq, inside * a, inside * b, lam_ratio)

    def rounded(self, x: Tensor, p: Tensor, dtype: torch.dtype, c: Scalar) -> tuple[Tensor, Tensor]:
        """Rounding to half precision may carry a point onto the border: drawn inside, p with it."""
        if x.dtype == dtype:
            return x, p
        y = poincare.project(x.to(dtype), c)
        stored = y.to(x.dtype)
        return y, p * (_gap(dot(x, x), c) / _gap(dot(stored, stored), c))  # λ(y)/λ(x)

    def holds(self, x: Tensor, c: Scalar) -> Tensor:
        """Inside, which rounding can prevent in a step from one side of the ball to the other."""
        x = upcast(x)
        return _gap(dot(x, x), c) > 0


def _inside(a: Tensor, b: Tensor, of: Products, c: Scalar) -> tuple[Tensor, float]:
    """1, or less where a·x + b·p would land on the border: to draw it inside as `project` does.

    And half of λ there: rounding the point changes λ by tens of percent, and what is carried to the
    border again and again must not grow.
    """
    reach = 1 - BORDER_EPS * torch.finfo(of.xx.dtype).eps
    norm_sq = c * (a * a * of.xx + 2 * a * b * of.xp + b * b * of.pp)
    inside = torch.where(norm_sq > reach * reach, reach * norm_sq.abs().rsqrt(), 1.0)
    return inside, 1 / ((1 - reach) * (1 + reach))


def _gap(xx: Tensor, c: Scalar) -> Tensor:
    """1 − c|b|², as (1 − √c|b|)(1 + √c|b|)."""
    n = (c * xx).sqrt()
    return (1 - n) * (1 + n)


def _shrunk(log: Tensor, exp: Callable[[Tensor], Tensor], q: Tensor, keep: Number) -> Tensor:
    """|exp0(k·log0(x))|/|x| from the profiles of both maps."""
    return keep * log * exp(keep * keep * log * log * q)


MODELS: dict[str, RowGeometry] = {"lorentz": LorentzRows(), "poincare": PoincareRows()}
