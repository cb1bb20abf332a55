"""`head_tiles` and `head_centroid` on a GPU: a program holds heads with all their channels.

Sums over heads and tokens are of numbers that programs have written, added in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from beltrami.kernels.launch.launcher import cdiv, launch
from beltrami.kernels.launch.triton_math import excess_time, power_of_2, ratio, root

QUERY, KEY, VALUE = 0, 1, 2  # and how many numbers hold a time in half precision
ELEMENTS = 2048  # of a tile, at least a head
ELEMENTS_PER_WARP = 512


def tiles(
    q_tile: Tensor, k_tile: Tensor, v_tile: Tensor, q: Tensor, k: Tensor, v: Tensor,
    cos: Tensor, sin: Tensor, scale: Tensor, radius: Tensor, width: int,
) -> None:  # fmt: skip
    """Write the tiles."""
    for role, x, out in ((QUERY, q, q_tile), (KEY, k, k_tile), (VALUE, v, v_tile)):
        n, sizes = _sizes(out, x.shape[-1], cos, role)
        if n:
            tensors = (x, cos, sin, scale, radius, out)
            grid = (cdiv(n, sizes["ROWS"]),)
            launch(_tile, grid, *tensors, n, cos.numel() // cos.shape[-1], **sizes)


def tile_gradients(
    dq: Tensor, dk: Tensor, dv: Tensor, by_scale: Tensor, by_radius: Tensor, by_q: Tensor,
    by_k: Tensor, by_v: Tensor, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor,
    scale: Tensor, radius: Tensor, size: int, value_size: int,
) -> None:  # fmt: skip
    """Write the gradients; q, k and v are tiles."""
    heads = q.shape[2]
    scales = radius.new_empty(q.shape[0] * q.shape[1], heads)
    radii = []
    for role, g, tile, out in ((QUERY, by_q, q, dq), (KEY, by_k, k, dk), (VALUE, by_v, v, dv)):
        n, sizes = _sizes(tile, out.shape[-1], cos, role)
        programs = cdiv(n, sizes["ROWS"])
        radii.append(radius.new_empty(programs))
        if n:
            tensors = (g, tile, cos, sin, scale, radius, out, scales, radii[-1])
            positions = cos.numel() // cos.shape[-1]
            launch(_tile_gradient, (programs,), *tensors, n, positions, **sizes)
    by_scale.copy_(scales.sum(0).view_as(by_scale))
    by_radius.copy_(torch.cat(radii).sum())


def centroid(
    out: Tensor, time: Tensor, mean: Tensor, radius: Tensor, time_radius: Tensor | None, size: int
) -> None:
    """Write the centroids and their excess time."""
    tokens, sizes = _token_sizes(mean, size)
    if tokens:
        tensors = (mean, radius, time_radius, out, time)
        launch(_centroid, (tokens,), *tensors, mean.shape[2], **sizes)


def centroid_gradients(
    by_mean: Tensor, by_radius: Tensor, by_time_radius: Tensor, by_out: Tensor, by_time: Tensor,
    mean: Tensor, time: Tensor, radius: Tensor, time_radius: Tensor | None, size: int,
) -> None:  # fmt: skip
    """Write the gradients."""
    tokens, sizes = _token_sizes(mean, size)
    radii = radius.new_empty(2, tokens)
    if tokens:
        tensors = (by_out, by_time, mean, time, radius, time_radius, by_mean, radii)
        launch(_centroid_gradient, (tokens,), *tensors, tokens, mean.shape[2], **sizes)
    totals = radii.sum(1)
    by_radius.copy_(totals[0])
    if time_radius is not None:
        by_time_radius.copy_(totals[1])


def _sizes(tile: Tensor, size: int, cos: Tensor, role: int) -> tuple[int, dict[str, Any]]:
    """Rows of a tile, each a head of a token, and the constants of its kernels."""
    batch, length, heads, width = tile.shape
    block = power_of_2(width)
    return batch * length * heads, {
        "HEADS": heads,
        "ROLE": role,
        "SIZE": size,
        "HALF": 0 if role == VALUE else cos.shape[-1],
        "WIDTH": width,
        "NARROW": tile.element_size() <= 2,
        "ROWS": max(1, ELEMENTS // block),
        "BLOCK": block,
        "num_warps": _warps(max(ELEMENTS, block)),
    }


def _token_sizes(mean: Tensor, size: int) -> tuple[int, dict[str, Any]]:
    batch, length, heads, width = mean.shape
    rows, block = power_of_2(heads), power_of_2(width)
    return batch * length, {
        "SIZE": size,
        "WIDTH": width,
        "NARROW": mean.element_size() <= 2,
        "ROWS": rows,
        "BLOCK": block,
        "num_warps": _warps(rows * block),
    }


def _warps(elements: int) -> int:
    return min(16, max(1, elements // ELEMENTS_PER_WARP))


@triton.jit
def _place(
    i: tl.tensor, j: tl.tensor, real: tl.tensor, positions: tl.tensor, cos_ptr: tl.tensor,
    sin_ptr: tl.tensor, HALF: tl.constexpr, HEADS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:  # fmt: skip
    """Where the other coordinate of each pair is, cosines, and sines with a sign; no pair: 1, 0."""
    first = j < HALF
    partner = tl.where(first, j + HALF, j - HALF)[None, :]
    turned = real[:, None] & (j < 2 * HALF)[None, :]
    at = ((i // HEADS) % positions)[:, None] * HALF + tl.where(first, j, j - HALF)[None, :]
    cos = tl.load(cos_ptr + at, mask=turned, other=1.0).to(tl.float32)
    sin = tl.load(sin_ptr + at, mask=turned, other=0.0).to(tl.float32)
    return partner, turned, cos, tl.where(first[None, :], -sin, sin)


@triton.jit
def _tile(
    x_ptr: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    radius_ptr: tl.tensor,
    out_ptr: tl.tensor,
    n: tl.tensor,
    positions: tl.tensor,
    HEADS: tl.constexpr,
    ROLE: tl.constexpr,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
    WIDTH: tl.constexpr,
    NARROW: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, BLOCK)
    row, real = i.to(tl.int64), i < n
    inside = real[:, None] & (j < SIZE)[None, :]
    dtype = out_ptr.dtype.element_ty
    x = tl.load(x_ptr + row[:, None] * SIZE + j[None, :], mask=inside, other=0.0).to(tl.float32)
    if HALF > 0:
        partner, turned, cos, sin = _place(i, j, real, positions, cos_ptr, sin_ptr, HALF, HEADS)
        other = tl.load(x_ptr + row[:, None] * SIZE + partner, mask=turned, other=0.0)
        # Rounded as in the plain one: the time is that of the point which is stored.
        x = (x * cos + other.to(tl.float32) * sin).to(dtype).to(tl.float32)
    radius = tl.load(radius_ptr).to(tl.float32)
    n_sq = tl.sum(x * x, axis=1)
    time = -excess_time(n_sq, radius) if ROLE == 1 else root(n_sq + radius * radius)
    if ROLE == 0:
        scale = tl.load(scale_ptr + i % HEADS).to(tl.float32)
        x, time = scale[:, None] * x, scale * time
    high = time.to(dtype).to(tl.float32)
    channel = (j - SIZE)[None, :]
    if NARROW:
        low = time - high
        low_at: tl.constexpr = 1 if ROLE > 0 else 2
        count: tl.constexpr = 2 if ROLE == 2 else 3
        times = tl.where(channel == low_at, low[:, None], high[:, None])
        head = tl.where(channel < 0, x, tl.where(channel < count, times, 0.0))
    else:
        head = tl.where(channel < 0, x, tl.where(channel == 0, high[:, None], 0.0))
    whole = real[:, None] & (j < WIDTH)[None, :]
    tl.store(out_ptr + row[:, None] * WIDTH + j[None, :], head.to(dtype), mask=whole)


@triton.jit
def _tile_gradient(
    g_ptr: tl.tensor,
    tile_ptr: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    radius_ptr: tl.tensor,
    out_ptr: tl.tensor,
    by_scale_ptr: tl.tensor,
    by_radius_ptr: tl.tensor,
    n: tl.tensor,
    positions: tl.tensor,
    HEADS: tl.constexpr,
    ROLE: tl.constexpr,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
    WIDTH: tl.constexpr,
    NARROW: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, BLOCK)
    row, real = i.to(tl.int64), i < n
    whole = real[:, None] & (j < WIDTH)[None, :]
    at = row[:, None] * WIDTH + j[None, :]
    head = tl.load(tile_ptr + at, mask=whole, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + at, mask=whole, other=0.0).to(tl.float32)
    radius = tl.load(radius_ptr).to(tl.float32)
    # hi + lo, and its gradient: that of the channels that meet the other side's hi and lo.
    end = row * WIDTH + SIZE
    time = tl.load(tile_ptr + end, mask=real, other=1.0).to(tl.float32)
    by_time = tl.load(g_ptr + end, mask=real, other=0.0).to(tl.float32)
    if NARROW:
        low_at: tl.constexpr = 1 if ROLE > 0 else 2
        time += tl.load(tile_ptr + end + low_at, mask=real, other=0.0).to(tl.float32)
        if ROLE < 2:
            by_time += tl.load(g_ptr + end + (3 - low_at), mask=real, other=0.0).to(tl.float32)
    slope = ratio(by_time, time - radius if ROLE == 1 else time)
    scale = tl.full((ROWS,), 1.0, tl.float32)
    change = slope * (time if ROLE == 1 else radius)
    if ROLE == 0:
        scale = tl.load(scale_ptr + i % HEADS, mask=real, other=1.0).to(tl.float32)
        change *= scale * scale
        tl.store(by_scale_ptr + row, ratio(tl.sum(g * head, axis=1), scale), mask=real)
    tl.store(by_radius_ptr + tl.program_id(0), tl.sum(change, axis=0))
    by_x = scale[:, None] * (g + slope[:, None] * head)
    if HALF > 0:
        partner, turned, cos, sin = _place(i, j, real, positions, cos_ptr, sin_ptr, HALF, HEADS)
        at = row[:, None] * WIDTH + partner
        other = tl.load(tile_ptr + at, mask=turned, other=0.0).to(tl.float32)
        by_other = tl.load(g_ptr + at, mask=turned, other=0.0).to(tl.float32)
        by_x = by_x * cos - scale[:, None] * (by_other + slope[:, None] * other) * sin
    inside = real[:, None] & (j < SIZE)[None, :]
    out = by_x.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row[:, None] * SIZE + j[None, :], out, mask=inside)


@triton.jit
def _head(
    mean_ptr: tl.tensor, radius: tl.tensor, heads: tl.tensor, SIZE: tl.constexpr,
    WIDTH: tl.constexpr, NARROW: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:  # fmt: skip
    """Addresses of a token's heads in mean; s̄, t̄, c·N² and 1/N but for R, of `_Normalise`."""
    i, j = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * heads + i
    real = i < heads
    inside = real[:, None] & (j < SIZE)[None, :]
    s = tl.load(mean_ptr + row[:, None] * WIDTH + j[None, :], mask=inside, other=0.0)
    s = s.to(tl.float32)
    end = row * WIDTH + SIZE
    t = tl.load(mean_ptr + end, mask=real, other=0.0).to(tl.float32)
    if NARROW:
        t += tl.load(mean_ptr + end + 1, mask=real, other=0.0).to(tl.float32)
    length = root(tl.sum(s * s, axis=1))
    norm_sq = ratio((t - length) * (t + length), radius * radius)
    gain = ratio(tl.full((ROWS,), 1.0, tl.float32), root(tl.where(norm_sq <= 1.0, 1.0, norm_sq)))
    return row, s, t, norm_sq, gain


