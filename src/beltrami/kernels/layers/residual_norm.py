r"""The Lorentz residual and the RMSNorm after it, in one pass forwards and one back:

    x' = residual(x, y + τ⊗w_τ),     h = RMSNorm(x')·g,     τ' = τ(h).

τ⊗w_τ is the time column of the projection that made y, which thus costs no pass of its own, and τ'
is what the time columns of the next projections need. Kept for the backward pass are x, y, τ and
two numbers a row, b = t_y/t_x and the norm's 1/rms. A norm hardly sees the length of what it gets:
with G the gradient of x' in all and z = x + w·y, so that x' = gain·z,

    ⟨G, z⟩ = ⟨∂x', z⟩ + ε/rms³·⟨g·∂h, z⟩,

whose second term is a small difference of large numbers if it is taken from G.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.geometry.checks import Scalar
from beltrami.kernels.launch.dispatch import custom_operator, takes_operator
from beltrami.kernels.launch.dtypes import cast, matmul_dtype
from beltrami.kernels.launch.shapes import as_matrix, as_number
from beltrami.kernels.layers.residual import residual
from beltrami.kernels.layers.time_linear import excess_time

MOST_COLUMNS = 8192  # of a row, which one program holds


def residual_norm(
    x: Tensor,
    y: Tensor,
    norm_weight: Tensor | None = None,
    weight: Scalar = 1.0,
    *,
    radius: Scalar,
    scale: float | None = None,
    keep: bool = False,
    eps: float = 1e-6,
    tau: Tensor | None = None,
    time_weight: Tensor | None = None,
    returns_time: bool = False,
    fused: bool | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The stream after a residual, its norm, and the norm's excess time.

    Args:
        x: the stream, (..., d). y: the branch.
        norm_weight: g, (d,); None for the residual alone.
        weight, radius, scale, keep: as in `residual`.
        eps: of the norm.
        tau, time_weight: τ, (..., 1), and w_τ, (d,), of the branch's time column.
        returns_time: whether the excess time of h is wanted.
        fused: as in `dispatch`; `torch.compile`, too, is given the kernels.

    Returns: x' in the promoted dtype of x and y; h in the same, but under autocast in that of the
        products that read it; τ', (..., 1), in float32 at least. What is not asked for is None.
    """
    returns_time = returns_time and norm_weight is not None
    reason = None
    if x.shape != y.shape or any(
        isinstance(t, Tensor) and t.numel() != 1 for t in (weight, radius)
    ):
        reason = "x and y must have one shape, weight and radius be single numbers"
    elif torch.promote_types(x.dtype, y.dtype) != x.dtype:
        reason = f"the branch must fit into the stream, got {y.dtype} and {x.dtype}"
    elif x.shape[-1] > MOST_COLUMNS:
        reason = f"it takes up to {MOST_COLUMNS} features, got {x.shape[-1]}"
    if takes_operator(fused, x, y, tau, time_weight, norm_weight, reason=reason):
        if keep and scale is not None:
            raise ValueError(f"keep chooses the scale γ, got scale={scale} as well")
        rows = [None if t is None else as_matrix(t).contiguous() for t in (x, y, tau)]
        vectors = [None if t is None else t.contiguous() for t in (time_weight, norm_weight)]
        numbers = [as_number(t, x) for t in (weight, radius)]
        rest = (scale, keep, eps, returns_time, matmul_dtype(x))
        out, h, time, *_ = _operator(*rows, *vectors, *numbers, *rest)
        return (
            out.view(x.shape),
            None if norm_weight is None else h.view(x.shape),
            time.view(*x.shape[:-1], 1) if returns_time else None,
        )
    if tau is not None and time_weight is not None:
        y = (y + tau * time_weight).to(y.dtype)
    out = residual(x, y, weight, scale=scale, keep=keep, radius=radius)
    if norm_weight is None:
        return out, None, None
    h = F.rms_norm(out, out.shape[-1:], norm_weight, eps)
    h = cast(h, matmul_dtype(h))
    return out, h, excess_time(h, radius) if returns_time else None


def _results(x: Tensor, *others: Any) -> tuple[Tensor, ...]:
    """x', h, τ', b and 1/rms."""
    norm_weight, *_, returns_time, dtype = others[3:]
    rows, numbers = x.shape[0], x.new_empty(x.shape[0], dtype=torch.float32)
    normed = norm_weight is not None
    return (
        torch.empty_like(x),
        torch.empty_like(x, dtype=dtype) if normed else x.new_empty(0),
        torch.empty_like(numbers) if returns_time else numbers.new_empty(0),
        numbers,
        numbers.new_empty(rows if normed else 0),
    )


def _gradients(*arguments: Any) -> tuple[Tensor, ...]:
    """Those of x, y, τ, w_τ, g, w and R."""
    return tuple(
        torch.empty_like(t) if t is not None else arguments[3].new_empty(0) for t in arguments[3:10]
    )


_INPUTS = (
    "Tensor x, Tensor y, Tensor? tau, Tensor? time_weight, Tensor? norm_weight, Tensor weight,"
    " Tensor radius"
)
_CONSTANTS = "float? scale, bool keep, float eps"
_KERNELS = "layers.residual_norm_triton"
_operator = custom_operator(
    "residual_norm",
    f"({_INPUTS}, {_CONSTANTS}, bool returns_time, ScalarType dtype)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _results,
    _KERNELS,
    "forward",
)
_backward_operator = custom_operator(
    "residual_norm_backward",
    f"(Tensor? by_out, Tensor? by_h, Tensor? by_time, {_INPUTS}, Tensor time, Tensor ratio,"
    f" Tensor rstd, {_CONSTANTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _gradients,
    _KERNELS,
    "backward",
)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:7], *output[2:])
    ctx.constants = inputs[7:10]
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, by_out: Tensor | None, by_h: Tensor | None, by_time: Tensor | None, *_: Any
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    by_results = [None if t is None else t.contiguous() for t in (by_out, by_h, by_time)]
    gradients = _backward_operator(*by_results, *saved, *ctx.constants)
    wanted = ctx.needs_input_grad
    return *(g if w else None for g, w in zip(gradients, wanted, strict=False)), *[None] * 5


_operator.register_autograd(_backward, setup_context=_keep)
