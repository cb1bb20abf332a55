r"""The elementwise part of `chunked_cross_entropy`, in two passes over the products of a chunk.

The first pass reads the products and writes a log-sum-exp for each row and tile; the second reads
them again, makes the scores anew, and writes the gradient of the products, over them if it has
their dtype. It also sums the gradients of rows over the columns of a tile, and those of columns
over a strip of rows; what is left to add is a hundredth of a chunk, or less, and is added by torch
in a fixed order: the same input gives the same bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from beltrami.kernels.launch.launcher import cdiv, launch
from beltrami.kernels.launch.triton_math import (
    DTYPES,
    asinhc,
    root,
    rounded,
    single,
    unsupported_devices,
)
from beltrami.kernels.layers.chunked_cross_entropy import Settings
from beltrami.kernels.layers.word_scores import Columns

ROWS, COLUMNS, STEPS = 2, 512, 32  # of a tile, whose rows are in one thread, and tiles of a strip
KINDS = {"linear": 0, "hyperplane": 1, "distance": 2}


def unsupported_reason(x: Tensor, weight: Tensor, dtype: torch.dtype) -> str | None:
    """Why the kernels cannot take these arguments of the operation; None if they can."""
    if reason := unsupported_devices("x", x, weight):
        return reason
    return None if dtype in DTYPES else f"it computes in float32, got {dtype}"


def row_sums(
    p: Tensor, row: Tensor | None, columns: Columns, labels: Tensor, settings: Settings
) -> tuple[Tensor, Tensor, Tensor | float]:
    """The log-sum-exp of each row's scores, the score of its label, and the mean, (n,) each.

    The score of a label that is not a word is nan. The mean is taken for label smoothing alone.
    """
    (n, words), tiles = p.shape, cdiv(p.shape[1], COLUMNS)
    lse, at_label = p.new_empty(n, tiles), p.new_full((n,), torch.nan)
    total = p.new_empty(n, tiles) if settings.label_smoothing else None
    launch(
        _sums,
        (cdiv(n, ROWS * STEPS), tiles),
        p,
        row,
        *columns,
        labels,
        lse,
        at_label,
        total,
        n,
        words,
        KIND=KINDS[settings.kind],
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        STEPS=STEPS,
    )
    return lse.logsumexp(-1), at_label, 0.0 if total is None else total.sum(-1) / words


def gradients(
    p: Tensor,
    row: Tensor | None,
    columns: Columns,
    labels: Tensor,
    lse: Tensor,
    settings: Settings,
    wanted: list[bool],
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """The gradients of p, in `dtype` and in its place if it is p's, and of r, A, B, C and G."""
    (n, words), (tiles, strips) = p.shape, (cdiv(p.shape[1], COLUMNS), cdiv(len(p), ROWS * STEPS))
    by_p = p if dtype == p.dtype else torch.empty_like(p, dtype=dtype)
    by_row = p.new_empty(n, tiles) if wanted[2] else None
    by_columns = [p.new_empty(strips, words) if w else None for w in wanted[3:]]
    launch(
        _gradients,
        (strips, tiles),
        p,
        row,
        *columns,
        labels,
        lse,
        by_p,
        by_row,
        *by_columns,
        n,
        words,
        settings.ignore_index,
        settings.label_smoothing,
        settings.z_loss,
        KIND=KINDS[settings.kind],
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        STEPS=STEPS,
    )
    return (
        by_p,
        None if by_row is None else by_row.sum(-1, keepdim=True),
        [None if t is None else t.sum(0) for t in by_columns],
    )


@triton.jit
def _numbers(
    ptr: tl.tensor, place: tl.tensor, inside: tl.tensor, missing: tl.constexpr
) -> tl.tensor:
    """Numbers of rows or columns; a constant where there are none."""
    if ptr is None:
        return tl.full(place.shape, missing, tl.float32)
    else:  # noqa: RET505 - Triton needs both branches
        return tl.load(ptr + place, mask=inside, other=0.0)


