r"""Attention heads between points, before attention and after it, in one pass each.

`head_tiles` turns queries and keys by their positions and gives all heads the time channels in
which plain attention carries distances; `head_centroid` takes the Lorentz centroid of each head out
of what attention returns, and the excess time of all heads side by side, which the time column of
the projection after it needs. What is kept for the backward pass is what attention keeps itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.geometry.checks import Scalar
from beltrami.kernels.launch.dispatch import custom_operator, takes_operator
from beltrami.kernels.launch.shapes import as_number
from beltrami.kernels.layers.centroid_attention import centroid_of_mean, with_time
from beltrami.kernels.layers.rotary import rotate
from beltrami.kernels.layers.time_linear import excess_time

LARGEST_TILE = 16384  # numbers of a token's heads, which one program holds


def head_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    radius: Tensor | None,
    scale: Tensor | None,
    width: int,
    fused: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values for scaled-dot-product attention, (B, heads, T, channels).

    The results are views of (B, T, heads, channels): so fused attention reads its input and writes
    its output without a copy.

    Args:
        q: (B, T, H, s). k: (B, T, G, s). v: (B, T, G, e).
        cos, sin: (B or 1, T, r/2), of the first r channels of queries and keys.
        radius: 1/√c of the heads; None in flat space.
        scale: 2/σ, (H, 1), for scores by distance; None for dot products, whose queries and keys
            get no times.
        width: channels of a head with its times; values that have as many get no times.
        fused: as in `dispatch`; `torch.compile`, too, is given the kernels.
    """
    reason = None
    if radius is None or scale is None or v.shape[-1] == width:
        reason = "it takes distances and centroids in curved space"
    elif radius.numel() != 1 or scale.numel() != q.shape[2]:
        reason = "it takes one radius, and one scale a head"
    if takes_operator(fused, q, k, v, cos, sin, radius, scale, reason=reason):
        tensors = (t.contiguous() for t in (q, k, v, cos, sin))
        tiles = tuple(_tiles(*tensors, scale, radius, width))
    else:
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if scale is not None:
            q = with_time(q, radius, "query", width, scale=scale)
            k = with_time(k, radius, "key", width)
        if v.shape[-1] < width:
            pad = width - v.shape[-1]
            v = F.pad(v, (0, pad)) if radius is None else with_time(v, radius, "value", width)
        tiles = q, k, v
    q, k, v = (t.transpose(1, 2) for t in tiles)
    return q, k, v


