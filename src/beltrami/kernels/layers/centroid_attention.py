r"""Attention by Lorentzian distance, with the Lorentz centroid of the values as its output.

    scores = −|q − k|²_L/σ = 2(q·k − t_q·τ_k)/σ + (what is constant along a row),
    out    = Σ a·v/(√c·|Σ a·v|_L),     a = softmax(scores).

Both are plain scaled-dot-product attention on heads that are wider by the time channel: queries
carry t, keys −τ (the excess time, so that nothing cancels at small c), values t. So every fast
attention of torch serves, with its causal form, grouped queries and masks. What the widening and
the normalisation keep for the backward pass are the very tensors attention keeps itself.

Fast attention has tiles of 64 or 128 channels, which a head should fill with its times counted: one
of 60 coordinates carries three channels of time in half precision and is stored with 64.

A score is thus a difference of products, with an error of a few eps·|q||k|·2/σ: next to nothing in
natural units or behind a norm, but 0.1 for |q| = |k| = 1500 at σ = 8 in float32, where the distance
of the same points, from differences (`lorentz.chord_sq`), is known to the rounding of the points.

The norm of the mean is `(t̄ − |s̄|)(t̄ + |s̄|)`, a difference that loses digits for values far out;
its true lower bound 1/c (the weights sum to 1) is its floor. Half-precision heads carry each time
as a sum of two numbers, but their *output* is rounded, so for √c·|v| above about 10 the length of
the result is only as good as that rounding. At c = 0 this is attention by Euclidean distance.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.geometry.checks import Scalar, check_curvature
from beltrami.geometry.chord import dot
from beltrami.geometry.radial_map import sum_to
from beltrami.kernels.launch.dtypes import accumulation_dtype, cast, matmul_dtype, upcast
from beltrami.kernels.launch.saving import load_values, save_values

# Fused attention wants head sizes that are multiples of these, for half precision and for float32
# on a GPU. On a CPU a vector of 16 that lacks few channels is cheaper full.
_HALF_ALIGNMENT, _FLOAT_ALIGNMENT = 8, 4
_CPU_VECTOR, _FEW = 16, 3

# In flat space queries carry this as their time and keys |k|²/2 over it: a power of 2, so that
# nothing is rounded, and large enough to keep |k|² in the range of float16.
_FLAT_TIME = 256.0


def centroid_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    c: Scalar | None = None,
    radius: Scalar | None = None,
    scale: Scalar,
    score: str = "distance",
    aggregate: str = "centroid",
    causal: bool = False,
    mask: Tensor | None = None,
    q_time: Tensor | None = None,
    k_time: Tensor | None = None,
    v_time: Tensor | None = None,
) -> Tensor:
    """Lorentz attention of queries over keys and values.

    Args:
        q: (B, T, H, D), points. k: (B, S, G, D); H a multiple of G, each key head serving H/G query
            heads in a row. v: (B, S, G, E), whose width may be another one.
        c: curvature −c, a number or a tensor that broadcasts against q[..., :1]; the number 0
            means Euclidean distance and the plain mean.
        radius: 1/√c, in the place of c, from callers that have it; `math.inf` in flat space.
        scale: what scores are multiplied by, 2/σ; a number or (H, 1).
        score: "distance", q·k − t_q·τ_k, or "dot", q·k alone.
        aggregate: "centroid", or "mean" of the space parts.
        causal: query i sees keys up to i + S − T.
        mask: bool, broadcasting to (B, H, T, S); True where a query may look. A query that may
            look nowhere gets the origin.
        q_time, k_time, v_time: times of the points, (B, T, H, 1) and (B, S, G, 1), from callers
            that know them or whose q, k and v are not the whole space part (latent attention);
            `√(1/c + |x|²)` if None. q_time and k_time are for "distance", v_time for "centroid". A
            key's τ is then k_time − 1/√c, with the rounding of k_time.

    Returns: (B, T, H, E).
    """
    if score not in ("distance", "dot") or aggregate not in ("centroid", "mean"):
        raise ValueError(
            f"score must be distance or dot and aggregate centroid or mean, got {score!r} and "
            f"{aggregate!r}"
        )
    _check_heads(q, k, v)
    dtype = matmul_dtype(q)
    compute = accumulation_dtype(dtype)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if radius is None:
        flat = not isinstance(c, Tensor) and c == 0
        radius = math.inf if flat else check_curvature(c, compute, q.device) ** -0.5  # type: ignore[arg-type]
    flat = not isinstance(radius, Tensor) and radius == math.inf
    distance, centroid = score == "distance", aggregate == "centroid" and not flat
    _check_time("q_time", q_time, q, distance and not flat, "score='distance'")
    _check_time("k_time", k_time, k, distance and not flat, "score='distance'")
    _check_time("v_time", v_time, v, centroid, "aggregate='centroid'")

    r = None
    if not flat:
        r = (
            radius.to(compute)
            if isinstance(radius, Tensor)
            else q.new_full((1,), radius, dtype=compute)
        )
    factor, heads_scale = (1.0, scale) if isinstance(scale, Tensor) else (scale, None)
    if distance:
        width = _filled(q.shape[-1] + _channels(dtype, 3), q)
        q = with_time(q, r, "query", width, scale=heads_scale, time=q_time)
        if k_time is not None and r is not None:
            k_time = (
                r.detach() - k_time
            )  # −τ; of a constant along the row the softmax knows nothing
        k = with_time(k, r, "key", width, time=k_time)
    elif heads_scale is not None:
        q = (heads_scale * q).to(dtype)
    if not centroid:
        return attend(q, k, v, scale=factor, causal=causal, mask=mask)
    size = v.shape[-1]
    v = with_time(v, r, "value", _filled(size + _channels(dtype, 2), v), time=v_time)
    mean = attend(q, k, v, scale=factor, causal=causal, mask=mask)
    assert r is not None
    return centroid_of_mean(mean, size, r)


def with_time(
    x: Tensor,
    radius: Tensor | None,
    role: str,
    width: int,
    *,
    scale: Tensor | None = None,
    time: Tensor | None = None,
) -> Tensor:
    """Heads with the channels in which plain attention carries their times, (..., width).

    `[x, t]` for values, `[x, −τ]` for keys and `scale·[x, t]` for queries, then zeros; in half
    precision a time is a sum of two numbers, which takes three channels in queries and keys and two
    in values.

    Args:
        x: (..., d), points.
        radius: 1/√c, broadcasting against x[..., :1]; None in flat space, where queries and keys
            carry |q − k|².
        role: "query", "key" or "value".
        width: channels of the result, at least d + 3.
        scale: of queries, broadcasting against x[..., :1].
        time: what the head shall carry, −τ for keys, if the caller knows it.
    """
    out: Tensor = _Widen.apply(x, time, radius, scale, role, width)
    return out


def centroid_of_mean(mean: Tensor, size: int, radius: Tensor) -> Tensor:
    """The Lorentz centroid, (..., size), of a mean (..., width) of values `with_time`."""
    out: Tensor = _Normalise.apply(mean, size, radius)
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
    size, width = v.shape[-1], q.shape[-1]
    if size != width and q.device.type == "cpu":  # its fast attention has one width for all
        q, k, v = (F.pad(t, (0, max(size, width) - t.shape[-1])) for t in (q, k, v))
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
    out = out.transpose(1, 2)
    return out if out.shape[-1] == size else out[..., :size]


def causal_mask(length: int, keys: int, device: torch.device) -> Tensor:
    """(length, keys), True where key j is not after query i, the last query seeing all keys."""
    return torch.ones(length, keys, dtype=torch.bool, device=device).tril(keys - length)


def _and(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else a & b


def _check_heads(q: Tensor, k: Tensor, v: Tensor) -> None:
    if q.ndim != 4:
        raise ValueError(f"q must have shape (B, T, H, D), got {tuple(q.shape)}")
    batch, _, heads, size = q.shape
    if k.ndim != 4 or k.shape[0] != batch or k.shape[3] != size:
        raise ValueError(
            f"k must have shape (B, S, G, D) with B={batch}, D={size} as q, got {tuple(k.shape)}"
        )
    if k.shape[2] == 0 or heads % k.shape[2]:
        raise ValueError(f"k must have a number of heads that divides {heads}, got {k.shape[2]}")
    if v.ndim != 4 or v.shape[:3] != k.shape[:3]:
        raise ValueError(
            f"v must have shape (B, S, G, E) = {(*k.shape[:3], 'E')} as k, got {tuple(v.shape)}"
        )


def _check_time(name: str, time: Tensor | None, x: Tensor, used: bool, only: str) -> None:
    if time is None:
        return
    if not used:
        raise ValueError(f"{name} is for {only} in curved space, where it would be used")
    if time.shape != (*x.shape[:3], 1):
        raise ValueError(
            f"{name} must have shape {(*x.shape[:3], 1)}, one time a point, got {tuple(time.shape)}"
        )


# --- the time channels ----------------------------------------------------------------------------


def _channels(dtype: torch.dtype, parts: int) -> int:
    """Channels of a time: one, or in half precision as many as the sum of two numbers takes."""
    return parts if dtype.itemsize <= 2 else 1


def _filled(width: int, x: Tensor) -> int:
    """The width of a head with its time channels, rounded up to one that is fast."""
    if x.dtype.itemsize <= 2:
        return width + -width % _HALF_ALIGNMENT
    if x.dtype != torch.float32:
        return width
    if x.is_cuda:
        return width + -width % _FLOAT_ALIGNMENT
    lacking = -width % _CPU_VECTOR
    return width + lacking if lacking <= _FEW else width


class _Widen(torch.autograd.Function):
    """`[x, t]` for values, `[x, −τ]` for keys, `scale·[x, t]` for queries, then zeros up to width.

    In half precision a time is a sum of two numbers, hi + lo: the channels of a query are
    (hi, hi, lo), of a key (hi, lo, hi), whose product is that of the sums but for lo·lo, and of a
    value (hi, lo). `time` is what the head shall carry if the caller knows it, −τ for keys; the
    radius is None in flat space.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        time: Tensor | None,
        radius: Tensor | None,
        scale: Tensor | None,
        role: str,
        width: int,
    ) -> Tensor:
        time = _time(x, radius, role) if time is None else time
        if scale is not None:
            x, time = (scale * x).to(x.dtype), scale * time
        parts = [x, time.to(x.dtype)]
        if x.dtype.itemsize <= 2:
            hi = parts.pop()
            lo = (time - hi).to(x.dtype)
            parts += {"query": (hi, hi, lo), "key": (hi, lo, hi), "value": (hi, lo)}[role]
        rest = width - x.shape[-1] - len(parts) + 1
        if rest:
            parts.append(x.new_zeros(*x.shape[:-1], rest))
        return torch.cat(parts, dim=-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, time, radius, scale, ctx.role, _ = inputs
        ctx.size, ctx.time_dtype = x.shape[-1], None if time is None else time.dtype
        save_values(ctx, (output, radius, scale))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        head, radius, scale = load_values(ctx)
        size, role, dtype = ctx.size, ctx.role, head.dtype
        head, g = upcast(head), upcast(g)
        x, gx = head[..., :size], g[..., :size]
        time, g_time = head[..., size : size + 1], g[..., size : size + 1]
        if dtype.itemsize <= 2:
            # hi + lo, and its gradient: that of the channels that meet the other side's hi and lo.
            # The mean of values is taken as the sum of both, so either has it.
            lo, other = {"query": (2, 1), "key": (1, 2), "value": (1, None)}[role]
            time = time + head[..., size + lo : size + lo + 1]
            if other is not None:
                g_time = g_time + g[..., size + other : size + other + 1]
        given = by_radius = by_scale = None
        if scale is not None and ctx.needs_input_grad[3]:
            by_scale = (sum_to(g * head, scale) / scale).to(scale.dtype)
        if ctx.time_dtype is not None:
            given = (g_time if scale is None else scale * g_time).to(ctx.time_dtype)
        elif radius is None:
            if role == "key":
                gx = torch.addcmul(gx, g_time, x, value=-1 / _FLAT_TIME)
        else:
            # x/t, for queries from scale·x and scale·t.
            slope = g_time / (time - radius if role == "key" else time)
            gx = torch.addcmul(gx, slope, x)
            if ctx.needs_input_grad[2]:
                change = slope * (time if role == "key" else radius)
                by_radius = sum_to(change if scale is None else scale**2 * change, radius)
        if scale is not None:
            gx = scale * gx
        return gx.to(dtype), given, by_radius, by_scale, None, None


def _time(x: Tensor, radius: Tensor | None, role: str) -> Tensor:
    """The time a head carries, (..., 1), in float32 at least: t, or −τ for keys."""
    dtype = accumulation_dtype(x.dtype)
    if radius is None and role == "query":
        return x.new_full((*x.shape[:-1], 1), _FLAT_TIME, dtype=dtype)
    n = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype)
    if radius is None:  # with that of queries, the limit of t·τ as c → 0
        half: Tensor = n * n * (-0.5 / _FLAT_TIME)
        return half
    t = torch.hypot(n, radius)
    return -n * (n / (t + radius)) if role == "key" else t


