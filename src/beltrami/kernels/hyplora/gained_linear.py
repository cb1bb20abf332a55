r"""A linear map times the hyperbolic gain of each token: `a + s·g·W·u`.

g is `lorentz_gain(c·n², c·|Wu|²)`. The norm of W·u needs no W·u: |Wu|² = uᵀ(WᵀW)u, with a Gram
matrix as small as u is short. So the gain is put on u before it is multiplied, and what is kept
for the backward pass is u, W, G and two numbers a token. With z = s·g·u, G = WᵀW and dz = dy·W,

    dg = s·Σ dz·u,    du = s·g·dz + 2w·G·u,    w = c·dg·∂g/∂q,    dn² = c·dg·∂g/∂p,
    dW = dyᵀ·z + 2·W·(Uᵀ diag(w) U),    dc = Σ dg·(n²·∂g/∂p + m²·∂g/∂q).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from beltrami.kernels.hyplora.gain import Gain
from beltrami.kernels.launch.dispatch import dispatch
from beltrami.kernels.launch.dtypes import (
    accumulation_dtype,
    cast,
    overflow_safe_dtype,
    upcast,
    without_autocast,
)
from beltrami.kernels.launch.shapes import as_matrix, as_result


@without_autocast  # it would round the Gram matrix
def gained_linear(
    u: Tensor,
    weight: Tensor,
    n2: Tensor,
    c: Tensor | float,
    *,
    scaling: float = 1.0,
    cap: float | None = None,
    stereographic: bool = False,
    add_to: Tensor | None = None,
    fused: bool | None = None,
) -> Tensor:
    """`add_to + scaling·g·(u·Wᵀ)` with g = lorentz_gain(c·n², c·|Wu|²).

    Args:
        u: (..., r). weight: (out, r), cast to u's dtype.
        n2: (..., 1), the squared norms that the gain starts from.
        c: curvature −c: a number, or a tensor of one, which then gets a gradient.
        scaling, cap, stereographic: of the gain, as in `Gain`.
        add_to: (..., out) to add the map to; the gradient goes through.
        fused: as in `norm_linear`.

    Returns: (..., out), in the dtype of u, or of add_to if there is one.
    """
    gain = Gain(c, scaling, cap, stereographic)
    gain.check()
    if u.shape[-1] != weight.shape[-1] or n2.shape != (*u.shape[:-1], 1):
        raise ValueError(
            f"u (..., r), weight (out, r) and n2 (..., 1) must fit together, got shapes "
            f"{tuple(u.shape)}, {tuple(weight.shape)} and {tuple(n2.shape)}"
        )
    weight = cast(weight, u.dtype)
    kernel = dispatch("hyplora.gained_linear_triton", fused, u, weight, n2)
    n2 = cast(n2, accumulation_dtype(n2.dtype))
    if kernel is None and not torch.is_grad_enabled() and u.numel() <= u.shape[-1] ** 2:
        return _of_few(u, weight, n2, gain, add_to)
    # Of another dtype, add_to is added outside: the product must not be rounded to it first.
    inside = add_to if add_to is None or add_to.dtype == u.dtype else None
    out: Tensor
    if torch.is_grad_enabled():
        tensor, constants = gain.c_tensor, gain.constants
        out = _GainedLinear.apply(u, weight, n2, tensor, constants, inside, kernel)
    else:
        out = _forward(u, weight, n2, gain, inside, kernel)[0]
    return out if add_to is None or inside is not None else (add_to + out).to(add_to.dtype)


def _of_few(u: Tensor, weight: Tensor, n2: Tensor, gain: Gain, add_to: Tensor | None) -> Tensor:
    """The same for up to r tokens without gradients: the norm of W·u is cheaper than WᵀW then."""
    mapped = upcast(u @ weight.mT)
    m2 = mapped.square().sum(-1, keepdim=True)
    gained = gain.scaling * gain.values(n2, m2) * mapped
    if add_to is None:
        return rounded(gained, u.dtype)
    return rounded(upcast(add_to) + gained, add_to.dtype)


def _forward(
    u: Tensor,
    weight: Tensor,
    n2: Tensor,
    gain: Gain,
    add_to: Tensor | None,
    kernel: ModuleType | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, m² and the Gram matrix."""
    gram = (gram_matrix if kernel is None else kernel.gram_matrix)(weight)
    rows = _rows if kernel is None else kernel.rows
    z, m2 = rows(u, gram, n2, gain)
    if add_to is None:
        return z @ weight.mT, m2, gram
    flat = torch.addmm(as_matrix(add_to), as_matrix(z), weight.mT)
    return as_result(flat, add_to.shape), m2, gram


