"""`learned_curvature` on a GPU: one kernel for what is a dozen operations on one number."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from beltrami.kernels.launch.launcher import cdiv, launch
from beltrami.kernels.launch.triton_math import DTYPES, ratio, root, unsupported_devices

COUNT = 16  # numbers of a program


def unsupported_reason(raw: Tensor) -> str | None:
    """Why the kernel cannot take these arguments of `learned_curvature`; None if it can."""
    if reason := unsupported_devices("raw", raw):
        return reason
    if raw.dtype not in DTYPES:
        return f"it computes in float32, got {raw.dtype}"
    return None


def value_and_slope(raw: Tensor, begin: float, up: float, down: float) -> tuple[Tensor, Tensor]:
    """The curvatures and their derivatives, in float32."""
    raw = raw.contiguous()
    value, slope = (torch.empty_like(raw, dtype=torch.float32) for _ in range(2))
    n = raw.numel()
    if n:
        launch(_law, (cdiv(n, COUNT),), raw, value, slope, begin, up, down, n, COUNT=COUNT)
    return value, slope


@triton.jit
def _law(
    raw_ptr: tl.tensor,
    value_ptr: tl.tensor,
    slope_ptr: tl.tensor,
    begin: tl.tensor,
    up: tl.tensor,
    down: tl.tensor,
    n: tl.tensor,
    COUNT: tl.constexpr,
) -> None:
    i = tl.program_id(0) * COUNT + tl.arange(0, COUNT)
    r = tl.load(raw_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    unit = tl.full((COUNT,), 1.0, tl.float32)
    bound = tl.where(r > 0, up * unit, -down * unit)
    t = ratio(r, bound)  # not negative
    inside = t < 1.0
    v = tl.where(inside, t, ratio(unit, tl.where(inside, 1.0, t)))
    shrink = ratio(unit, root(root(1.0 + (v * v) * (v * v))))
    value = begin * tl.exp(tl.where(inside, r, bound) * shrink)
    s = tl.where(inside, 1.0, v) * shrink
    tl.store(value_ptr + i, value, mask=i < n)
    tl.store(slope_ptr + i, value * (s * s) * (s * s) * s, mask=i < n)
