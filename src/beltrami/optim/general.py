"""Steps on manifolds without kernels of their own, by the methods every manifold has.

Moments are tangent vectors here. A step is exp and transport; points that rounding may carry off
the manifold are projected, and rows that it would make non-finite are left as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.geometry import Manifold
from beltrami.kernels.launch.dtypes import upcast
from beltrami.kernels.rows.adam_rows import AdamRates
from beltrami.kernels.rows.row_blocks import in_range, keep_bad_rows, row_blocks
from beltrami.kernels.rows.sgd_rows import SGDRates


def adam_points_(
    x: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    v_max: Tensor | None,
    rates: AdamRates,
    manifold: Manifold,
) -> None:
    """`adam_rows_` by the methods of `manifold`."""
    for block in row_blocks(x, manifold.c):
        largest = None if v_max is None else v_max[block]
        _adam_block_(x[block], g[block], m[block], v[block], largest, rates, manifold)


def _adam_block_(
    x: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    v_max: Tensor | None,
    rates: AdamRates,
    manifold: Manifold,
) -> None:
    old_x, old_m = upcast(x), upcast(m)
    gradient = _gradient(old_x, upcast(g), rates.decay, manifold)
    size_sq = manifold.inner(old_x, gradient, gradient, keepdim=True)
    new_m = torch.lerp(old_m, gradient, 1 - rates.beta1)
    new_v = torch.lerp(v, size_sq / manifold.tangent0_size(x.shape[-1]), 1 - rates.beta2)
    largest = new_v if v_max is None else torch.maximum(v_max, new_v)
    alpha = rates.step_size / ((largest / rates.correction).sqrt() + rates.eps)
    start = old_x
    if rates.keep is not None:
        start = manifold.project(manifold.exp0(rates.keep * manifold.log0(old_x)))
        new_m = manifold.transport(old_x, start, new_m)
    new_x, (new_m,) = _step(start, -alpha * new_m, (new_m,), manifold)
    new_x = _rounded(new_x, x.dtype, manifold)
    fine = in_range(new_x) & torch.isfinite(size_sq)
    x.copy_(keep_bad_rows(fine, new_x, x))
    m.copy_(keep_bad_rows(fine, new_m, old_m))
    v.copy_(keep_bad_rows(fine, new_v, v))
    if v_max is not None:
        v_max.copy_(keep_bad_rows(fine, largest, v_max))


def sgd_points_(
    x: Tensor, g: Tensor, m: Tensor | None, rates: SGDRates, first: bool, manifold: Manifold
) -> None:
    """`sgd_rows_` by the methods of `manifold`."""
    for block in row_blocks(x, manifold.c):
        momentum = None if m is None else m[block]
        _sgd_block_(x[block], g[block], momentum, rates, first, manifold)


def _sgd_block_(
    x: Tensor, g: Tensor, m: Tensor | None, rates: SGDRates, first: bool, manifold: Manifold
) -> None:
    old_x = upcast(x)
    gradient = _gradient(old_x, upcast(g), rates.decay, manifold)
    old_m = gradient if m is None else upcast(m)
    new_m = gradient
    if m is not None and not first:
        new_m = rates.momentum * old_m + (1 - rates.dampening) * gradient
    direction = gradient + rates.momentum * new_m if rates.nesterov else new_m
    carried: tuple[Tensor, ...] = () if m is None else (new_m,)
    new_x, carried = _step(old_x, -rates.lr * direction, carried, manifold)
    new_x = _rounded(new_x, x.dtype, manifold)
    fine = in_range(new_x)
    x.copy_(keep_bad_rows(fine, new_x, x))
    if m is not None:
        m.copy_(keep_bad_rows(fine, carried[0], old_m))


def _gradient(x: Tensor, g: Tensor, decay: float, manifold: Manifold) -> Tensor:
    """Riemannian gradient of the loss, with `decay` times half the squared radius added to it."""
    gradient = manifold.riemannian_grad(x, g)
    if decay:
        origin = manifold.origin(*x.shape, dtype=x.dtype, device=x.device)
        gradient = gradient - decay * manifold.log(x, origin)
    return gradient


def _rounded(x: Tensor, dtype: torch.dtype, manifold: Manifold) -> Tensor:
    """Points in the dtype they are stored in; half precision may carry them onto a border."""
    return x if x.dtype == dtype else manifold.project(x.to(dtype))


def _step(
    x: Tensor, step: Tensor, vectors: tuple[Tensor, ...], manifold: Manifold
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Where the geodesic ends, and the vectors carried there."""
    y = manifold.project(manifold.exp(x, step))
    carried = (manifold.transport(x, y, v) for v in vectors)
    return y, tuple(manifold.project_tangent(y, v) for v in carried)
