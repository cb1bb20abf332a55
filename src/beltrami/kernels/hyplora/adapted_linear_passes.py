"""The two passes of `adapted_linear` by Triton kernels, for autograd and for the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.kernels.hyplora.gain import Gain
from beltrami.kernels.hyplora.gained_linear import weight_gradient
from beltrami.kernels.launch.dtypes import without_autocast
from beltrami.kernels.launch.launcher import is_traced


def forward_pass(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    down: Tensor,
    up: Tensor,
    gain: Gain,
    kernel: ModuleType,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The result, u, n², m² and the Gram matrix of B."""
    out = F.linear(x, weight, bias)  # first: a GPU is busy with it while the rest is started
    gram = kernel.gram_matrix(up)
    u, n2, z, m2 = kernel.rows(x, down, gram, gain)
    if is_traced():
        torch.ops.beltrami.add_product_(out, z, up)
    else:
        out.addmm_(z, up.mT)
    return out, u, n2, m2, gram


@without_autocast  # it would round what is not rounded forwards
def backward_pass(
    dy: Tensor,
    saved: Sequence[Any],
    gain: Gain,
    wanted: Sequence[bool],
    kernel: ModuleType,
) -> tuple[Tensor | None, ...]:
    """Gradients of x, W, bias, A, B and c, of those that are wanted.

    Args:
        dy: of the result.
        saved: x, W, A, B; what `forward_pass` returns beside the result; c if it is a tensor, or
            None.
        gain: its constants.
        wanted: of each gradient, whether it is.
        kernel: the module with the kernels.
    """
    x, weight, down, up, u, n2, m2, gram, c = saved
    through = torch.mm(dy, weight) if wanted[0] else None  # first, as forwards
    du, dn2, z, wu, by_c = kernel.gradient_rows(dy, up, u, gram, n2, m2, gain.at(c))
    dx = d_weight = d_bias = d_down = d_up = dc = None
    if wanted[0]:
        dx = kernel.input_gradient(x, down, du, dn2, through)
    if wanted[1]:
        d_weight = torch.mm(dy.mT, x)
    if wanted[2]:
        d_bias = dy.sum(0)
    if wanted[3]:
        d_down = torch.mm(du.mT, x)
    if wanted[4]:
        d_up = weight_gradient(dy, up, u, z, wu)
    if c is not None and wanted[5]:
        dc = by_c.sum().reshape(c.shape).to(c)
    return dx, d_weight, d_bias, d_down, d_up, dc
