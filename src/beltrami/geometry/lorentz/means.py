"""Averages of Lorentz points: the centroid in closed form and the Fréchet mean by iteration."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from beltrami.geometry import radial
from beltrami.geometry.checks import Scalar, no_autocast, prepare
from beltrami.geometry.chord import dot, root
from beltrami.geometry.lorentz.core import boost, exp0, log0
from beltrami.geometry.radial_map import load_with_scalar, save_with_scalar, sum_to
from beltrami.geometry.sets import as_weights, curvature_of_set

# Longest step of the Fréchet mean's iteration, in scaled distance.
_LONGEST_STEP = 5.0


def centroid(x: Tensor, weights: Tensor | None = None, c: Scalar = 1.0) -> Tensor:
    r"""Weighted centroid `z/(√c·|z|_L)` with z = Σ wᵢ·(tᵢ, xᵢ): minimises Σ wᵢ·|xᵢ − m|²_L.

    With weights 1 and two points it is the midpoint. `−⟨z,z⟩ = (t_z − |z|)(t_z + |z|)` is not taken
    as it stands, since its first factor cancels for points far out: with ẑ = z/|z|,

        t_z − |z| = Σ wᵢ(tᵢ − ẑ·xᵢ) = Σ wᵢ·[1/(c(tᵢ + |xᵢ|)) + |xᵢ|·|x̂ᵢ − ẑ|²/2],

    in which every term is positive.

    Args:
        x: points, (..., n, d).
        weights: (..., n), not negative and not all 0; equal if None. Their scale does not matter.
        c: curvature −c, broadcasting against the result's [..., :1].

    Returns: (..., d). Well conditioned; gradients up to the near-pairs bound, over the spread of
    the points where they are close together.
    """
    (x,), c, dtype = prepare(c, x=x)
    w = as_weights(weights, x)
    if weights is not None and w.shape[-2]:
        # Squares of weights would leave float32 at 1e±19. A common factor does not matter, so its
        # own derivative is 0.
        top = w.detach().amax(-2, keepdim=True)
        w = w / torch.where(top > 0, top, 1.0)
    c = curvature_of_set(c)
    out: Tensor = _Centroid.apply(x, w, c)
    return out.squeeze(-2).to(dtype)


class _Sums(NamedTuple):
    """What the centroid is made of: (..., n, 1) for each point or (..., 1, ·) for the set."""

    near: Tensor  # c·|xᵢ|² < 1: no need to split along and across xᵢ, whose direction may not exist
    t: Tensor  # time of xᵢ
    low: Tensor  # tᵢ − |xᵢ|; 0 where near
    unit: Tensor  # xᵢ/|xᵢ|, (..., n, d); xᵢ where near
    gap: Tensor  # xᵢ/|xᵢ| − z/|z|, (..., n, d)
    across: Tensor  # |xᵢ| times 1 − the cosine between xᵢ and z
    z: Tensor  # Σ w·x, (..., 1, d)
    length: Tensor  # |z|
    total: Tensor  # Σ w·t
    light: Tensor  # Σ w·t − |z|
    norm_sq: Tensor  # N² = −⟨Σ w·x, Σ w·x⟩


def _sums(x: Tensor, w: Tensor, c: Scalar) -> _Sums:
    n2 = dot(x, x)
    near = c * n2 < 1
    n = torch.where(near, 1.0, n2).sqrt()
    t = torch.sqrt(1 / c + n2)
    low = torch.where(near, 0.0, 1 / (c * (t + n)))
    z = (w * x).sum(-2, keepdim=True)
    z2, total = dot(z, z), (w * t).sum(-2, keepdim=True)
    # Where |z| is well below t_z their squares do not cancel, and z may have no direction.
    plain = 2 * z2 < total * total
    length = torch.where(plain, total * total, z2).sqrt()
    direction = z / length
    unit = x / n
    gap = unit - direction
    across = torch.where(near, 0.0, n * dot(gap, gap) / 2)
    light = (w * torch.where(near, t - dot(x, direction), low + across)).sum(-2, keepdim=True)
    norm_sq = torch.where(plain, total * total - z2, light * (total + length))
    return _Sums(near, t, low, unit, gap, across, z, length, total, light, norm_sq)


class _Centroid(torch.autograd.Function):
    """x (..., n, d), w (..., n, 1) to (..., 1, d). Saves its inputs only."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor, c: Scalar) -> Tensor:
        p = _sums(x, w, c)
        return p.z / torch.sqrt(c * p.norm_sq)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, w, c = load_with_scalar(ctx)
        p = _sums(x, w, c)
        plain = 2 * dot(p.z, p.z) < p.total * p.total
        split = ~(plain | p.near)  # else ½∂N²/∂xᵢ = wᵢ(total·xᵢ/tᵢ − z) does not cancel
        scale = 1 / torch.sqrt(c * p.norm_sq)  # out = scale·z
        share = dot(g, p.z) * scale / p.norm_sq
        gx = gw = gc = None
        if ctx.needs_input_grad[0]:
            along = p.light - p.total * p.low / p.t
            slope = torch.where(split, along * p.unit + p.length * p.gap, p.total / p.t * x - p.z)
            gx = sum_to(w * (scale * g - share * slope), x)
        if ctx.needs_input_grad[1]:
            product = p.light * p.t + p.length * (p.low + p.across)
            product = torch.where(split, product, p.total * p.t - dot(p.z, x))
            gw = sum_to(scale * dot(g, x) - share * product, w)
        if ctx.needs_input_grad[2] and isinstance(c, Tensor):
            spread = p.total * (w / p.t).sum(-2, keepdim=True) / (c * p.norm_sq)
            gc = sum_to(dot(g, p.z) * scale * (spread - 1) / (2 * c), c)
        return gx, gw, gc


