r"""`residual_norm` on a GPU: a program holds a row, and goes over several of them backwards.

Sums over rows (of g, w_τ, w and R) are taken by each program for its rows and added afterwards in
a fixed order: the same input gives the same bits.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from beltrami.kernels.launch.launcher import launch
from beltrami.kernels.launch.triton_math import excess_time, power_of_2, ratio, root, single

COLUMNS_PER_WARP = 256
# With so many registers, so many programs of a thousand columns run on a processor at a time.
REGISTERS, PROGRAMS_PER_PROCESSOR = 128, 4


def forward(out: Tensor, h: Tensor, time: Tensor, b: Tensor, rstd: Tensor, *inputs: Any) -> None:
    """Write x', h, τ', b and 1/rms; the inputs are the operator's."""
    *tensors, scale, keep, eps, returns_time, _ = inputs
    n, d = tensors[0].shape
    results = (out, h, time if returns_time else None, b, rstd)
    if n:
        launch(_forward, (n,), *tensors, *results, d, scale, eps, KEEP=keep, **_sizes(d))


def backward(*gradients_and_inputs: Any) -> None:
    """Write the gradients; those of results that are None are 0."""
    (dx, dy, by_tau, *sums), inputs = gradients_and_inputs[:7], gradients_and_inputs[7:]
    by_results, (*tensors, scale, keep, eps) = inputs[:3], inputs[3:]
    (n, d), rstd = tensors[0].shape, tensors[-1]
    if by_results[1] is None and by_results[2] is None:
        tensors[4] = None  # no norm
    programs = min(n, _programs(rstd.device))
    columns, numbers = (rstd.new_empty(2, programs, size) for size in (d, 1))
    written = (dx, dy, by_tau, columns, numbers)
    if n:
        sizes = {**_sizes(d), "maxnreg": REGISTERS}
        launch(
            _backward,
            (programs,),
            *tensors,
            *by_results,
            *written,
            n,
            d,
            scale,
            eps,
            KEEP=keep,
            **sizes,
        )
    totals = (*columns.sum(1), *numbers.sum(1))
    for gradient, total in zip(sums, totals, strict=True):
        if gradient.numel():
            gradient.copy_(total.view_as(gradient))