class _GainedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        weight: Tensor,
        n2: Tensor,
        c: Tensor | None,
        gain: Gain,
        add_to: Tensor | None,
        kernel: ModuleType | None,
    ) -> Tensor:
        out, m2, gram = _forward(u, weight, n2, gain.at(c), add_to, kernel)
        ctx.save_for_backward(u, weight, n2, m2, gram, c)
        ctx.gain, ctx.kernel, ctx.adds = gain, kernel, add_to is not None
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(dy, ctx)


@without_autocast
def _backward(dy: Tensor, ctx: Any) -> tuple[Tensor | None, ...]:
    u, weight, n2, m2, gram, c = ctx.saved_tensors
    rows = _rows_backward if ctx.kernel is None else ctx.kernel.rows_backward
    dy_rows = as_matrix(dy)
    dz = torch.mm(dy_rows, weight).view(u.shape)
    du, dn2, z, wu, by_c = rows(dz, u, gram, n2, m2, ctx.gain.at(c))
    dw = weight_gradient(dy_rows, weight, u, z, wu) if ctx.needs_input_grad[1] else None
    dc = None
    if c is not None and ctx.needs_input_grad[3]:
        dc = by_c.sum().reshape(c.shape).to(c)
    return du, dw, dn2, dc, None, dy if ctx.adds else None, None


def weight_gradient(dy: Tensor, weight: Tensor, u: Tensor, z: Tensor, wu: Tensor) -> Tensor:
    """`dyᵀ·z + 2·W·(Uᵀ diag(w) U)`."""
    straight = torch.mm(dy.mT, as_matrix(z))
    bend = torch.mm(as_matrix(wu).mT, cast(as_matrix(u), wu.dtype))
    bent = cast(straight, wu.dtype).addmm_(cast(weight, wu.dtype), bend, alpha=2)
    return cast(bent, weight.dtype)


def gram_matrix(weight: Tensor) -> Tensor:
    """WᵀW, in float32 at least: m² is a difference of its entries."""
    w = upcast(weight)
    return w.mT @ w


def _rows(u: Tensor, gram: Tensor, n2: Tensor, gain: Gain) -> tuple[Tensor, Tensor]:
    """z = s·g·u in u's dtype, and m² = |Wu|², (..., 1)."""
    w = upcast(u)
    m2 = squared_norms(w, gram)
    return rounded(gain.scaling * gain.values(n2, m2) * w, u.dtype), m2


def _rows_backward(
    dz: Tensor, u: Tensor, gram: Tensor, n2: Tensor, m2: Tensor, gain: Gain
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """du, dn², z, w·u and each token's share of dc."""
    wide_u, wide_dz = upcast(u), upcast(dz)
    g, by_p, by_q = gain.values_and_slopes(n2, m2)
    dg = gain.scaling * (wide_dz * wide_u).sum(-1, keepdim=True)
    dp, dq = dg * by_p, dg * by_q
    w = gain.c * dq
    du = gain.scaling * g * wide_dz + 2 * w * (wide_u @ gram)
    z = gain.scaling * g * wide_u
    return (
        cast(du, u.dtype),
        cast(gain.c * dp, n2.dtype),
        rounded(z, u.dtype),
        cast(w * wide_u, overflow_safe_dtype(u.dtype)),
        dp * n2 + dq * m2,
    )


def rounded(z: Tensor, dtype: torch.dtype) -> Tensor:
    """z in a dtype; not beyond float16's largest number, for infinity times 0 is not a number."""
    if dtype == torch.float16:
        most = torch.finfo(dtype).max
        z = torch.where(z > most, most, torch.where(z < -most, -most, z))
    return cast(z, dtype)


def squared_norms(u: Tensor, gram: Tensor) -> Tensor:
    """|Wu|² = uᵀGu, (..., 1): not negative but for rounding, which is taken for 0."""
    m2 = (u * (u @ gram)).sum(-1, keepdim=True)
    return torch.where(m2 < 0, 0.0, m2)
