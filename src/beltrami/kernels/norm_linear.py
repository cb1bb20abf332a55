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

from beltrami.kernels.dtypes import cast, matmul_dtype, wide, wide_dtype
from beltrami.kernels.fusing import fused_module


def norm_linear(x: Tensor, weight: Tensor, *, fused: bool | None = None) -> tuple[Tensor, Tensor]:
    """`x·Wᵀ`, (..., d) to (..., r), and `|x|²`, (..., 1).

    Args:
        x: (..., d). weight: (r, d). Both are cast to the dtype that autocast would multiply in.
        fused: None takes the Triton kernel on a GPU where it can do the work, False never, True is
            a `ValueError` where it cannot. What `torch.compile` traces is the plain one.

    Returns: the product in the dtype of the multiplication, the squares in float32 at least.
    """
    if x.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"x must have {weight.shape[-1]} features, as the weight of shape "
            f"{tuple(weight.shape)} has, got {tuple(x.shape)}"
        )
    dtype = matmul_dtype(x)
    x, weight = cast(x, dtype), cast(weight, dtype)
    kernel = fused_module("norm_linear_triton", fused, x, x, weight)
    u, n2 = _NormLinear.apply(x, weight, kernel)
    return u, n2


class _NormLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, kernel: ModuleType | None
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight)
        ctx.kernel = kernel
        ctx.set_materialize_grads(False)
        if kernel is not None:
            u, n2 = kernel.product_and_norms(x, weight)
            return u, n2
        return F.linear(x, weight), _squares(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, du: Tensor | None, dn2: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = _input_gradient(x, weight, du, dn2, ctx.kernel)
        if ctx.needs_input_grad[1] and du is not None:
            dw = du.reshape(-1, du.shape[-1]).mT @ x.reshape(-1, x.shape[-1])
        return dx, dw, None


def _squares(x: Tensor) -> Tensor:
    """|x|², summed in float32 at least."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide_dtype(x.dtype))
    return norm * norm


def _input_gradient(
    x: Tensor, weight: Tensor, du: Tensor | None, dn2: Tensor | None, kernel: ModuleType | None
) -> Tensor | None:
    if du is not None and dn2 is not None and kernel is not None:
        found: Tensor = kernel.input_gradient(x, weight, du, dn2)
        return found
    dx = None if dn2 is None else cast(2 * dn2 * wide(x), x.dtype)
    if du is None:
        return dx
    through = du @ weight
    return through if dx is None else through + dx
