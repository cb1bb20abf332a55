"""`gated` on a GPU: a program goes along a row."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from beltrami.kernels.launch.launcher import launch
from beltrami.kernels.launch.triton_math import excess_time, power_of_2, ratio

COLUMNS, COLUMNS_PER_WARP = 2048, 512


def forward(h: Tensor, time: Tensor, gate: Tensor, up: Tensor, radius: Tensor | None) -> None:
    """Write h and its excess time."""
    n, d = gate.shape
    if n:
        launch(_forward, (n,), gate, up, radius, h, time, d, **_sizes(d))


def backward(
    by_gate: Tensor, by_up: Tensor, by_radius: Tensor, by_h: Tensor, by_time: Tensor, gate: Tensor,
    up: Tensor, time: Tensor, radius: Tensor | None,
) -> None:  # fmt: skip
    """Write the gradients."""
    n, d = gate.shape
    radii = time.new_empty(time.shape)
    if n:
        tensors = (gate, up, radius, time, by_h, by_time, by_gate, by_up, radii)
        launch(_backward, (n,), *tensors, d, **_sizes(d))
    if radius is not None:
        by_radius.copy_(radii.sum())


def _sizes(d: int) -> dict[str, Any]:
    block = min(COLUMNS, power_of_2(d))
    return {"BLOCK": block, "num_warps": max(1, block // COLUMNS_PER_WARP)}


@triton.jit
def _forward(
    gate_ptr: tl.tensor,
    up_ptr: tl.tensor,
    radius_ptr: tl.tensor,
    h_ptr: tl.tensor,
    time_ptr: tl.tensor,
    d: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, d, BLOCK):
        j = first + tl.arange(0, BLOCK)
        at = row * d + j
        gate = tl.load(gate_ptr + at, mask=j < d, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + at, mask=j < d, other=0.0).to(tl.float32)
        h = gate * tl.sigmoid(gate) * up
        squares += h * h
        tl.store(h_ptr + at, h.to(h_ptr.dtype.element_ty), mask=j < d)
    if radius_ptr is not None:
        radius = tl.load(radius_ptr).to(tl.float32)
        tl.store(time_ptr + row, excess_time(tl.sum(squares, axis=0), radius))


@triton.jit
def _backward(
    gate_ptr: tl.tensor,
    up_ptr: tl.tensor,
    radius_ptr: tl.tensor,
    time_ptr: tl.tensor,
    by_h_ptr: tl.tensor,
    by_time_ptr: tl.tensor,
    by_gate_ptr: tl.tensor,
    by_up_ptr: tl.tensor,
    radii_ptr: tl.tensor,
    d: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    if radius_ptr is not None:
        time = tl.load(time_ptr + row)
        radius = tl.load(radius_ptr).to(tl.float32)
        slope = ratio(tl.load(by_time_ptr + row), time + radius)
        tl.store(radii_ptr + row, -slope * time)
    for first in range(0, d, BLOCK):
        j = first + tl.arange(0, BLOCK)
        at = row * d + j
        gate = tl.load(gate_ptr + at, mask=j < d, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + at, mask=j < d, other=0.0).to(tl.float32)
        g = tl.load(by_h_ptr + at, mask=j < d, other=0.0).to(tl.float32)
        part = tl.sigmoid(gate)
        silu = gate * part
        if radius_ptr is not None:
            g += slope * silu * up
        by_gate = g * up * (part + silu * (1.0 - part))
        tl.store(by_gate_ptr + at, by_gate.to(by_gate_ptr.dtype.element_ty), mask=j < d)
        tl.store(by_up_ptr + at, (g * silu).to(by_up_ptr.dtype.element_ty), mask=j < d)
