r"""Attention by Lorentzian distance, with the Lorentz centroid of the values as its output.

    scores = −|q − k|²_L/σ = 2(q·k − t_q·τ_k)/σ + (what is constant along a row),
    out    = Σ a·v/(√c·|Σ a·v|_L),     a = softmax(scores).

Both are plain scaled-dot-product attention on heads that are wider by the time channel: queries
carry −t, keys τ (the excess time, so that nothing cancels at small c), values t. So every fast
attention of torch serves, with its causal form, grouped queries and masks. What the widening and
the normalisation keep for the backward pass are the very tensors attention keeps itself.

The norm of the mean is `(t̄ − |s̄|)(t̄ + |s̄|)`, a difference that loses digits for values far out;
its true lower bound 1/c (the weights sum to 1) is its floor. Half-precision heads carry each time
as a sum of two numbers, but their *output* is rounded, so for √c·|v| above about 10 the length of
the result is only as good as that rounding. At c = 0 this is attention by Euclidean distance.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.geometry.checks import Scalar, check_curvature
from beltrami.geometry.chord import dot, times_of
from beltrami.geometry.radial_map import load_with_scalar, save_with_scalar, sum_to
from beltrami.kernels.launch.dtypes import accumulation_dtype, cast, matmul_dtype, upcast
from beltrami.kernels.launch.saving import load_values, save_values

# Fused attention wants head sizes that are multiples of these, for half precision and for float32
# on a GPU.
_HALF_ALIGNMENT = 8
_FLOAT_ALIGNMENT = 4

# In flat space queries carry this as their time and keys |k|²/2 over it: a power of 2, so that
# nothing is rounded, and large enough to keep |k|² in the range of float16.
_FLAT_TIME = 256.0


def centroid_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    c: Scalar,
    scale: Scalar,
    score: str = "distance",
    aggregate: str = "centroid",
    causal: bool = False,
    mask: Tensor | None = None,
) -> Tensor:
    """Lorentz attention of queries over keys and values.

    Args:
        q: (B, T, H, D), points. k, v: (B, S, G, D); H a multiple of G, each key head serving H/G
            query heads in a row.
        c: curvature −c, a number or a tensor that broadcasts against q[..., :1]; the number 0
            means Euclidean distance and the plain mean.
        scale: what scores are multiplied by, 2/σ; a number or (H, 1).
        score: "distance", q·k − t_q·τ_k, or "dot", q·k alone.
        aggregate: "centroid", or "mean" of the space parts.
        causal: query i sees keys up to i + S − T.
        mask: bool, broadcasting to (B, H, T, S); True where a query may look. A query that may
            look nowhere gets the origin.

    Returns: (B, T, H, D).
    """
    if score not in ("distance", "dot") or aggregate not in ("centroid", "mean"):
        raise ValueError(
            f"score must be distance or dot and aggregate centroid or mean, got {score!r} and "
            f"{aggregate!r}"
        )
    dtype = matmul_dtype(q)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    flat = not isinstance(c, Tensor) and c == 0
    centroid = aggregate == "centroid" and not flat
    if score == "dot" and not centroid and not isinstance(scale, Tensor):
        return attend(q, k, v, scale=scale, causal=causal, mask=mask)
    if not flat:
        c = check_curvature(c, accumulation_dtype(dtype), q.device)
    size = q.shape[-1]
    kinds = (
        ("plain", "plain") if score == "dot" else ("one", "half") if flat else ("time", "excess")
    )
    queries = _widen(q, c, kinds[0], scale)
    keys = _widen(k, c, kinds[1], None)
    values = _widen(v, c, "time" if centroid else "plain", None)
    mean = attend(queries, keys, values, scale=1.0, causal=causal, mask=mask)
    if not centroid:
        return mean[..., :size]
    out: Tensor = _Normalise.apply(mean, size, c)
    return out


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    causal: bool = False,
    mask: Tensor | None = None,
) -> Tensor:
    """Scaled-dot-product attention on (B, T, H, D) heads; arguments as in `centroid_attention`."""
    length, keys = q.shape[1], k.shape[1]
    if causal and (mask is not None or (length != keys and length > 1)):
        mask = _and(mask, causal_mask(length, keys, q.device))
    whole = False
    if causal and mask is None and length == keys:  # an if: a compiler may hold lengths as symbols
        whole = True
    dead = None
    if mask is not None:
        mask = torch.atleast_2d(mask)  # what torch's attention takes
        # A row without keys has no softmax: let it see everything and discard the result.
        dead = ~mask.any(-1, keepdim=True)
        mask = mask | dead
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=mask,
        is_causal=whole,
        scale=scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    if dead is not None:
        out = torch.where(dead, 0.0, out)
    return out.transpose(1, 2)


def causal_mask(length: int, keys: int, device: torch.device) -> Tensor:
    """(length, keys), True where key j is not after query i, the last query seeing all keys."""
    return torch.ones(length, keys, dtype=torch.bool, device=device).tril(keys - length)


def _and(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else a & b


# --- the time channels ----------------------------------------------------------------------------


def _padding(x: Tensor, channels: int) -> int:
    """How many more channels, all 0, bring a head with time channels to a size that is fast."""
    size = x.shape[-1] + channels
    if x.dtype.itemsize <= 2:
        return -size % _HALF_ALIGNMENT
    return -size % _FLOAT_ALIGNMENT if x.dtype == torch.float32 and x.is_cuda else 0


def _widen(x: Tensor, c: Scalar, kind: str, scale: Scalar | None) -> Tensor:
    out: Tensor = _Widen.apply(x, c, kind, scale)
    return out


class _Widen(torch.autograd.Function):
    """`[x, time]` for keys and values (no scale), `scale·[x, −time]` for queries.

    In half precision a time is a sum of two numbers, hi + lo: the channels of a query are
    (hi, hi, lo), the others (hi, lo, hi); a product of both is that of the sums but for lo·lo.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, c: Scalar, kind: str, scale: Scalar | None) -> Tensor:
        time = _time(x, c, kind)
        is_query = scale is not None
        if scale is not None:
            x, time = (scale * x).to(x.dtype), -scale * time
        if x.dtype.itemsize > 2:
            parts = [x, time]
        else:
            hi = time.to(x.dtype)
            lo = (time - hi).to(x.dtype)
            parts = [x, hi, hi if is_query else lo, lo if is_query else hi]
        rest = _padding(x, len(parts) - 1)
        if rest:
            parts.append(x.new_zeros(*x.shape[:-1], rest))
        return torch.cat(parts, dim=-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, c, kind, scale = inputs
        ctx.kind, ctx.size = kind, x.shape[-1]
        save_values(ctx, (output, c, scale))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None, None, Tensor | None]:
        head, c, scale = load_values(ctx)
        kind, size = ctx.kind, ctx.size
        compute = accumulation_dtype(head.dtype)
        x, gx = head[..., :size].to(compute), g[..., :size].to(compute)
        g_time = g[..., size : size + 1].to(compute)
        if head.dtype.itemsize <= 2:
            # The gradient of hi + lo: that of the channels that meet the other side's hi and lo.
            # The mean of values is taken as channel 0 plus 1, so channel 2 has none there.
            other = size + (1 if scale is not None else 2)
            g_time = g_time + g[..., other : other + 1].to(compute)
        g_scale = gc = None
        if scale is not None:
            x = x / scale
            if ctx.needs_input_grad[3]:
                by_scale = dot(gx, x) - g_time * _time(x, c, kind)
                g_scale = sum_to(by_scale, scale).to(scale.dtype)
            gx, g_time = scale * gx, -scale * g_time
        if kind == "half":
            gx = torch.addcmul(gx, g_time / _FLAT_TIME, x)
        elif kind in ("time", "excess"):
            t, tau = times_of(dot(x, x), c)
            gx = torch.addcmul(gx, g_time / t, x)
            if ctx.needs_input_grad[1] and isinstance(c, Tensor):
                by_c = (tau * c**0.5 if kind == "excess" else -1.0) / (2 * c * c * t)
                gc = sum_to(g_time * by_c, c)
        return gx.to(g.dtype), gc, None, g_scale