@triton.jit
def _centroid(
    mean_ptr: tl.tensor,
    radius_ptr: tl.tensor,
    time_radius_ptr: tl.tensor,
    out_ptr: tl.tensor,
    time_ptr: tl.tensor,
    heads: tl.tensor,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    NARROW: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    radius = tl.load(radius_ptr).to(tl.float32)
    row, s, _, _, gain = _head(mean_ptr, radius, heads, SIZE, WIDTH, NARROW, ROWS, BLOCK)
    out = gain[:, None] * s
    j = tl.arange(0, BLOCK)
    inside = (tl.arange(0, ROWS) < heads)[:, None] & (j < SIZE)[None, :]
    at = row[:, None] * SIZE + j[None, :]
    tl.store(out_ptr + at, out.to(out_ptr.dtype.element_ty), mask=inside)
    if time_radius_ptr is not None:
        q = tl.sum(tl.sum(out * out, axis=1), axis=0)
        time = excess_time(q, tl.load(time_radius_ptr).to(tl.float32))
        tl.store(time_ptr + tl.program_id(0), time)


@triton.jit
def _centroid_gradient(
    by_out_ptr: tl.tensor,
    by_time_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    time_ptr: tl.tensor,
    radius_ptr: tl.tensor,
    time_radius_ptr: tl.tensor,
    by_mean_ptr: tl.tensor,
    radii_ptr: tl.tensor,
    tokens: tl.tensor,
    heads: tl.tensor,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    NARROW: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    token = tl.program_id(0)
    radius = tl.load(radius_ptr).to(tl.float32)
    row, s, t, norm_sq, gain = _head(mean_ptr, radius, heads, SIZE, WIDTH, NARROW, ROWS, BLOCK)
    j = tl.arange(0, BLOCK)
    real = tl.arange(0, ROWS) < heads
    inside = real[:, None] & (j < SIZE)[None, :]
    g = tl.load(by_out_ptr + row[:, None] * SIZE + j[None, :], mask=inside, other=0.0)
    g = g.to(tl.float32)
    by_time_radius = radius * 0.0
    if time_radius_ptr is not None:
        time, other = tl.load(time_ptr + token), tl.load(time_radius_ptr).to(tl.float32)
        slope = ratio(tl.load(by_time_ptr + token), time + other)
        g += slope * gain[:, None] * s
        by_time_radius -= slope * time
    change = tl.where(norm_sq > 1.0, ratio(gain * tl.sum(g * s, axis=1), radius), 0.0)
    pull = ratio(change, tl.where(norm_sq <= 1.0, 1.0, norm_sq) * radius)
    by_s = gain[:, None] * g + pull[:, None] * s
    channel = (j - SIZE)[None, :]
    times: tl.constexpr = 2 if NARROW else 1
    by_t = tl.where(channel < times, (-t * pull)[:, None], 0.0)
    by_mean = tl.where(channel < 0, by_s, by_t).to(by_mean_ptr.dtype.element_ty)
    whole = real[:, None] & (j < WIDTH)[None, :]
    tl.store(by_mean_ptr + row[:, None] * WIDTH + j[None, :], by_mean, mask=whole)
    tl.store(radii_ptr + token, tl.sum(change, axis=0))
    tl.store(radii_ptr + tokens + token, by_time_radius)
