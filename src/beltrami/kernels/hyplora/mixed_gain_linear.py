r"""A linear map times several hyperbolic gains, weighed for each token: `a + s·g·W·u`.

g is `Σ wₖ·lorentz_gain(Cₖ·n², Cₖ·|Wu|²)`, and each token may have curvatures of its own, too. With
one curvature for all tokens it is `gained_linear`, of which the rest is as it is there: the gain is
put on u, and |Wu|² = uᵀGu with G = WᵀW. With z = s·g·u and dz = dy·W,

    dg = s·Σ dz·u,    dwₖ = dg·gₖ,    dpₖ = dg·wₖ·∂gₖ/∂p,    dqₖ = dg·wₖ·∂gₖ/∂q,
    dn² = Σ Cₖ·dpₖ,    dCₖ = n²·dpₖ + m²·dqₖ,
    du = s·g·dz + 2v·G·u,    dW = dyᵀ·z + 2·W·(Uᵀ diag(v) U),    v = Σ Cₖ·dqₖ.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from beltrami.kernels.hyplora.gain import Gain
from beltrami.kernels.hyplora.gained_linear import (
    gram_matrix,
    rounded,
    squared_norms,
    weight_gradient,
)
from beltrami.kernels.launch.dispatch import dispatch
from beltrami.kernels.launch.dtypes import (
    accumulation_dtype,
    cast,
    overflow_safe_dtype,
    upcast,
    without_autocast,
)
from beltrami.kernels.launch.shapes import as_matrix, as_result

MOST_KEPT = 256  # sets of curvatures; whose change all the time are not worth more
_tensors: dict[tuple[tuple[float, ...], torch.dtype, torch.device], Tensor] = {}


@without_autocast  # it would round the Gram matrix
def mixed_gain_linear(
    u: Tensor,
    weight: Tensor,
    n2: Tensor,
    c: Tensor | Sequence[float],
    weights: Tensor | None = None,
    *,
    scaling: float = 1.0,
    cap: float | None = None,
    add_to: Tensor | None = None,
    fused: bool | None = None,
) -> Tensor:
    """`add_to + scaling·g·(u·Wᵀ)` with g = Σ weights·lorentz_gain(c·n², c·|Wu|²).

    Args:
        u, weight, n2, scaling, add_to, fused: as in `gained_linear`.
        c: curvatures −c: k numbers, or a tensor of shape (k,), or one of each token's own,
            (..., k). Tensors get a gradient.
        weights: (..., k); None if k is 1.
        cap: √c·n above this counts as this, and gets no gradient.

    Returns: (..., out), in the dtype of u, or of add_to if there is one.
    """
    if not isinstance(c, Tensor):
        c = _as_tensor(c, u)
    _check(u, weight, n2, c, weights)
    gain = Gain(c, scaling, cap)
    weight = cast(weight, u.dtype)
    kernel = dispatch("hyplora.mixed_gain_linear_triton", fused, u, weight, n2, c, weights)
    n2 = cast(n2, accumulation_dtype(n2.dtype))
    if kernel is None and not torch.is_grad_enabled() and u.numel() <= u.shape[-1] ** 2:
        return _of_few(u, weight, n2, gain, weights, add_to)
    # Of another dtype, add_to is added outside: the product must not be rounded to it first.
    inside = add_to if add_to is None or add_to.dtype == u.dtype else None
    out: Tensor
    if torch.is_grad_enabled():
        out = _MixedGainLinear.apply(u, weight, n2, c, weights, gain.constants, inside, kernel)
    else:
        out = _forward(u, weight, n2, gain, weights, inside, kernel)[0]
    return out if add_to is None or inside is not None else (add_to + out).to(add_to.dtype)


def _check(u: Tensor, weight: Tensor, n2: Tensor, c: Tensor, weights: Tensor | None) -> None:
    if u.shape[-1] != weight.shape[-1] or n2.shape != (*u.shape[:-1], 1):
        raise ValueError(
            f"u (..., r), weight (out, r) and n2 (..., 1) must fit together, got shapes "
            f"{tuple(u.shape)}, {tuple(weight.shape)} and {tuple(n2.shape)}"
        )
    if c.ndim == 0 or (c.ndim > 1 and c.shape[:-1] != u.shape[:-1]):
        raise ValueError(
            f"c must have shape (k,) or (..., k) for u of shape {tuple(u.shape)}, "
            f"got {tuple(c.shape)}"
        )
    if weights is None:
        if c.shape[-1] != 1:
            raise ValueError(f"{c.shape[-1]} curvatures need weights, (..., {c.shape[-1]})")
    elif weights.shape != (*u.shape[:-1], c.shape[-1]):
        raise ValueError(
            f"weights must have shape {(*u.shape[:-1], c.shape[-1])}, got {tuple(weights.shape)}"
        )


def _as_tensor(numbers: Sequence[float], u: Tensor) -> Tensor:
    """Numbers where u is; kept, since a copy to a GPU takes as long as all else here."""
    dtype = accumulation_dtype(u.dtype)
    if torch.compiler.is_compiling():
        return torch.tensor(numbers, dtype=dtype, device=u.device)
    key = tuple(numbers), dtype, u.device
    tensor = _tensors.get(key)
    if tensor is None:
        with torch.inference_mode(False):  # a tensor made in it cannot be saved in training
            here = torch.tensor(key[0], dtype=dtype, device="cpu")
            tensor = here.to(u.device, non_blocking=True)  # nobody waits for it
        # No stand-in of a mode that will end, and nothing that a graph will fill.
        if type(tensor) is Tensor and not (u.is_cuda and torch.cuda.is_current_stream_capturing()):
            if len(_tensors) >= MOST_KEPT:
                del _tensors[next(iter(_tensors))]
            _tensors[key] = tensor
    return tensor


def _of_few(
    u: Tensor,
    weight: Tensor,
    n2: Tensor,
    gain: Gain,
    weights: Tensor | None,
    add_to: Tensor | None,
) -> Tensor:
    """The same for up to r tokens without gradients: the norm of W·u is cheaper than WᵀW then."""
    mapped = upcast(u @ weight.mT)
    m2 = mapped.square().sum(-1, keepdim=True)
    gained = gain.scaling * _weighed(gain.values(n2, m2), weights) * mapped
    if add_to is None:
        return rounded(gained, u.dtype)
    return rounded(upcast(add_to) + gained, add_to.dtype)


def _forward(
    u: Tensor,
    weight: Tensor,
    n2: Tensor,
    gain: Gain,
    weights: Tensor | None,
    add_to: Tensor | None,
    kernel: ModuleType | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, m² and the Gram matrix."""
    gram = (gram_matrix if kernel is None else kernel.gram_matrix)(weight)
    rows = _rows if kernel is None else kernel.rows
    z, m2 = rows(u, gram, n2, gain, weights)
    if add_to is None:
        return z @ weight.mT, m2, gram
    flat = torch.addmm(as_matrix(add_to), as_matrix(z), weight.mT)
    return as_result(flat, add_to.shape), m2, gram


