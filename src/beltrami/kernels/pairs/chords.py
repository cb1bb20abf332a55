r"""Squared chords of all pairs of points, from one float64 matrix product.

With the excess `e = |x|²/(1 + T)` and T = √(1 + c|x|²) = 1 + c·e,

    Q(x, y) = |x − y|²_L = 2(e_x + T_x·e_y − x·y) = [−2x, 2e_x, 2T_x]·[y, 1, e_y],

so all of Q is one product of rows of d + 2. c = 0 gives |x − y|². Its rounding is that of the
float64 product, eps·|x||y|: distances that float32 coordinates resolve keep all float32 digits, and
coincident rows get one of up to 4e-8·sinh(√c·r)/√c, as in `lorentz.pairwise_dist`, at a fraction of
its elementwise work. float64 points have no wider product to go through; far out they lose digits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from beltrami.geometry.checks import Scalar
from beltrami.geometry.chord import dot, root


class Rows(NamedTuple):
    """Points (..., n, d) in float64 and their scalars, (..., n, 1)."""

    x: Tensor
    norm: Tensor
    time: Tensor  # T
    excess: Tensor  # e


def rows_of(x: Tensor, c: Scalar) -> Rows:
    """The rows of x; c is 0 or broadcasts against x[..., :1]."""
    x = x.double()
    c = c.double() if isinstance(c, Tensor) else c
    n2 = dot(x, x)
    time = torch.sqrt(1 + c * n2)
    return Rows(x, root(n2), time, n2 / (1 + time))


def left(r: Rows) -> Tensor:
    """The left factor of the product, (..., n, d + 2)."""
    return torch.cat([-2 * r.x, 2 * r.excess, 2 * r.time], -1)


def right(r: Rows) -> Tensor:
    """The right factor of the product, (..., m, d + 2)."""
    return torch.cat([r.x, torch.ones_like(r.time), r.excess], -1)


def chords(a: Tensor, b: Tensor) -> Tensor:
    """Q of all pairs from their factors, (..., n, m), in float64.

    Its absolute value: where rounding leaves Q below 0, the sign says as little as the digits.
    """
    return (a @ b.transpose(-1, -2)).abs()