def _sizes(d: int) -> dict[str, Any]:
    block = power_of_2(d)
    return {"BLOCK": block, "num_warps": min(16, max(1, block // COLUMNS_PER_WARP))}


@functools.cache
def _programs(device: torch.device) -> int:
    if device.type != "cuda":
        return PROGRAMS_PER_PROCESSOR
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return PROGRAMS_PER_PROCESSOR * processors


@triton.jit
def _branch(
    y_ptr: tl.tensor,
    tau_ptr: tl.tensor,
    column: tl.tensor,
    row: tl.tensor,
    d: tl.tensor,
    j: tl.tensor,
) -> tl.tensor:
    y = tl.load(y_ptr + row * d + j, mask=j < d, other=0.0).to(tl.float32)
    if tau_ptr is not None:
        y += tl.load(tau_ptr + row).to(tl.float32) * column
    return y


@triton.jit
def _gain(
    length_sq: tl.tensor,
    n_sq: tl.tensor,
    b: tl.tensor,
    w: tl.tensor,
    radius: tl.tensor,
    scale: tl.tensor,
    KEEP: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The gain, (m/(1 + w))², b·D and E, of |y − b·x|², |x|², b, w and R; as in `residual`."""
    breadth, fall = radius * (1.0 + w), radius * (1.0 - b)
    m_sq = ratio(length_sq + fall * fall, breadth * breadth)
    total = b + w * m_sq
    gain = root(ratio(b, total))
    empty = b * 0.0 + 1.0
    if KEEP:
        empty += ratio(2.0 * w * excess_time(n_sq, radius), radius * (1.0 + w) * (1.0 + w))
        gain *= root(empty)
    if scale is not None:
        gain *= ratio(single(scale), 1.0 + w)
    return gain, m_sq, total, empty


@triton.jit
def _forward(
    x_ptr: tl.tensor,
    y_ptr: tl.tensor,
    tau_ptr: tl.tensor,
    column_ptr: tl.tensor,
    norm_ptr: tl.tensor,
    w_ptr: tl.tensor,
    radius_ptr: tl.tensor,
    out_ptr: tl.tensor,
    h_ptr: tl.tensor,
    time_ptr: tl.tensor,
    b_ptr: tl.tensor,
    rstd_ptr: tl.tensor,
    d: tl.tensor,
    scale: tl.tensor,
    eps: tl.tensor,
    KEEP: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    real = j < d
    w, radius = tl.load(w_ptr).to(tl.float32), tl.load(radius_ptr).to(tl.float32)
    column = j * 0.0
    if tau_ptr is not None:
        column = tl.load(column_ptr + j, mask=real, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * d + j, mask=real, other=0.0).to(tl.float32)
    y = _branch(y_ptr, tau_ptr, column, row, d, j)
    n_sq = tl.sum(x * x, axis=0)
    b = ratio(root(tl.sum(y * y, axis=0) + radius * radius), root(n_sq + radius * radius))
    difference = y - b * x
    gain, _, _, _ = _gain(tl.sum(difference * difference, axis=0), n_sq, b, w, radius, scale, KEEP)
    out = gain * (x + w * y)
    tl.store(out_ptr + row * d + j, out.to(out_ptr.dtype.element_ty), mask=real)
    tl.store(b_ptr + row, b)
    if norm_ptr is not None:
        rstd = ratio(w * 0.0 + 1.0, root(tl.sum(out * out, axis=0) / d + single(eps)))
        h = out * rstd * tl.load(norm_ptr + j, mask=real, other=0.0).to(tl.float32)
        tl.store(h_ptr + row * d + j, h.to(h_ptr.dtype.element_ty), mask=real)
        tl.store(rstd_ptr + row, rstd)
        if time_ptr is not None:
            tl.store(time_ptr + row, excess_time(tl.sum(h * h, axis=0), radius))


@triton.jit
def _backward(
    x_ptr: tl.tensor,
    y_ptr: tl.tensor,
    tau_ptr: tl.tensor,
    column_ptr: tl.tensor,
    norm_ptr: tl.tensor,
    w_ptr: tl.tensor,
    radius_ptr: tl.tensor,
    time_ptr: tl.tensor,
    b_ptr: tl.tensor,
    rstd_ptr: tl.tensor,
    by_out_ptr: tl.tensor,
    by_h_ptr: tl.tensor,
    by_time_ptr: tl.tensor,
    dx_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    by_tau_ptr: tl.tensor,
    columns_ptr: tl.tensor,
    numbers_ptr: tl.tensor,
    n: tl.tensor,
    d: tl.tensor,
    scale: tl.tensor,
    eps: tl.tensor,
    KEEP: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    program, programs = tl.program_id(0), tl.num_programs(0)
    j = tl.arange(0, BLOCK)
    real = j < d
    w, radius = tl.load(w_ptr).to(tl.float32), tl.load(radius_ptr).to(tl.float32)
    column, norm = j * 0.0, j * 0.0
    if tau_ptr is not None:
        column = tl.load(column_ptr + j, mask=real, other=0.0).to(tl.float32)
    if norm_ptr is not None:
        norm = tl.load(norm_ptr + j, mask=real, other=0.0).to(tl.float32)
    by_norm, by_column = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    by_w, by_radius = w * 0.0, w * 0.0
    for i in range(program, n, programs):
        row = tl.cast(i, tl.int64)
        x = tl.load(x_ptr + row * d + j, mask=real, other=0.0).to(tl.float32)
        y = _branch(y_ptr, tau_ptr, column, row, d, j)
        b = tl.load(b_ptr + row)
        difference, z = y - b * x, x + w * y
        n_sq, length_sq = tl.sum(x * x, axis=0), tl.sum(difference * difference, axis=0)
        gain, m_sq, total, empty = _gain(length_sq, n_sq, b, w, radius, scale, KEEP)
        g = tl.zeros((BLOCK,), tl.float32)  # of x'
        if by_out_ptr is not None:
            g = tl.load(by_out_ptr + row * d + j, mask=real, other=0.0).to(tl.float32)
        along = tl.sum(g * z, axis=0)
        if norm_ptr is not None:
            rstd = tl.load(rstd_ptr + row)
            unit = gain * rstd * z
            by_h = tl.zeros((BLOCK,), tl.float32)
            if by_h_ptr is not None:
                by_h = tl.load(by_h_ptr + row * d + j, mask=real, other=0.0).to(tl.float32)
            if by_time_ptr is not None:
                time, by_time = tl.load(time_ptr + row), tl.load(by_time_ptr + row)
                slope = ratio(by_time, time + radius)
                by_h += slope * norm * unit
                by_radius -= slope * time
            by_norm += by_h * unit
            by_unit = norm * by_h
            across = tl.sum(by_unit * z, axis=0)
            g += rstd * (by_unit - unit * (gain * rstd * across / d))
            along += single(eps) * rstd * rstd * rstd * across
        by_gain = gain * along  # of log gain
        share = ratio(by_gain, total)
        by_y = ratio(share * w, radius * radius * (1.0 + w) * (1.0 + w))
        g = gain * g
        dx = g + by_y * b * difference
        dy = w * g - by_y * difference
        by_w += tl.sum(g * y, axis=0) - ratio(0.5 * share * m_sq * (1.0 - w), 1.0 + w)
        by_radius += ratio(by_y * length_sq, radius)
        if KEEP:
            pull = ratio(by_gain * w, empty * (1.0 + w) * (1.0 + w))
            pull = ratio(pull, radius * root(n_sq + radius * radius))
            dx += pull * x
            by_radius -= ratio(pull * n_sq, radius)
            rise = ratio(by_gain * excess_time(n_sq, radius), empty * radius)
            by_w += ratio(rise * (1.0 - w), (1.0 + w) * (1.0 + w) * (1.0 + w))
        if scale is not None:
            by_w -= ratio(by_gain, 1.0 + w)
        tl.store(dx_ptr + row * d + j, dx.to(dx_ptr.dtype.element_ty), mask=real)
        tl.store(dy_ptr + row * d + j, dy.to(dy_ptr.dtype.element_ty), mask=real)
        if tau_ptr is not None:
            tau = tl.load(tau_ptr + row).to(tl.float32)
            by_column += tau * dy
            by_tau = tl.sum(dy * column, axis=0)
            tl.store(by_tau_ptr + row, by_tau.to(by_tau_ptr.dtype.element_ty))
    tl.store(columns_ptr + program * d + j, by_column, mask=real)
    tl.store(columns_ptr + (programs + program) * d + j, by_norm, mask=real)
    tl.store(numbers_ptr + program, by_w)
    tl.store(numbers_ptr + programs + program, by_radius)
