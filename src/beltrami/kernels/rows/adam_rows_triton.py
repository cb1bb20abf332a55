"""`adam_rows` in one Triton kernel: points, gradients and moments are read once and written once.

A program takes whole rows into registers, so a row must fit a block. Narrow rows share a program,
wide ones are spread over its warps. Everything that is not a row is a number a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from beltrami.geometry.ball import BORDER_EPS
from beltrami.geometry.checks import Scalar
from beltrami.kernels.launch.dtypes import accumulation_dtype
from beltrami.kernels.launch.launcher import cdiv, launch
from beltrami.kernels.launch.triton_math import unsupported_devices
from beltrami.kernels.rows.adam_rows import AdamRates
from beltrami.kernels.rows.geodesic_rows_triton import (
    advance,
    draw_inside,
    gap,
    pull,
    shrink,
    size_sq,
)

MAX_WIDTH = 8192
# Elements of each of x, g and p that a warp holds: 16 a lane, which leave it registers to spare.
_WARP_ELEMENTS = 512
_MOST_WARPS = 16
# Rows of a program: of very narrow tables more would only make the numbers a row many.
_MOST_ROWS = 64
# Rows are counted in 32 bits, beyond the last one too.
_MOST_ROWS_IN_ALL = 2**31 - 1 - _MOST_ROWS
_DTYPES = {
    torch.float64: tl.float64,
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
}


def unsupported_reason(
    x: Tensor,
    g: Tensor,
    p: Tensor,
    v: Tensor,
    v_max: Tensor | None,
    rates: AdamRates,
    c: Scalar,
) -> str | None:
    """Why the kernel cannot take these arguments of `adam_rows_`; None if it can."""
    tables = [x, g, p, v] if v_max is None else [x, g, p, v, v_max]
    if any(type(t) not in (Tensor, nn.Parameter) for t in tables):
        return "it takes plain tensors, and one of them is a subclass"
    if reason := unsupported_devices("x", *tables):
        return reason
    if any(
        t.dtype not in _DTYPES or accumulation_dtype(t.dtype) != accumulation_dtype(x.dtype)
        for t in tables
    ):
        return f"it cannot mix {', '.join(str(t.dtype) for t in tables)}"
    if any(t.dtype != accumulation_dtype(x.dtype) for t in tables[3:]):
        return f"second moments must be in {accumulation_dtype(x.dtype)}, got {v.dtype}"
    numbers = *x.shape[:-1], 1
    if any(t.shape != x.shape for t in (g, p)) or any(t.shape != numbers for t in tables[3:]):
        return f"shapes {', '.join(str(tuple(t.shape)) for t in tables)} do not belong together"
    if x.shape[-1] > MAX_WIDTH:
        return f"rows may have at most {MAX_WIDTH} coordinates, got {x.shape[-1]}"
    if x.numel() // max(1, x.shape[-1]) > _MOST_ROWS_IN_ALL:
        return f"it counts at most {_MOST_ROWS_IN_ALL} rows, got a tensor of {tuple(x.shape)}"
    if _row_strides(tables) is None:
        return "the rows of a tensor do not lie at regular distances in memory"
    if any(isinstance(r, Tensor) and not r.is_cpu for r in rates):
        return "its rates must be numbers on the CPU"
    if _curvatures(c, x) is None:
        shape = tuple(c.shape) if isinstance(c, Tensor) else ()
        return f"curvatures of shape {shape} are not those of the last dimensions of the rows"
    return None


def adam_rows_triton_(
    x: Tensor,
    g: Tensor,
    p: Tensor,
    v: Tensor,
    v_max: Tensor | None,
    rates: AdamRates,
    *,
    c: Scalar,
    model: str,
) -> None:
    """`adam_rows_`, for arguments that are supported. Waits for no device."""
    if x.numel() == 0:
        return
    tables = [x, g, p, v] if v_max is None else [x, g, p, v, v_max]
    layout, curvatures = _row_strides(tables), _curvatures(c, x)
    if layout is None or curvatures is None:
        raise ValueError(
            f"the Triton kernel cannot do this: {unsupported_reason(x, g, p, v, v_max, rates, c)}"
        )
    inner, strides = layout
    many_c, one_c = curvatures
    width = x.shape[-1]
    rows = x.numel() // width
    wide = accumulation_dtype(x.dtype)
    block = triton.next_power_of_2(width)
    rows_a_program = min(max(1, _WARP_ELEMENTS // block), _MOST_ROWS)
    launch(
        _adam, (cdiv(rows, rows_a_program),),
        x, g, p, v, v_max, many_c,
        rows, width, inner, 1 if many_c is None else many_c.numel(),
        *strides[0], *strides[1], *strides[2], *strides[3], *strides[-1],
        one_c,
        float(rates.step_size),
        float(rates.correction),
        1.0 - rates.beta1,
        1.0 - rates.beta2,
        1.0 / width,
        float(rates.eps),
        float(rates.decay),
        1.0 if rates.keep is None else float(rates.keep),
        1 - BORDER_EPS * torch.finfo(wide).eps,
        1 - BORDER_EPS * torch.finfo(x.dtype).eps,
        BALL=model == "poincare",
        DECAYS=rates.decay != 0,
        KEEPS=rates.keep is not None,
        WIDE=_DTYPES[wide],
        ROWS=rows_a_program,
        BLOCK=block,
        num_warps=min(max(1, block // _WARP_ELEMENTS), _MOST_WARPS),
        enable_fp_fusion=True,  # Triton 3.9 warns if it is not told
    )  # fmt: skip
    # Autograd does not see what a kernel writes, and would use it where the old values were saved.
    torch.autograd.graph.increment_version([x, *tables[2:]])


@triton.jit(do_not_specialize=["rows"])
def _adam(
    x_ptr: tl.tensor,
    g_ptr: tl.tensor,
    p_ptr: tl.tensor,
    v_ptr: tl.tensor,
    v_max_ptr: tl.tensor,
    c_ptr: tl.tensor,
    # Annotated as int they would not be specialised: strides of 1, curvatures of one number.
    rows: tl.tensor,
    width: tl.tensor,
    inner: tl.tensor,
    curvatures: tl.tensor,
    x_outer: tl.tensor,
    x_inner: tl.tensor,
    g_outer: tl.tensor,
    g_inner: tl.tensor,
    p_outer: tl.tensor,
    p_inner: tl.tensor,
    v_outer: tl.tensor,
    v_inner: tl.tensor,
    v_max_outer: tl.tensor,
    v_max_inner: tl.tensor,
    # Triton would hand over Python's floats in float32.
    c: tl.float64,
    step_size: tl.float64,
    correction: tl.float64,
    weight1: tl.float64,
    weight2: tl.float64,
    share: tl.float64,
    eps: tl.float64,
    decay: tl.float64,
    keep: tl.float64,
    reach: tl.float64,
    stored_reach: tl.float64,
    BALL: tl.constexpr,
    DECAYS: tl.constexpr,
    KEEPS: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    real = row < rows
    inside = real[:, None] & (column < width)
    outer = (row // inner).to(tl.int64)
    within = (row % inner).to(tl.int64)
    x_at = x_ptr + (outer * x_outer + within * x_inner)[:, None] + column
    g_at = g_ptr + (outer * g_outer + within * g_inner)[:, None] + column
    p_at = p_ptr + (outer * p_outer + within * p_inner)[:, None] + column
    v_at = v_ptr + outer * v_outer + within * v_inner
    x = tl.load(x_at, mask=inside, other=0.0).to(WIDE)
    g = tl.load(g_at, mask=inside, other=0.0).to(WIDE)
    p = tl.load(p_at, mask=inside, other=0.0).to(WIDE)
    v = tl.load(v_at, mask=real, other=0.0)
    if c_ptr is None:
        curvature = tl.full((ROWS,), c, WIDE)
    else:
        curvature = tl.load(c_ptr + row % curvatures).to(WIDE)

    xx = tl.zeros((ROWS,), WIDE)
    if BALL or DECAYS or KEEPS:
        xx = tl.sum(x * x, axis=1)
    if DECAYS:
        g += (tl.full((), decay, WIDE) * pull(xx, curvature, BALL))[:, None] * x
    size = size_sq(xx, tl.sum(x * g, axis=1), tl.sum(g * g, axis=1), curvature, BALL)
    mean_sq = tl.full((), share, WIDE) * size
    w1, w2 = tl.full((), weight1, WIDE), tl.full((), weight2, WIDE)
    p = (1.0 - w1) * p + w1 * g
    v = (1.0 - w2) * v + w2 * mean_sq
    largest = v
    if v_max_ptr is not None:
        v_max_at = v_max_ptr + outer * v_max_outer + within * v_max_inner
        v_max = tl.load(v_max_at, mask=real, other=0.0)
        largest = tl.maximum(v_max, v, propagate_nan=tl.PropagateNan.ALL)
    second = tl.sqrt(largest / tl.full((), correction, WIDE)) + tl.full((), eps, WIDE)
    alpha = tl.full((), step_size, WIDE) / second

    xp, pp = tl.sum(x * p, axis=1), tl.sum(p * p, axis=1)
    border = tl.full((), reach, WIDE)
    if KEEPS:
        f, d0, e0 = shrink(xx, xp, tl.full((), keep, WIDE), curvature, BALL)
        first_xx, first_xp = f * f * xx, f * (d0 * xx + e0 * xp)
        first_pp = d0 * d0 * xx + 2 * d0 * e0 * xp + e0 * e0 * pp
        a, b, d, e = advance(first_xx, first_xp, first_pp, alpha, curvature, border, BALL)
        a, b, d, e = a * f + b * d0, b * e0, d * f + e * d0, e * e0
    else:
        a, b, d, e = advance(xx, xp, pp, alpha, curvature, border, BALL)
    moved = a[:, None] * x + b[:, None] * p
    p = e[:, None] * p
    if BALL or KEEPS:
        p += d[:, None] * x
    if x_ptr.dtype.element_ty != WIDE:
        exact = moved
        moved = exact.to(x_ptr.dtype.element_ty).to(WIDE)
        if BALL:  # rounding may carry a point onto the border: drawn inside, p with it
            norm_sq = curvature * tl.sum(moved * moved, axis=1)
            drawn = draw_inside(norm_sq, tl.full((), stored_reach, WIDE))[:, None] * moved
            moved = drawn.to(x_ptr.dtype.element_ty).to(WIDE)
            before = gap(tl.sum(exact * exact, axis=1), curvature)
            p *= (before / gap(tl.sum(moved * moved, axis=1), curvature))[:, None]
    # The row must be a point to which distances are finite, and moments must bear being squared.
    norm_sq = tl.sum(moved * moved, axis=1)
    if BALL:  # noqa: SIM108 - Triton has no conditional expression on blocks
        held = gap(norm_sq, curvature) > 0
    else:
        held = 4.0 * (1.0 + curvature) * norm_sq < float("inf")
    finite = (tl.abs(a) < float("inf")) & (tl.abs(b) < float("inf")) & (v < float("inf"))
    fine = real & finite & held & (d * d * xx + e * e * pp < float("inf"))
    if p_ptr.dtype.element_ty == tl.float16:
        fine &= tl.max(tl.abs(p), axis=1) < 65504.0
    written = fine[:, None] & inside
    tl.store(x_at, moved.to(x_ptr.dtype.element_ty), mask=written)
    tl.store(p_at, p.to(p_ptr.dtype.element_ty), mask=written)
    tl.store(v_at, v, mask=fine)
    if v_max_ptr is not None:
        tl.store(v_max_at, largest, mask=fine)


def _row_strides(tables: list[Tensor]) -> tuple[int, list[tuple[int, int]]] | None:
    """How rows are counted, and how far apart they lie in each tensor; None if irregularly.

    Row i lies at `(i // inner)·outer stride + (i % inner)·inner stride`. The inner count is 1 if
    the rows of all tensors are evenly spaced, else the last but one dimension: factors of a
    product, which are columns of a larger table.
    """
    if any(t.stride(-1) != 1 and t.shape[-1] != 1 for t in tables):
        return None
    even = [_even(t.shape[:-1], t.stride()[:-1]) for t in tables]
    strides = [(outer, 0) for outer in even if outer is not None]
    if len(strides) == len(tables):
        return 1, strides
    pairs = [
        (_even(t.shape[:-2], t.stride()[:-2]), _even(t.shape[-2:-1], t.stride()[-2:-1]))
        for t in tables
    ]
    strides = [(o, i) for o, i in pairs if o is not None and i is not None]
    return (tables[0].shape[-2], strides) if len(strides) == len(tables) else None


def _even(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """The distance of neighbours in the flattened dimensions; None if there is not one, or it is 0.

    0 is the mark of an expanded tensor, in which rows cannot be written.
    """
    step = span = 0
    for size, stride in reversed([*zip(shape, strides, strict=True)]):
        if size == 1:
            continue
        if stride == 0 or (span and stride != span):
            return None
        step, span = step or stride, stride * size
    return step


def _curvatures(c: Scalar, x: Tensor) -> tuple[Tensor | None, float] | None:
    """Curvatures on the device, that row i has in turn (number i modulo their number), or one here.

    None if they are not those of the last dimensions of the rows.
    """
    if not isinstance(c, Tensor):
        return None, float(c)
    if c.numel() == 1:
        return (c, 1.0) if c.device == x.device else (None, float(c))
    shape = c.shape[next(i for i, size in enumerate(c.shape) if size != 1) :]
    if c.device != x.device or (*x.shape[:-1], 1)[-len(shape) :] != tuple(shape):
        return None
    return c.contiguous(), 1.0
