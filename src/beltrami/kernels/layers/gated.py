r"""The gate of an MLP, h = silu(g)·u, and the excess time of h in the same pass.

The time column of the projection after it needs the time. Backwards one pass makes both gradients
anew from g and u. A compiler fuses the plain form into as few passes, beside what comes before and
after, so that compiled graphs get that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.geometry.checks import Scalar
from beltrami.kernels.launch.dispatch import custom_operator, takes_operator
from beltrami.kernels.launch.shapes import as_matrix, as_number
from beltrami.kernels.layers.time_linear import excess_time


def gated(
    gate: Tensor,
    up: Tensor,
    *,
    radius: Scalar | None = None,
    activation: Callable[[Tensor], Tensor] | None = None,
    fused: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """h = silu(gate)·up, (..., n), and its excess time, (..., 1).

    Args:
        gate, up: (..., n).
        radius: 1/√c of the space in which h is a point; None if no time is wanted.
        activation: in the place of silu; has no kernel.
        fused: as in `dispatch`; `torch.compile` is given the plain form, unless told otherwise by
            the environment variable BELTRAMI_KERNELS.
    """
    reason = None
    if activation is not None or gate.shape != up.shape or gate.dtype != up.dtype:
        reason = "it takes silu, of two tensors of one shape and dtype"
    elif isinstance(radius, Tensor) and radius.numel() != 1:
        reason = "it takes one radius"
    if takes_operator(fused, gate, up, reason=reason, traced=False):
        r = None if radius is None else as_number(radius, gate)
        h, time = _operator(as_matrix(gate).contiguous(), as_matrix(up).contiguous(), r)
        return h.view(gate.shape), None if r is None else time.view(*gate.shape[:-1], 1)
    h = (activation or F.silu)(gate) * up
    return h, None if radius is None else excess_time(h, radius)


def _results(gate: Tensor, up: Tensor, radius: Tensor | None) -> tuple[Tensor, ...]:
    rows = 0 if radius is None else gate.shape[0]
    return torch.empty_like(gate), gate.new_empty(rows, dtype=torch.float32)


def _gradients(by_h: Tensor, by_time: Tensor, gate: Tensor, *others: Any) -> tuple[Tensor, ...]:
    """Those of gate, up and R."""
    radius = others[-1]
    by_radius = gate.new_empty(0) if radius is None else torch.empty_like(radius)
    return torch.empty_like(gate), torch.empty_like(gate), by_radius


_operator = custom_operator(
    "gated",
    "(Tensor gate, Tensor up, Tensor? radius) -> (Tensor, Tensor)",
    _results,
    "layers.gated_triton",
    "forward",
)
_backward_operator = custom_operator(
    "gated_backward",
    "(Tensor by_h, Tensor by_time, Tensor gate, Tensor up, Tensor time, Tensor? radius)"
    " -> (Tensor, Tensor, Tensor)",
    _gradients,
    "layers.gated_triton",
    "backward",
)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    gate, up, radius = inputs
    ctx.save_for_backward(gate, up, output[1], radius)


def _backward(ctx: Any, by_h: Tensor, by_time: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    by_gate, by_up, by_radius = _backward_operator(by_h.contiguous(), by_time.contiguous(), *saved)
    return by_gate, by_up, None if saved[3] is None else by_radius


_operator.register_autograd(_backward, setup_context=_keep)
