r"""A linear map and the squared norms of what went in: u = x·Wᵀ and n² = |x|², in one operation.

The backward pass, `dx = du·W + 2·dn²·x`, is one as well: as two operations, the second gradient
would be written, read and added through memory as wide as x. Nothing is saved but x and W, which
the linear map alone would save, too.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.kernels.launch.dispatch import dispatch
from beltrami.kernels.launch.dtypes import (
    accumulation_dtype,
    cast,
    matmul_dtype,
    overflow_safe_dtype,
    without_autocast,
)
from beltrami.kernels.launch.shapes import as_matrix


def norm_linear(x: Tensor, weight: Tensor, *, fused: bool | None = None) -> tuple[Tensor, Tensor]:
    """`x·Wᵀ`, (..., d) to (..., r), and `|x|²`, (..., 1).

    Args:
        x: (..., d). weight: (r, d). Both are cast to the dtype that autocast would multiply in.
        fused: None takes the Triton kernel on a GPU where it can do the work, False never, True is
            a `ValueError` where it cannot. What `torch.compile` traces is the plain one.

    Returns: the product in the dtype of the multiplication, the squares in float32 at least.
    """
    x, weight, kernel = _arguments(x, weight, fused)
    if not torch.is_grad_enabled():
        return _product_and_norms(x, weight, kernel)
    u, n2 = _NormLinear.apply(x, weight, kernel, False)
    return u, n2


def norm_linear_beside(
    x: Tensor, weight: Tensor, *, fused: bool | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`norm_linear`, and x for what else is made of it: that one's gradient is added on the way.

    As x in two places, the two gradients would be written, read and added through memory. The plain
    implementation leaves that to autograd. Nothing may change x in place afterwards.

    Returns: x, for all further uses; `x·Wᵀ`; `|x|²`.
    """
    same, weight, kernel = _arguments(x, weight, fused)
    if not torch.is_grad_enabled():
        return x, *_product_and_norms(same, weight, kernel)
    if kernel is None or same is not x or not x.requires_grad:
        return x, *_NormLinear.apply(same, weight, kernel, False)
    u, n2, x = _NormLinear.apply(x, weight, kernel, True)
    return x, u, n2


def _arguments(
    x: Tensor, weight: Tensor, fused: bool | None
) -> tuple[Tensor, Tensor, ModuleType | None]:
    if x.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"x must have {weight.shape[-1]} features, as the weight of shape "
            f"{tuple(weight.shape)} has, got {tuple(x.shape)}"
        )
    dtype = matmul_dtype(x)
    x, weight = cast(x, dtype), cast(weight, dtype)
    return x, weight, dispatch("hyplora.norm_linear_triton", fused, x, weight)


def _product_and_norms(
    x: Tensor, weight: Tensor, kernel: ModuleType | None
) -> tuple[Tensor, Tensor]:
    if kernel is None:
        return F.linear(x, weight), _squares(x)
    u, n2 = kernel.product_and_norms(x, weight)
    return u, n2


class _NormLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, kernel: ModuleType | None, beside: bool
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, weight)
        ctx.kernel = kernel
        ctx.set_materialize_grads(False)
        u, n2 = _product_and_norms(x, weight, kernel)
        return (u, n2, x) if beside else (u, n2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, du: Tensor | None, dn2: Tensor | None, beside: Tensor | None = None
    ) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors  # once: checkpoints unpack no tensor twice
        return *_backward(x, weight, ctx, du, dn2, beside), None, None


@without_autocast  # it would round what was not rounded forwards
def _backward(
    x: Tensor,
    weight: Tensor,
    ctx: Any,
    du: Tensor | None,
    dn2: Tensor | None,
    beside: Tensor | None,
) -> tuple[Tensor | None, Tensor | None]:
    dx = dw = None
    if ctx.needs_input_grad[0]:
        dx = _input_gradient(x, weight, du, dn2, beside, ctx.kernel)
    if ctx.needs_input_grad[1] and du is not None:
        dw = torch.mm(as_matrix(du).mT, as_matrix(x))
    return dx, dw


def _squares(x: Tensor) -> Tensor:
    """|x|², summed in float32 at least."""
    norm: Tensor = torch.linalg.vector_norm(
        x, dim=-1, keepdim=True, dtype=accumulation_dtype(x.dtype)
    )
    return norm * norm


def _input_gradient(
    x: Tensor,
    weight: Tensor,
    du: Tensor | None,
    dn2: Tensor | None,
    beside: Tensor | None,
    kernel: ModuleType | None,
) -> Tensor | None:
    if du is not None and dn2 is not None and kernel is not None:
        fused_dx: Tensor = kernel.input_gradient(x, weight, du, dn2, beside)
        return fused_dx
    # Not in float32 where x is narrow: compiled, the forward pass would keep that copy of x.
    room = overflow_safe_dtype(x.dtype)
    dx = None if dn2 is None else cast(cast(2 * dn2, room) * cast(x, room), x.dtype)
    for more in (None if du is None else du @ weight, beside):
        if more is not None:
            dx = more if dx is None else more + dx
    return dx