def head_centroid(
    mean: Tensor,
    size: int,
    *,
    radius: Tensor | None,
    time_radius: Scalar | None = None,
    fused: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The centroids of all heads side by side, (B, T, H·size), and their excess time.

    Args:
        mean: what attention returns of `head_tiles`, (B, T, H, width).
        size: coordinates of a head.
        radius: 1/√c of the heads; None in flat space, where the mean is the centroid.
        time_radius: 1/√c of the space in which the row of all heads is a point; None if its excess
            time, (B, T, 1), is not wanted.
        fused: as in `dispatch`; `torch.compile`, too, is given the kernels.
    """
    batch, length, heads, width = mean.shape
    reason = None
    radii = (radius, time_radius)
    if radius is None or any(isinstance(r, Tensor) and r.numel() != 1 for r in radii):
        reason = "it takes one radius"
    elif heads * width > LARGEST_TILE:
        reason = f"it takes up to {LARGEST_TILE} numbers a token, got {heads * width}"
    if takes_operator(fused, mean, radius, reason=reason):
        r = None if time_radius is None else as_number(time_radius, mean)
        out, time = _centroid(mean.contiguous(), radius, r, size)
        out = out.view(batch, length, heads * size)
        return out, None if r is None else time.view(batch, length, 1)
    out = mean[..., :size] if radius is None else centroid_of_mean(mean, size, radius)
    out = out.reshape(batch, length, heads * size)
    return out, None if time_radius is None else excess_time(out, time_radius)


# --- the operators --------------------------------------------------------------------------------


def _tile_results(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, scale: Tensor, r: Tensor, width: int
) -> tuple[Tensor, ...]:
    return tuple(t.new_empty(*t.shape[:-1], width) for t in (q, k, v))


def _tile_gradients(*arguments: Any) -> tuple[Tensor, ...]:
    """Those of q, k, v, scale and R."""
    *_, scale, radius, size, value_size = arguments
    sizes = (size, size, value_size)
    tiles = (t.new_empty(*t.shape[:-1], n) for t, n in zip(arguments[3:6], sizes, strict=True))
    return *tiles, torch.empty_like(scale), torch.empty_like(radius)


def _centroid_results(mean: Tensor, radius: Tensor, time_radius: Tensor | None, size: int) -> Any:
    tokens = mean.shape[0] * mean.shape[1] if time_radius is not None else 0
    return mean.new_empty(*mean.shape[:-1], size), radius.new_empty(tokens, dtype=torch.float32)


def _centroid_gradients(
    by_out: Tensor, by_time: Tensor, mean: Tensor, time: Tensor, radius: Tensor,
    time_radius: Tensor | None, size: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Those of the mean, R and the R of the time."""
    by_radius = torch.empty_like(radius)
    other = radius.new_empty(0) if time_radius is None else torch.empty_like(time_radius)
    return torch.empty_like(mean), by_radius, other


_TABLES = "Tensor cos, Tensor sin, Tensor scale, Tensor radius"
_KERNELS = "layers.heads_triton"
_tiles = custom_operator(
    "head_tiles",
    f"(Tensor q, Tensor k, Tensor v, {_TABLES}, SymInt width) -> (Tensor, Tensor, Tensor)",
    _tile_results,
    _KERNELS,
    "tiles",
)
_tiles_backward = custom_operator(
    "head_tiles_backward",
    f"(Tensor by_q, Tensor by_k, Tensor by_v, Tensor q, Tensor k, Tensor v, {_TABLES}, SymInt size,"
    " SymInt value_size) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _tile_gradients,
    _KERNELS,
    "tile_gradients",
)
_centroid = custom_operator(
    "head_centroid",
    "(Tensor mean, Tensor radius, Tensor? time_radius, SymInt size) -> (Tensor, Tensor)",
    _centroid_results,
    _KERNELS,
    "centroid",
)
_centroid_backward = custom_operator(
    "head_centroid_backward",
    "(Tensor by_out, Tensor by_time, Tensor mean, Tensor time, Tensor radius, Tensor? time_radius,"
    " SymInt size) -> (Tensor, Tensor, Tensor)",
    _centroid_gradients,
    _KERNELS,
    "centroid_gradients",
)


def _keep_tiles(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output, *inputs[3:7])
    ctx.sizes = inputs[0].shape[-1], inputs[2].shape[-1]


def _by_tiles(ctx: Any, *by_tiles: Tensor) -> tuple[Tensor | None, ...]:
    by_tiles = tuple(t.contiguous() for t in by_tiles)
    by_q, by_k, by_v, by_scale, by_radius = _tiles_backward(
        *by_tiles, *ctx.saved_tensors, *ctx.sizes
    )
    return by_q, by_k, by_v, None, None, by_scale, by_radius, None


def _keep_mean(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    mean, radius, time_radius, ctx.size = inputs
    ctx.save_for_backward(mean, output[1], radius, time_radius)


def _by_centroid(ctx: Any, by_out: Tensor, by_time: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _centroid_backward(
        by_out.contiguous(), by_time.contiguous(), *ctx.saved_tensors, ctx.size
    )
    by_mean, by_radius, by_time_radius = gradients
    return by_mean, by_radius, by_time_radius if ctx.saved_tensors[3] is not None else None, None


_tiles.register_autograd(_by_tiles, setup_context=_keep_tiles)
_centroid.register_autograd(_by_centroid, setup_context=_keep_mean)