# --- the centroid ---------------------------------------------------------------------------------


class _Normalise(torch.autograd.Function):
    """`s̄·R/N`, N² = t̄² − |s̄|² but not below R², for means (s̄, t̄) by weights of sum 1; R = 1/√c."""

    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, size: int, radius: Tensor) -> Tensor:
        s, _, norm_sq = _split_mean(mean, size, radius)
        # The floor holds where rounding has made N² less than it can be.
        return cast(s * torch.rsqrt(F.threshold(norm_sq, 1.0, 1.0)), mean.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        mean, ctx.size, radius = inputs
        ctx.save_for_backward(mean, radius)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, Tensor | None]:
        mean, radius = ctx.saved_tensors
        s, t, norm_sq = _split_mean(mean, ctx.size, radius)
        floored = F.threshold(norm_sq, 1.0, 1.0)
        gain = torch.rsqrt(floored)
        g = g.to(s.dtype)
        # ∂/∂R, and −2·∂/∂N²: 0 at the floor, where the output is s̄ itself.
        change = (norm_sq > 1) * (gain * dot(g, s) / radius)
        pull = change / (floored * radius)
        gs = torch.addcmul(gain * g, pull, s)
        gt = (-t * pull).to(mean.dtype)
        parts = [gs.to(mean.dtype), gt]
        if mean.dtype.itemsize <= 2:
            parts.append(gt)
        rest = mean.shape[-1] - ctx.size - len(parts) + 1
        if rest:
            parts.append(gt.new_zeros(*gt.shape[:-1], rest))
        by_radius = None
        if ctx.needs_input_grad[2]:
            by_radius = sum_to(change, radius)
        return torch.cat(parts, dim=-1), None, by_radius


def _split_mean(mean: Tensor, size: int, radius: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """s̄, t̄ and c·N², in float32 at least."""
    whole = upcast(mean)
    s, t = whole[..., :size], whole[..., size : size + 1]
    if mean.dtype.itemsize <= 2:
        t = t + whole[..., size + 1 : size + 2]
    n = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    return s, t, (t - n) * (t + n) / radius**2