class _MixedGainLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        weight: Tensor,
        n2: Tensor,
        c: Tensor,
        weights: Tensor | None,
        gain: Gain,
        add_to: Tensor | None,
        kernel: ModuleType | None,
    ) -> Tensor:
        out, m2, gram = _forward(u, weight, n2, gain.at(c), weights, add_to, kernel)
        ctx.save_for_backward(u, weight, n2, m2, gram, c, weights)
        ctx.gain, ctx.kernel, ctx.adds = gain, kernel, add_to is not None
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(dy, ctx)


@without_autocast
def _backward(dy: Tensor, ctx: Any) -> tuple[Tensor | None, ...]:
    u, weight, n2, m2, gram, c, weights = ctx.saved_tensors
    by_c = ctx.needs_input_grad[3]
    rows = _rows_backward if ctx.kernel is None else ctx.kernel.rows_backward
    dy_rows = as_matrix(dy)
    dz = torch.mm(dy_rows, weight).view(u.shape)
    du, dn2, z, vu, dc, dweights = rows(dz, u, gram, n2, m2, ctx.gain.at(c), weights, by_c)
    dw = weight_gradient(dy_rows, weight, u, z, vu) if ctx.needs_input_grad[1] else None
    if dc is not None:
        dc = (dc if c.ndim > 1 else as_matrix(dc).sum(0)).to(c)
    return du, dw, dn2, dc, dweights, None, dy if ctx.adds else None, None


def _weighed(gains: Tensor, weights: Tensor | None) -> Tensor:
    """Those of all curvatures, (..., k), to g, (..., 1)."""
    return gains if weights is None else (gains * weights).sum(-1, keepdim=True)


def _rows(
    u: Tensor,
    gram: Tensor,
    n2: Tensor,
    gain: Gain,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """z = s·g·u in u's dtype, and m² = |Wu|², (..., 1)."""
    w = upcast(u)
    m2 = squared_norms(w, gram)
    return rounded(gain.scaling * _weighed(gain.values(n2, m2), weights) * w, u.dtype), m2


def _rows_backward(
    dz: Tensor,
    u: Tensor,
    gram: Tensor,
    n2: Tensor,
    m2: Tensor,
    gain: Gain,
    weights: Tensor | None,
    by_c: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """du, dn², z, v·u, dc of each token, (..., k), if it is wanted, and dweights."""
    wide_u, wide_dz = upcast(u), upcast(dz)
    gains, by_p, by_q = gain.values_and_slopes(n2, m2)
    scale = gain.scaling * _weighed(gains, weights)
    dg = gain.scaling * (wide_dz * wide_u).sum(-1, keepdim=True)
    share = dg if weights is None else dg * weights
    dp, dq = share * by_p, share * by_q
    v = (gain.c * dq).sum(-1, keepdim=True)
    du = scale * wide_dz + 2 * v * (wide_u @ gram)
    return (
        cast(du, u.dtype),
        cast((gain.c * dp).sum(-1, keepdim=True), n2.dtype),
        rounded(scale * wide_u, u.dtype),
        cast(v * wide_u, overflow_safe_dtype(u.dtype)),
        dp * n2 + dq * m2 if by_c else None,
        None if weights is None else cast(dg * gains, weights.dtype),
    )