@triton.jit
def _value_and_slope(u: tl.tensor, KIND: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The function f of `word_scores` and its derivative."""
    if KIND == 0:
        value, slope = u, tl.full(u.shape, 1.0, tl.float32)
    elif KIND == 1:
        far = tl.abs(u) > 1e9  # where u² may overflow, and asinh is log(2u) to the last digit
        near, size = tl.where(far, 1.0, u), tl.where(far, tl.abs(u), 1.0)
        log = tl.log(size) + 0.6931471805599453
        value = tl.where(far, tl.where(u < 0, -log, log), near * asinhc(near * near))
        slope = tl.where(far, 1.0 / size, 1.0 / root(1.0 + near * near))
    else:
        q = tl.where(u <= 0, 0.0, u)
        a = asinhc(q)
        value, slope = q * a * a, tl.where(u <= 0, 0.0, a / root(1.0 + q))
    return value, slope


@triton.jit
def _sums(
    p_ptr: tl.tensor,
    row_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    slope_ptr: tl.tensor,
    shift_ptr: tl.tensor,
    gain_ptr: tl.tensor,
    labels_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    at_label_ptr: tl.tensor,
    total_ptr: tl.tensor,
    n: tl.tensor,
    words: tl.tensor,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEPS: tl.constexpr,
) -> None:
    k = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    word = k < words
    scale = _numbers(scale_ptr, k, word, 1.0)[None, :]
    slope = _numbers(slope_ptr, k, word, 0.0)[None, :]
    shift = _numbers(shift_ptr, k, word, 0.0)[None, :]
    gain = _numbers(gain_ptr, k, word, 1.0)[None, :]
    for step in range(STEPS):
        i = (tl.program_id(0) * STEPS + step) * ROWS + tl.arange(0, ROWS)
        real = i < n
        inside = real[:, None] & word[None, :]
        p = tl.load(p_ptr + i.to(tl.int64)[:, None] * words + k[None, :], mask=inside, other=0.0)
        row = _numbers(row_ptr, i, real, 0.0)[:, None]
        label = tl.load(labels_ptr + i, mask=real, other=-1)[:, None]
        value, _ = _value_and_slope(scale * p + row * slope + shift, KIND)
        scores = gain * value
        hit = inside & (k[None, :] == label)
        tl.store(at_label_ptr + i[:, None] + tl.zeros_like(k)[None, :], scores, mask=hit)
        partial = i.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
        if total_ptr is not None:
            tl.store(total_ptr + partial, tl.sum(tl.where(inside, scores, 0.0), axis=1), mask=real)
        scores = tl.where(word[None, :], scores, -float("inf"))
        most = tl.max(scores, axis=1)
        mass = tl.sum(tl.exp(scores - most[:, None]), axis=1)
        tl.store(lse_ptr + partial, most + tl.log(mass), mask=real)


@triton.jit
def _gradients(
    p_ptr: tl.tensor,
    row_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    slope_ptr: tl.tensor,
    shift_ptr: tl.tensor,
    gain_ptr: tl.tensor,
    labels_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    by_p_ptr: tl.tensor,
    by_row_ptr: tl.tensor,
    by_scale_ptr: tl.tensor,
    by_slope_ptr: tl.tensor,
    by_shift_ptr: tl.tensor,
    by_gain_ptr: tl.tensor,
    n: tl.tensor,
    words: tl.tensor,
    ignore_index: tl.tensor,
    smoothing: tl.tensor,
    z_loss: tl.tensor,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEPS: tl.constexpr,
) -> None:
    smoothing, z_loss = single(smoothing), single(z_loss)
    k = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    word = k < words
    scale = _numbers(scale_ptr, k, word, 1.0)[None, :]
    slope = _numbers(slope_ptr, k, word, 0.0)[None, :]
    shift = _numbers(shift_ptr, k, word, 0.0)[None, :]
    gain = _numbers(gain_ptr, k, word, 1.0)[None, :]
    by_scale = tl.zeros((COLUMNS,), tl.float32)
    by_slope = tl.zeros((COLUMNS,), tl.float32)
    by_shift = tl.zeros((COLUMNS,), tl.float32)
    by_gain = tl.zeros((COLUMNS,), tl.float32)
    for step in range(STEPS):
        i = (tl.program_id(0) * STEPS + step) * ROWS + tl.arange(0, ROWS)
        real = i < n
        inside = real[:, None] & word[None, :]
        place = i.to(tl.int64)[:, None] * words + k[None, :]
        p = tl.load(p_ptr + place, mask=inside, other=0.0)
        row = _numbers(row_ptr, i, real, 0.0)[:, None]
        lse = tl.load(lse_ptr + i, mask=real, other=0.0)[:, None]
        label = tl.load(labels_ptr + i, mask=real, other=ignore_index)[:, None]
        value, derivative = _value_and_slope(scale * p + row * slope + shift, KIND)
        g = (1.0 + 2.0 * z_loss * lse) * tl.exp(gain * value - lse) - smoothing / words
        g -= tl.where(k[None, :] == label, 1.0 - smoothing, 0.0)
        g = tl.where(inside & (label != ignore_index), g, 0.0)
        h = g * gain * derivative
        tl.store(by_p_ptr + place, rounded(h * scale, by_p_ptr.dtype.element_ty), mask=inside)
        if by_row_ptr is not None:
            partial = i.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
            tl.store(by_row_ptr + partial, tl.sum(h * slope, axis=1), mask=real)
        if by_scale_ptr is not None:
            by_scale += tl.sum(h * p, axis=0)
        if by_slope_ptr is not None:
            by_slope += tl.sum(h * row, axis=0)
        if by_shift_ptr is not None:
            by_shift += tl.sum(h, axis=0)
        if by_gain_ptr is not None:
            by_gain += tl.sum(g * value, axis=0)
    partial = tl.program_id(0).to(tl.int64) * words + k
    if by_scale_ptr is not None:
        tl.store(by_scale_ptr + partial, by_scale, mask=word)
    if by_slope_ptr is not None:
        tl.store(by_slope_ptr + partial, by_slope, mask=word)
    if by_shift_ptr is not None:
        tl.store(by_shift_ptr + partial, by_shift, mask=word)
    if by_gain_ptr is not None:
        tl.store(by_gain_ptr + partial, by_gain, mask=word)
