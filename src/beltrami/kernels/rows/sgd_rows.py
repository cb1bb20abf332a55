r"""One step of Riemannian SGD with momentum on the rows of a table of points, in place.

As `torch.optim.SGD` with covectors: for a row x with gradient g and momentum p,

    p ← μp + (1 − τ)g (at the first step g)       q = g + μp with Nesterov, else p
    x, p ← the end of the geodesic from x along −lr·q, and p carried there.

A row that a step would make non-finite, as a gradient that is not finite does, is left as it is,
its momentum too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from beltrami.geometry.checks import Scalar
from beltrami.geometry.chord import dot
from beltrami.kernels.launch.dtypes import upcast
from beltrami.kernels.rows.geodesic_rows import MODELS, Number, Products
from beltrami.kernels.rows.row_blocks import fits, keep_bad_rows, row_blocks


class SGDRates(NamedTuple):
    """The numbers of a step; lr may be a tensor without dimensions."""

    lr: Number
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    decay: float = 0.0
    """Times half the squared distance from the origin, added to the loss."""


def sgd_rows_(
    x: Tensor,
    g: Tensor,
    p: Tensor | None,
    rates: SGDRates,
    *,
    first: bool,
    c: Scalar,
    model: str,
) -> None:
    """One step of x and p, in place.

    Args:
        x: points, (..., d). g: their gradients. p: momenta, or None without momentum.
        rates: the numbers of the step.
        first: whether p is still empty: it becomes g, undamped, as in torch.
        c: curvature −c, a float or a tensor that broadcasts against x[..., :1].
        model: "lorentz" or "poincare".
    """
    for block in row_blocks(x, c):
        momentum = None if p is None else p[block]
        _reference_(x[block], g[block], momentum, rates, first, c, model)


def _reference_(
    x: Tensor, g: Tensor, p: Tensor | None, rates: SGDRates, first: bool, c: Scalar, model: str
) -> None:
    rows = MODELS[model]
    old_x, wide_g = upcast(x), upcast(g)
    c = c.to(old_x.dtype) if isinstance(c, Tensor) else c
    xx = dot(old_x, old_x)
    if rates.decay:
        wide_g = wide_g + rates.decay * rows.pull(xx, c) * old_x
    old_p = wide_g if p is None else upcast(p)
    new_p = wide_g
    if p is not None and not first:
        new_p = rates.momentum * old_p + (1 - rates.dampening) * wide_g
    q = wide_g + rates.momentum * new_p if rates.nesterov else new_p

    of = Products(xx, dot(old_x, q), dot(q, q))
    if not rates.nesterov:  # p is the direction itself
        a, b, d, e = rows.advance(of, rates.lr, c)
        carried = q if p is None else d * old_x + e * new_p
        size_sq = d * d * xx + e * e * of.pp
    else:
        a, b, d, e, f = rows.carry(of, dot(old_x, new_p), dot(q, new_p), rates.lr, c)
        carried = d * old_x + e * new_p + f * q
        size_sq = dot(carried, carried)
    new_x, carried = rows.rounded(a * old_x + b * q, carried, x.dtype, c)
    fine = torch.isfinite(a) & torch.isfinite(b) & rows.holds(new_x, c)
    if p is not None:  # a momentum that could not be squared would stop the row for ever
        fine = fine & torch.isfinite(size_sq) & fits(carried, p.dtype)
    x.copy_(keep_bad_rows(fine, new_x, x))
    if p is not None:
        p.copy_(keep_bad_rows(fine, carried, old_p))
