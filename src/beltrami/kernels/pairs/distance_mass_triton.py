r"""The terms of `distance_mass` in one pass over the pairs, on a GPU.

Each program takes a few rows and some columns, makes cosh(d) − 1 of its pairs from coordinates that
stay in registers, and writes one number a pair, the slope. Written out with tensors the same takes
some fifteen passes through memory. Sums over columns are kept a program, and added afterwards in a
fixed order: the same input gives the same bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from beltrami.kernels.launch.launcher import cdiv, launch
from beltrami.kernels.launch.triton_math import unsupported_devices
from beltrami.kernels.pairs.gram_distances import ROUNDING, ScaledRows

ROWS, COLUMNS, TILES = 16, 128, 8  # pairs of a tile, and tiles of a program
MAX_WIDTH = 64  # of the points: the loop over their coordinates is unrolled
MOST_COORDINATES = 2**31 - COLUMNS * TILES  # of a set: places in it are counted in 32 bits
MOST_COLUMNS = 65_535 * COLUMNS * TILES  # what CUDA's grid holds


def unsupported_reason(x: Tensor, y: Tensor, weights: Tensor) -> str | None:
    """Why the kernel cannot take these arguments of `distance_mass`; None if it can."""
    if reason := unsupported_devices("x", x, y, weights):
        return reason
    if x.shape[1] > MAX_WIDTH:
        return f"it takes points of up to {MAX_WIDTH} coordinates, got {x.shape[1]}"
    if max(x.numel(), y.numel()) > MOST_COORDINATES or len(y) > MOST_COLUMNS:
        return f"it takes sets of up to {MOST_COLUMNS} points, got {len(x)} and {len(y)}"
    return None


def mass_and_slope(
    a: ScaledRows, b: ScaledRows, weights: Tensor, c: float
) -> tuple[Tensor, Tensor]:
    """Σ_j w·e^{−d}, (n,), and each pair's derivative in cosh(√c·d), (n, m)."""
    (n, width), m = a.space.shape, b.space.shape[0]
    slope = torch.empty(n, m, dtype=torch.float64, device=a.space.device)
    strips = cdiv(m, COLUMNS * TILES)
    sums = slope.new_zeros(strips, n)
    if slope.numel():
        weights = weights.view(torch.uint8) if weights.dtype == torch.bool else weights
        launch(
            _pairs,
            (cdiv(n, ROWS), strips),
            a.space.mT.contiguous(),
            a.time,
            a.excess,
            a.blur,
            b.space.mT.contiguous(),
            b.excess,
            b.blur,
            weights,
            sums,
            slope,
            n,
            m,
            weights.stride(0),
            weights.stride(1),
            c**-0.5 if c else 1.0,
            WIDTH=width,
            FLAT=c == 0,
            UNIT=c == 1,
            BLURRED=ROUNDING,
            ROWS=ROWS,
            COLUMNS=COLUMNS,
            TILES=TILES,
        )
    return sums.sum(0), slope


@triton.jit
def _pairs(
    x_ptr: tl.tensor,
    x_time_ptr: tl.tensor,
    x_excess_ptr: tl.tensor,
    x_blur_ptr: tl.tensor,
    y_ptr: tl.tensor,
    y_excess_ptr: tl.tensor,
    y_blur_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    sums_ptr: tl.tensor,
    slope_ptr: tl.tensor,
    n: tl.tensor,
    m: tl.tensor,
    weights_row: tl.tensor,
    weights_column: tl.tensor,
    power: tl.float64,  # Triton would hand over Python's floats in float32
    WIDTH: tl.constexpr,
    FLAT: tl.constexpr,
    UNIT: tl.constexpr,
    BLURRED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILES: tl.constexpr,
) -> None:
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real_row = i < n
    x_time = tl.load(x_time_ptr + i, mask=real_row, other=1.0)[:, None]
    x_excess = tl.load(x_excess_ptr + i, mask=real_row, other=0.0)[:, None]
    x_blur = BLURRED * tl.load(x_blur_ptr + i, mask=real_row, other=1.0)[:, None]
    row = i.to(tl.int64)[:, None]
    power = tl.full((), power, tl.float64)
    total = tl.zeros((ROWS,), tl.float64)
    for tile in range(TILES):
        j = (tl.program_id(1) * TILES + tile) * COLUMNS + tl.arange(0, COLUMNS)
        real_column = j < m
        y_blur = tl.load(y_blur_ptr + j, mask=real_column, other=1.0)[None, :]
        y_excess = tl.load(y_excess_ptr + j, mask=real_column, other=0.0)[None, :]
        above = x_time * y_excess + x_excess
        for d in tl.static_range(WIDTH):
            x = tl.load(x_ptr + d * n + i, mask=real_row, other=0.0)[:, None]
            y = tl.load(y_ptr + d * m + j, mask=real_column, other=0.0)[None, :]
            above -= x * y
        # What lies below the rounding error of a pair may be anything, also negative.
        same = above <= x_blur * y_blur
        above = tl.where(same, 0.0, above)
        column = j.to(tl.int64)[None, :]
        inside = real_row[:, None] & real_column[None, :]
        weight = tl.load(
            weights_ptr + row * weights_row + column * weights_column, mask=inside, other=0
        ).to(tl.float64)
        if FLAT:
            distance = tl.sqrt(2.0 * above)
            near = weight * tl.exp(-distance)
            slope = near / tl.where(same, 1.0, distance)
        else:
            sinh = tl.sqrt(above * (above + 2.0))
            grown = above + 1.0 + sinh  # e^d
            if UNIT:  # one division for both: 1/(sinh·e^d) is the slope, sinh times it is e^-d
                slope = weight / tl.where(same, 1.0, grown * sinh)
                near = tl.where(slope == 0, 0.0, slope * sinh)  # sinh is infinite very far out
                near = tl.where(same, weight, near)
            else:
                near = weight * tl.exp(-power * tl.log(grown))
                slope = near / tl.where(same, 1.0, sinh)
        slope = tl.where(same, 0.0, -power * slope)
        tl.store(slope_ptr + row * m + column, slope, mask=inside)
        total += tl.sum(near, axis=1)
    tl.store(sums_ptr + tl.program_id(1).to(tl.int64) * n + i, total, mask=real_row)
