r"""The weighted centroid of each node's neighbours, for all nodes at once.

`z/(√c·|z|_L)` with z = Σ wⱼ·(tⱼ, xⱼ) over the edges j → i: `lorentz.centroid`, whose sets are given
by edges instead of a dimension. The norm of z is formed as there, from terms that are all positive,

    t_z − |z| = Σ wⱼ·[1/(c(tⱼ + |xⱼ|)) + |xⱼ|·|x̂ⱼ − ẑ|²/2],

which takes a second pass over the edges, O(E·d) like the first. The inputs are all that is kept for
the backward pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from beltrami.geometry import Euclidean, Manifold, PoincareBall, poincare
from beltrami.geometry.checks import Scalar, check_curvature
from beltrami.geometry.chord import dot
from beltrami.geometry.radial_map import load_with_scalar, save_with_scalar, sum_to
from beltrami.kernels.launch.dtypes import upcast
from beltrami.nn.graph.scatter import rows, scatter_max, scatter_rows, scatter_sum


def neighbour_centroid(
    x: Tensor, source: Tensor, target: Tensor, weight: Tensor, manifold: Manifold
) -> Tensor:
    """The centroid at each node of the points its edges come from; the origin where there are none.

    Args:
        x: points at the nodes, (..., N, d).
        source, target: of the edges, (E,).
        weight: (..., E), not negative. Their scale at a node does not matter.
        manifold: Lorentz, PoincareBall or Euclidean.

    Returns: (..., N, d) in the dtype of x; computed in float32 at least.
    """
    wide_x, nodes = upcast(x), x.shape[-2]
    weight = weight.to(wide_x.dtype)
    # Squares of weights leave float32 at 1e±19. A common factor does not matter, so its own
    # derivative is 0.
    top = scatter_max(weight.detach(), target, nodes)
    weight = weight / torch.where(top > 0, top, 1.0).index_select(-1, target)
    if isinstance(manifold, Euclidean):
        return neighbour_mean(wide_x, source, target, weight).to(x.dtype)
    c = check_curvature(manifold.c_like(x), wide_x.dtype, x.device)
    if isinstance(manifold, PoincareBall):
        wide_x = poincare.to_lorentz(wide_x, c)
    mean: Tensor = _NeighbourCentroid.apply(wide_x, weight.unsqueeze(-1), source, target, c)
    if isinstance(manifold, PoincareBall):
        # Rounding may carry a point onto the border of the ball.
        return manifold.project(poincare.from_lorentz(mean, c).to(x.dtype))
    return mean.to(x.dtype)


def neighbour_mean(x: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """`Σ wⱼ·xⱼ/Σ wⱼ` at each node, (..., N, d), and 0 where there are no edges."""
    nodes = x.shape[-2]
    total = scatter_sum(weight, target, nodes)
    share = weight / torch.where(total > 0, total, 1.0).index_select(-1, target)
    return scatter_rows(share.unsqueeze(-1) * rows(x, source), target, nodes)


class _Sums(NamedTuple):
    """What the centroids are made of, each edge by edge, (..., E, ·), or node by node."""

    x: Tensor  # of the source, (..., E, d)
    near: Tensor  # c·|x|² < 1: no need to split along and across x, whose direction may not exist
    t: Tensor  # time of the source
    low: Tensor  # t − |x|; 0 where near
    unit: Tensor  # x/|x|, (..., E, d); x where near
    gap: Tensor  # x/|x| − z/|z|, (..., E, d)
    across: Tensor  # |x| times 1 − the cosine between x and z
    z: Tensor  # Σ w·x, (..., N, d)
    plain: Tensor  # whether |z| is well below t_z, so that their squares do not cancel; (..., N, 1)
    length: Tensor  # |z|, (..., N, 1)
    total: Tensor  # Σ w·t, (..., N, 1)
    light: Tensor  # Σ w·t − |z|, (..., N, 1)
    norm_sq: Tensor  # N² = −⟨Σ w·x, Σ w·x⟩, (..., N, 1)


def _sums(x: Tensor, w: Tensor, source: Tensor, target: Tensor, c: Scalar) -> _Sums:
    nodes = x.shape[-2]
    n2 = dot(x, x)
    near = c * n2 < 1
    n = torch.where(near, 1.0, n2).sqrt()
    t = torch.sqrt(1 / c + n2)
    low = torch.where(near, 0.0, 1 / (c * (t + n)))
    unit = x / n
    x, near, n, t, low, unit = (rows(a, source) for a in (x, near, n, t, low, unit))
    z, total = (scatter_rows(w * a, target, nodes) for a in (x, t))
    total = torch.where(total > 0, total, 1.0)  # a node without edges: z = 0 and N² = 1
    z2 = dot(z, z)
    plain = 2 * z2 < total * total
    length = torch.where(plain, total * total, z2).sqrt()
    direction = rows(z / length, target)
    gap = unit - direction
    across = torch.where(near, 0.0, n * dot(gap, gap) / 2)
    share = w * torch.where(near, t - dot(x, direction), low + across)
    light = scatter_rows(share, target, nodes)
    norm_sq = torch.where(plain, total * total - z2, light * (total + length))
    return _Sums(x, near, t, low, unit, gap, across, z, plain, length, total, light, norm_sq)


class _NeighbourCentroid(torch.autograd.Function):
    """x (..., N, d), w (..., E, 1), source and target (E,) to (..., N, d). Saves its inputs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor, source: Tensor, target: Tensor, c: Scalar) -> Tensor:
        p = _sums(x, w, source, target, c)
        return p.z / torch.sqrt(c * p.norm_sq)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        save_with_scalar(ctx, *inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w, source, target, c = load_with_scalar(ctx)
        p = _sums(x, w, source, target, c)
        scale = 1 / torch.sqrt(c * p.norm_sq)  # out = scale·z
        by_z = dot(g, p.z) * scale
        share = by_z / p.norm_sq
        at = [rows(a, target) for a in (p.plain, p.light, p.length, p.total, p.z, scale * g, share)]
        plain, light, length, total, z, pull, share = at
        split = ~(plain | p.near)  # else ½∂N²/∂x = w(total·x/t − z) does not cancel
        gx = gw = gc = None
        if ctx.needs_input_grad[0]:
            along = light - total * p.low / p.t
            slope = torch.where(split, along * p.unit + length * p.gap, total / p.t * p.x - z)
            gx = scatter_rows(w * (pull - share * slope), source, x.shape[-2])
        if ctx.needs_input_grad[1]:
            product = light * p.t + length * (p.low + p.across)
            product = torch.where(split, product, total * p.t - dot(z, p.x))
            gw = sum_to(dot(pull, p.x) - share * product, w)
        if ctx.needs_input_grad[4] and isinstance(c, Tensor):
            spread = p.total * scatter_rows(w / p.t, target, x.shape[-2]) / (c * p.norm_sq)
            gc = sum_to(by_z * (spread - 1) / (2 * c), c)
        return gx, gw, None, None, gc
