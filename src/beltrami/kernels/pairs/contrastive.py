r"""The contrastive loss of two batches of points, in memory O(batch).

    ℓ_ij = −s·D(x_i, y_j)   (s·x_i·y_j for `metric="dot"`)
    loss = mean_i (log Σ_j exp ℓ_ij − ℓ_ii),   the mean of it and of its transpose if `symmetric`

D is the Lorentz distance, as in MERU and HyCoCLIP; the sum of those of k Lorentz factors, as in
PHyCLIP; or their Euclidean twins. The matrix of pairs is never kept: the forward pass walks over
blocks of rows, finishing the log-sum-exp of each row and updating that of every column, and the
backward pass takes each block again. What is saved is the inputs and n + m numbers.

Distances of float32 points come from one float64 matrix product (see `kernels.chords`), whose
result is rounded to float32 and goes on from there: they are good to a few eps of float32 for every
pair that float32 coordinates resolve, near ones included. float64 points go pair by pair through
the formula of `lorentz.dist`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from beltrami.geometry.checks import Scalar, check_integer, distinct, prepare
from beltrami.kernels.launch.dtypes import accumulation_dtype, no_autocast
from beltrami.kernels.launch.saving import load_values, save_values
from beltrami.kernels.layers.scores import pairs_of

_METRICS = ("lorentz", "euclidean", "dot")

# Elements of a block of pairs (times k factors, times d in float64). On a CPU a block should stay
# in its cache; a GPU wants enough of them at once.
_CPU_ELEMENTS = 1 << 19
_GPU_ELEMENTS = 1 << 23


def contrastive_loss(
    x: Tensor,
    y: Tensor,
    *,
    scale: Scalar,
    c: Scalar | None = None,
    metric: str = "lorentz",
    symmetric: bool = True,
    offset: int = 0,
    block: int | None = None,
) -> Tensor:
    """InfoNCE of the pairs (x_i, y_i) against all others: a scalar, in float32 at least.

    The gradient at a pair of coincident points is 0, as that of `dist`. Differentiable twice, if
    without the saving in memory the second time.

    Args:
        x: points (n, d), or (n, k, d) for a product of k factors whose distances are added up.
        y: the points to match, (m, d) or (m, k, d).
        scale: s > 0, a number or a tensor of one element: the inverse temperature. The mean over
            factors instead of their sum, which PHyCLIP takes, is a scale of s/k.
        c: curvature −c, for the metric "lorentz" and no other: a number, a tensor of one element,
            or (k, 1), one for each factor.
        metric: "lorentz"; or for the twin "euclidean" (distance) or "dot" (product, of rows that
            are unit vectors already if it is to be a cosine).
        symmetric: average the losses of rows and of columns, for which n = m; else rows only.
        offset: x_i is to match y_{i + offset}; for rows only. The local rows of a process against
            the gathered columns of all have an offset of rank·n.
        block: rows worked on at a time; None chooses by the sizes. A block takes a few block·m·k
            numbers of working memory in float32, d times that in float64.
    """
    _check_choices(metric, symmetric, offset, block)
    if metric == "lorentz":
        if c is None:
            raise ValueError('metric="lorentz" needs a curvature: give c, for instance c=1.0')
        _, c, dtype = prepare(c, x=x, y=y)
    else:
        if c is not None:
            raise ValueError(f'metric="{metric}" has no curvature: leave out c, or use "lorentz"')
        _, _, dtype = prepare(1.0, x=x, y=y)
    _check_shapes(x, y, c, symmetric, offset)
    compute = accumulation_dtype(dtype)
    scale = _check_scale(scale, compute, x.device)
    x, y = distinct(x, y)
    rows, columns, matched = _LogSumExp.apply(x, y, c, scale, metric, symmetric, offset, block)
    if symmetric:
        rows = (rows + columns) / 2
    loss: Tensor = (rows - matched).mean()
    return loss


# --- checks ---------------------------------------------------------------------------------------


def _check_choices(metric: str, symmetric: bool, offset: int, block: int | None) -> None:
    if metric not in _METRICS:
        raise ValueError(f"metric must be one of {', '.join(_METRICS)}; got {metric!r}")
    check_integer("offset", offset, least=0)
    if block is not None:
        check_integer("block", block)
    if symmetric and offset:
        raise ValueError(
            f"offset={offset} is for the loss of rows alone: give symmetric=False, and add the "
            "loss of y against x"
        )


def _check_shapes(x: Tensor, y: Tensor, c: Scalar | None, symmetric: bool, offset: int) -> None:
    if x.ndim not in (2, 3) or x.shape[1:] != y.shape[1:]:
        raise ValueError(
            "x and y must be rows of points, (n, d) and (m, d), or of products of points, "
            f"(n, k, d) and (m, k, d); got {tuple(x.shape)} and {tuple(y.shape)}"
        )
    n, m = x.shape[0], y.shape[0]
    if n == 0:
        raise ValueError("contrastive_loss is a mean over pairs and needs at least one, got n = 0")
    if symmetric and n != m:
        raise ValueError(
            f"the symmetric loss needs a row of y for each of x, got {n} and {m}; "
            "symmetric=False takes more columns than rows"
        )
    if n + offset > m:
        raise ValueError(
            f"x_i is matched with y_(i + offset), so y needs at least {n} + {offset} rows, got {m}"
        )
    if isinstance(c, Tensor) and c.numel() != 1:
        k = x.shape[1] if x.ndim == 3 else 1
        if x.ndim == 2 or tuple(c.shape) != (k, 1):
            accepted = "one element" if x.ndim == 2 else f"one element or shape ({k}, 1)"
            raise ValueError(
                f"c must have {accepted} for x of shape {tuple(x.shape)}, got {tuple(c.shape)}"
            )


def _check_scale(scale: Scalar, dtype: torch.dtype, device: torch.device) -> Scalar:
    if isinstance(scale, Tensor):
        if not scale.is_floating_point():
            raise TypeError(f"scale must be a floating point tensor, got {scale.dtype}")
        if scale.numel() != 1:
            raise ValueError(f"scale must have one element, got shape {tuple(scale.shape)}")
        if scale.device != device and scale.ndim:
            raise ValueError(
                f"scale is on {scale.device} but the points are on {device}: move one of them"
            )
        return scale.to(dtype)
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise TypeError(f"scale must be a float or a tensor, got {type(scale).__name__}")
    if not math.isfinite(scale) or scale <= 0:
        raise ValueError(f"scale must be a positive finite number, got {scale}")
    return float(scale)


# --- log-sum-exp of rows and columns --------------------------------------------------------------


class _LogSumExp(torch.autograd.Function):
    """(log Σ_j exp ℓ_ij, log Σ_i exp ℓ_ij or nothing, ℓ_{i,i+offset}), of shapes (n,) (m,) (n,).

    Three differentiable outputs and a loss made of them outside, so that the saved sums carry their
    own gradients when this backward is differentiated.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        y: Tensor,
        c: Scalar | None,
        scale: Scalar,
        metric: str,
        symmetric: bool,
        offset: int,
        block: int | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        with no_autocast(x):
            pairs = pairs_of(x, y, c, metric, (False, False, False))
            by_row, matched = [], []
            columns: Tensor | None = None
            for rows in _row_blocks(x, y, block):
                logits = scale * pairs.score(rows)[0]
                by_row.append(torch.logsumexp(logits, 1))
                matched.append(logits.diagonal(rows.start + offset))
                if symmetric:
                    part = torch.logsumexp(logits, 0)
                    columns = part if columns is None else torch.logaddexp(columns, part)
            if columns is None:
                columns = by_row[0].new_empty(0)
            # cat also copies, so that no output is a view
            return torch.cat(by_row), columns, torch.cat(matched)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        save_values(ctx, (*inputs, output[0], output[1]))

    @staticmethod
    def backward(
        ctx: Any, g_rows: Tensor, g_columns: Tensor, g_matched: Tensor
    ) -> tuple[Tensor | None, ...]:
        values = load_values(ctx)
        x, y, c, scale, metric, symmetric, offset, block, by_row, by_column = values
        needs_x, needs_y, needs_c, needs_scale = ctx.needs_input_grad[:4]
        g_scale: Any = 0.0
        with no_autocast(x):
            pairs = pairs_of(x, y, c, metric, (needs_x, needs_y, needs_c))
            for rows in _row_blocks(x, y, block):
                score, cache = pairs.score(rows)
                logits = scale * score
                g = torch.exp(logits - by_row[rows, None]) * g_rows[rows, None]
                if symmetric:
                    g = torch.addcmul(g, torch.exp(logits - by_column), g_columns)
                place = rows.start + offset
                g = torch.diagonal_scatter(g, g.diagonal(place) + g_matched[rows], place)
                if needs_scale:
                    g_scale = g_scale + (g * score).sum()
                pairs.pull(rows, cache, scale * g)
            gx, gy, gc = pairs.gradients()
        return (
            None if gx is None else gx.to(x.dtype),
            None if gy is None else gy.to(y.dtype),
            None if gc is None else gc.reshape(c.shape).to(c.dtype),
            g_scale.reshape(scale.shape).to(scale.dtype) if needs_scale else None,
            *[None] * 4,
        )


def _row_blocks(x: Tensor, y: Tensor, block: int | None) -> Iterator[slice]:
    n = x.shape[0]
    if block is None:
        wide = torch.float64 in (x.dtype, y.dtype)
        a_row = (y.numel() if wide else y.numel() // max(1, y.shape[-1])) or 1
        block = max(1, (_CPU_ELEMENTS if x.device.type == "cpu" else _GPU_ELEMENTS) // a_row)
    for i in range(0, n, block):
        yield slice(i, min(n, i + block))