def frechet_mean(
    x: Tensor,
    weights: Tensor | None = None,
    c: Scalar = 1.0,
    *,
    max_iter: int = 50,
    tol: float | None = None,
) -> Tensor:
    """Weighted Fréchet mean: the point minimising Σ wᵢ·d(xᵢ, m)².

    Newton's method from the centroid, in the tangent space at the current point carried to the
    origin; the minimum is unique. Differentiable in x, weights and c by the implicit function
    theorem: the gradient is that of the exact solution, and its cost does not grow with the number
    of iterations. Works in float64 inside and reads one number back from the device at each step.

    Args:
        x: points, (..., n, d).
        weights: (..., n), not negative and not all 0; equal if None.
        c: curvature −c, broadcasting against the result's [..., :1].
        max_iter: Newton steps at most; a handful is usual.
        tol: stop when no step is longer than this in scaled distance; default eps of the dtype.

    Returns: (..., d). Near-pairs bound; 100 times it for gradients in float64, which has no wider
    type to work in.
    """
    (x,), c, dtype = prepare(c, x=x)
    limit = torch.finfo(x.dtype).eps if tol is None else tol
    # Directions at a mean far out are lost in float32 (eps·cosh of its radius): iterate in float64.
    x = x.double()
    c = c.double() if isinstance(c, Tensor) else c
    w = as_weights(weights, x)
    w = w / w.sum(-2, keepdim=True)
    with torch.no_grad():
        m = centroid(x, w.squeeze(-1), c).unsqueeze(-2)  # (..., 1, d)
    c = curvature_of_set(c)
    with torch.no_grad():
        for _ in range(max_iter):
            step = _newton_step(x, w, m, c)
            # Far from the points Newton's model may overshoot: go part of the way and look again.
            length = root(c * dot(step, step))
            m = boost(exp0(step / torch.clamp(length / _LONGEST_STEP, min=1.0), c), m, c)
            if length.numel() == 0 or float(length.max()) <= limit:
                break
    # One more step on the autograd tape, from a fixed m: its derivative is the implicit one.
    step = _newton_step(x, w, m, c)
    return boost(exp0(step, c), m, c).squeeze(-2).to(dtype)


def _newton_step(x: Tensor, w: Tensor, m: Tensor, c: Scalar) -> Tensor:
    """H⁻¹·Σ w·log_m(x), carried to the origin, (..., 1, d); H is taken as a constant."""
    v = log0(boost(x, -m, c), c)  # (..., n, d)
    mean = (w * v).sum(-2, keepdim=True)
    with torch.no_grad(), no_autocast(v):
        # The Hessian of d²/2 is 1 along the geodesic and φ = z·coth z across it.
        q = c * dot(v, v)
        phi = radial.cosh_sq(q) / radial.sinhc_sq(q)
        far = q > 0
        u = v / torch.where(far, root(dot(v, v)), 1.0)
        eye = torch.eye(v.shape[-1], dtype=v.dtype, device=v.device)
        across = (w * phi).sum(-2, keepdim=True) * eye
        hessian = across - (u * (w * (phi - 1))).transpose(-1, -2) @ u
        inverse = torch.linalg.inv(hessian)
    with no_autocast(v):
        step: Tensor = mean @ inverse
    return step
