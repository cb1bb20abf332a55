"""Averages of Lorentz points: the centroid in closed form and the Fréchet mean by iteration."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from beltrami.geometry import radial
from beltrami.geometry.checks import Scalar, prepare
from beltrami.geometry.chord import dot, root
from beltrami.geometry.lorentz.core import boost, exp0, log, transport_to0
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
    c = curvature_of_set(c)
    out: Tensor = _Centroid.apply(x, w, c)
    return out.squeeze(-2).to(dtype)


class _Sums(NamedTuple):
    """What the centroid is made of: (..., n, 1) for each point or (..., 1, ·) for the set."""

    n: Tensor  # |xᵢ|
    t: Tensor  # time of xᵢ
    unit: Tensor  # xᵢ/|xᵢ|, (..., n, d)
    gap: Tensor  # xᵢ/|xᵢ| − z/|z|, (..., n, d)
    turn: Tensor  # 1 − the cosine between xᵢ and z
    z: Tensor  # Σ w·x, (..., 1, d)
    length: Tensor  # |z|
    total: Tensor  # Σ w·t
    light: Tensor  # Σ w·t − |z|


def _sums(x: Tensor, w: Tensor, c: Scalar) -> _Sums:
    n = root(dot(x, x))
    t = torch.sqrt(1 / c + n * n)
    z = (w * x).sum(-2, keepdim=True)
    length = root(dot(z, z))
    there = length > 0
    unit = x / torch.where(n > 0, n, 1.0)
    gap = unit - z / torch.where(there, length, 1.0)
    # |x̂ − ẑ|²/2 stands for 1 − x̂·ẑ, which is 1 where there is no ẑ.
    turn = torch.where(there, dot(gap, gap) / 2, 1.0)
    light = (w * (1 / (c * (t + n)) + n * turn)).sum(-2, keepdim=True)
    return _Sums(n, t, unit, gap, turn, z, length, (w * t).sum(-2, keepdim=True), light)


class _Centroid(torch.autograd.Function):
    """x (..., n, d), w (..., n, 1) to (..., 1, d). Saves its inputs only."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor, c: Scalar) -> Tensor:
        p = _sums(x, w, c)
        return p.z / (root(c * p.light) * root(p.total + p.length))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, w, c = load_with_scalar(ctx)
        p = _sums(x, w, c)
        size = p.total + p.length
        scale = 1 / (root(c * p.light) * root(size))  # out = scale·z
        share = dot(g, p.z) * scale / p.light / size  # with N² = light·size
        gx = gw = gc = None
        if ctx.needs_input_grad[0]:
            # ½∂N²/∂xᵢ = wᵢ(total·xᵢ/tᵢ − z); far out along and across xᵢ, where this cancels.
            along = p.light - p.total / (c * p.t * (p.t + p.n))
            far = along * p.unit + p.length * p.gap
            slope = torch.where(c * p.n * p.n < 1, p.total / p.t * x - p.z, far)
            gx = sum_to(w * (scale * g - share * slope), x)
        if ctx.needs_input_grad[1]:
            product = p.light * p.t + p.length * (1 / (c * (p.t + p.n)) + p.n * p.turn)
            gw = sum_to(scale * dot(g, x) - share * product, w)
        if ctx.needs_input_grad[2] and isinstance(c, Tensor):
            spread = p.total * (w / p.t).sum(-2, keepdim=True) / (c * p.light * size)
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
    v = transport_to0(m, log(m, x, c), c)  # (..., n, d)
    mean = (w * v).sum(-2, keepdim=True)
    with torch.no_grad(), torch.autocast(v.device.type, enabled=False):
        # The Hessian of d²/2 is 1 along the geodesic and φ = z·coth z across it.
        q = c * dot(v, v)
        phi = radial.cosh_sq(q) / radial.sinhc_sq(q)
        far = q > 0
        u = v / torch.where(far, root(dot(v, v)), 1.0)
        eye = torch.eye(v.shape[-1], dtype=v.dtype, device=v.device)
        across = (w * phi).sum(-2, keepdim=True) * eye
        hessian = across - (u * (w * (phi - 1))).transpose(-1, -2) @ u
        inverse = torch.linalg.inv(hessian)
    with torch.autocast(v.device.type, enabled=False):
        step: Tensor = mean @ inverse
    return step
