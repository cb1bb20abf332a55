r"""One step of Riemannian Adam on the rows of a table of points, in place.

For a row x of d coordinates with gradient g, first moment p (a covector at x, see `geodesic_rows`)
and second moment v, a single number a row:

    p ← β₁p + (1 − β₁)g          v ← β₂v + (1 − β₂)|g|²_x/d
    α = (lr/(1 − β₁ᵗ))/(√(v/(1 − β₂ᵗ)) + ε)
    x, p ← the point at the end of the geodesic from x along −α·p, and p carried there.

v is the mean square of a coordinate of the gradient, as in Adam, and ε is compared with its root.
So lr is the root mean square change of a coordinate, a row moves lr·√d, and one rate serves tables
of every width, flat or curved.

It is Bécigneul and Ganea's Riemannian Adam (2019) with the exponential map and parallel transport,
at the cost of four or five products and two combinations a row: less traffic than Adam in flat
space, whose second moment is a table of its own.

A row that a step would make non-finite, as a gradient that is not finite does, is left as it is,
moments too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from beltrami.geometry.checks import Scalar
from beltrami.geometry.chord import dot
from beltrami.kernels.launch.dispatch import dispatch
from beltrami.kernels.launch.dtypes import upcast
from beltrami.kernels.rows.geodesic_rows import MODELS, Number, Products
from beltrami.kernels.rows.row_blocks import fits, keep_bad_rows, row_blocks


class AdamRates(NamedTuple):
    """The numbers of a step; those that change may be tensors without dimensions."""

    step_size: Number
    """lr/(1 − β₁ᵗ)."""
    correction: Number
    """1 − β₂ᵗ."""
    beta1: float
    beta2: float
    eps: float
    decay: float = 0.0
    """Times half the squared distance from the origin, added to the loss."""
    keep: Number | None = None
    """Decoupled decay: 1 − lr·decay, what is kept of the distance from the origin; None: all."""


def adam_rows_(
    x: Tensor,
    g: Tensor,
    p: Tensor,
    v: Tensor,
    v_max: Tensor | None,
    rates: AdamRates,
    *,
    c: Scalar,
    model: str,
    fused: bool | None = None,
) -> None:
    """One step of x, p, v and v_max, in place.

    Args:
        x: points, (..., d). g: their gradients. p: first moments; all of one shape.
        v: second moments, the mean over the coordinates of a row, (..., 1), in float32 at least.
        v_max: largest second moment so far (AMSGrad), or None.
        rates: the numbers of the step.
        c: curvature −c, a float or a tensor that broadcasts against v.
        model: "lorentz" or "poincare".
        fused: None takes the Triton kernel on a GPU where it can do the work, False never, True is
            a `ValueError` where it cannot. What `torch.compile` traces is the reference, in any
            case: the compiler fuses it.
    """
    kernel = dispatch("rows.adam_rows_triton", fused, x, g, p, v, v_max, rates, c)
    if kernel is not None:
        kernel.adam_rows_triton_(x, g, p, v, v_max, rates, c=c, model=model)
        return
    for block in row_blocks(x, c):
        largest = None if v_max is None else v_max[block]
        _reference_(x[block], g[block], p[block], v[block], largest, rates, c, model)


def _reference_(
    x: Tensor,
    g: Tensor,
    p: Tensor,
    v: Tensor,
    v_max: Tensor | None,
    rates: AdamRates,
    c: Scalar,
    model: str,
) -> None:
    rows = MODELS[model]
    old_x, old_p, wide_g = upcast(x), upcast(p), upcast(g)
    c = c.to(old_x.dtype) if isinstance(c, Tensor) else c
    decays = rates.decay != 0 or rates.keep is not None
    xx = torch.zeros_like(v) if rows.straight and not decays else dot(old_x, old_x)
    if rates.decay:
        wide_g = wide_g + rates.decay * rows.pull(xx, c) * old_x
    size_sq = rows.size_sq(Products(xx, dot(old_x, wide_g), dot(wide_g, wide_g)), c)
    new_p = torch.lerp(old_p, wide_g, 1 - rates.beta1)
    new_v = torch.lerp(v, size_sq / x.shape[-1], 1 - rates.beta2)
    largest = new_v if v_max is None else torch.maximum(v_max, new_v)
    alpha = rates.step_size / ((largest / rates.correction).sqrt() + rates.eps)

    of = Products(xx, dot(old_x, new_p), dot(new_p, new_p))
    if rates.keep is None:
        a, b, d, e = rows.advance(of, alpha, c)
    else:
        first = rows.shrink(of, rates.keep, c)
        a, b, d, e = rows.advance(first.products(of), alpha, c).after(first)
    new_x = a * old_x + b * new_p
    new_p = e * new_p if rows.straight and rates.keep is None else d * old_x + e * new_p
    new_x, carried = rows.rounded(new_x, new_p, x.dtype, c)
    # moments that could not be squared at the next step would stop a row for ever
    fine = torch.isfinite(a) & torch.isfinite(b) & rows.holds(new_x, c)
    fine = fine & torch.isfinite(new_v) & torch.isfinite(d * d * of.xx + e * e * of.pp)
    fine = fine & fits(carried, p.dtype)

    x.copy_(keep_bad_rows(fine, new_x, x))
    p.copy_(keep_bad_rows(fine, carried, old_p))
    v.copy_(keep_bad_rows(fine, new_v, v))
    if v_max is not None:
        v_max.copy_(keep_bad_rows(fine, largest, v_max))