def _time(x: Tensor, c: Scalar, kind: str) -> Tensor:
    """The time a head carries, (..., 1), in float32 at least."""
    dtype = accumulation_dtype(x.dtype)
    if kind in ("plain", "one"):
        return x.new_full((*x.shape[:-1], 1), 0.0 if kind == "plain" else _FLAT_TIME, dtype=dtype)
    n = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype)
    if kind == "half":
        # With "one", the limits of τ/√c and t·√c as c → 0, over and times a constant.
        half: Tensor = n * n / (2 * _FLAT_TIME)
        return half
    t, tau = times_of(n * n, c)
    return tau if kind == "excess" else t


# --- the centroid ---------------------------------------------------------------------------------


class _Normalise(torch.autograd.Function):
    """`s̄/(√c·N)`, N² = t̄² − |s̄|² but not below 1/c, for means (s̄, t̄) by weights of sum 1."""

    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, size: int, c: Scalar) -> Tensor:
        s, norm_sq, _ = _split_mean(mean, size, c)
        return cast(s * torch.rsqrt(torch.where(norm_sq > 1, norm_sq, 1.0)), mean.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        mean, ctx.size, c = inputs
        save_with_scalar(ctx, mean, c)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, Tensor | None]:
        mean, c = load_with_scalar(ctx)
        s, norm_sq, t = _split_mean(mean, ctx.size, c)
        free = norm_sq > 1  # below, the floor holds: the output is s̄ itself
        norm_sq = torch.where(free, norm_sq, 1.0)
        gain = torch.rsqrt(norm_sq)
        g = g.to(s.dtype)
        g_s = dot(g, s)
        pull = torch.where(free, gain * g_s / norm_sq, 0.0)  # −2·∂/∂(c·N²)
        gs = torch.addcmul(gain * g, c * pull, s)
        gt = -c * t * pull
        parts = [gs.to(mean.dtype), gt.to(mean.dtype)]
        if mean.dtype.itemsize <= 2:
            parts.append(parts[1])
        rest = mean.shape[-1] - ctx.size - len(parts) + 1
        if rest:
            parts.append(gt.new_zeros(*gt.shape[:-1], rest, dtype=mean.dtype))
        gc = None
        if ctx.needs_input_grad[2] and isinstance(c, Tensor):
            gc = sum_to(-pull * norm_sq / (2 * c), c)
        return torch.cat(parts, dim=-1), None, gc


def _split_mean(mean: Tensor, size: int, c: Scalar) -> tuple[Tensor, Tensor, Tensor]:
    """s̄, c·N² and t̄, in float32 at least."""
    whole = upcast(mean)
    s, t = whole[..., :size], whole[..., size : size + 1]
    if mean.dtype.itemsize <= 2:
        t = t + whole[..., size + 1 : size + 2]
    n = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    return s, c * (t - n) * (t + n), t
