r"""Cross-entropy of a language model's scores, without the matrix of all scores.

Tokens are worked through by chunks: product, scores, loss, and then at once the gradients, which
are all that is kept. As of a score s = G·f(u), u = A·p + B·r + C,

    g = ∂loss/∂s = (1 + 2z·lse)·softmax(s) − (1 − ε)·[label] − ε/V,     h = g·G·f'(u),
    ∂p = h·A,  ∂x = ∂p·W,  ∂W = ∂pᵀ·x,  ∂r = Σ_k h·B,  ∂A = Σ_n h·p,  ∂B = Σ_n h·r,  ∂C = Σ_n h,
    ∂G = Σ_n g·f(u),

memory is a few times (chunk, V), whatever the number of tokens. The gradient of W is summed in
float32. The backward pass multiplies by the incoming gradient, so it can be taken once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from beltrami.geometry.radial_map import sum_to
from beltrami.kernels.launch.dispatch import dispatch
from beltrami.kernels.launch.dtypes import (
    accumulation_dtype,
    matmul_dtype,
    no_autocast,
    overflow_safe_dtype,
    upcast,
)
from beltrami.kernels.layers.word_scores import (
    Columns,
    Kind,
    ScoreTerms,
    argument_of,
    product,
    slope_of,
    value_of,
)

CHUNK_ELEMENTS = 1 << 27  # numbers of a chunk: half a GiB in float32


def chunked_cross_entropy(
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    terms: ScoreTerms | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
    num_items_in_batch: float | Tensor | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    chunk_size: int | None = None,
    fused: bool | None = None,
) -> Tensor:
    """`F.cross_entropy(word_scores(x·Wᵀ, terms), labels)` in memory that does not grow with tokens.

    Under autocast the products run in autocast's dtype, and their results are float32; so are
    scores and the loss, which are float64 for float64 inputs.

    Args:
        x: (..., d), as many points as labels.
        weight: W, (V, d).
        labels: (...), of words or `ignore_index`. Others are an IndexError on a CPU.
        terms: of the scores, from `linear_terms`, `hyperplane_terms` or `distance_terms`; None for
            the products themselves.
        reduction: "mean" or "sum" over labels that are not ignored.
        num_items_in_batch: what the sum is divided by, in the place of a reduction.
        label_smoothing: as in `F.cross_entropy`.
        z_loss: weight of the mean, or sum, of the squared log-sum-exp.
        chunk_size: tokens of a chunk; as many as make `CHUNK_ELEMENTS` scores if None.
        fused: None takes Triton kernels on a GPU where they can do the work, False never, True is a
            `ValueError` where they cannot.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction must be "mean" or "sum", got {reduction!r}')
    if labels.shape != x.shape[:-1] or weight.ndim != 2 or weight.shape[1] != x.shape[-1]:
        raise ValueError(
            "x must be (..., d), weight (V, d) and labels (...), got shapes "
            f"{tuple(x.shape)}, {tuple(weight.shape)} and {tuple(labels.shape)}"
        )
    terms = terms or ScoreTerms("linear")
    row = terms.row
    tensors = (x, weight, row, *terms.columns)
    wanted = [torch.is_grad_enabled() and t is not None and t.requires_grad for t in tensors]
    labels = labels.reshape(-1)
    total: Tensor = _operator(
        x.reshape(-1, x.shape[-1]),
        weight,
        labels,
        None if row is None else row.expand(*x.shape[:-1], 1).reshape(-1, 1),
        *terms.columns,
        terms.kind,
        ignore_index,
        label_smoothing,
        z_loss,
        matmul_dtype(x),
        chunk_size or max(1, CHUNK_ELEMENTS // weight.shape[0]),
        fused,
        wanted,
    )[0]
    if num_items_in_batch is not None:
        if isinstance(num_items_in_batch, Tensor):
            num_items_in_batch = num_items_in_batch.to(total.device)
        return total / num_items_in_batch
    if reduction == "sum":
        return total
    count = (labels != ignore_index).sum()
    empty = count == 0  # nan without a gradient, as torch has it
    return (total / count.masked_fill(empty, 1)).masked_fill(empty, math.nan)


class Settings(NamedTuple):
    """The constants of a loss."""

    kind: Kind
    ignore_index: int
    label_smoothing: float
    z_loss: float


def _loss_and_gradients(
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    row: Tensor | None,
    scale: Tensor | None,
    slope: Tensor | None,
    shift: Tensor | None,
    gain: Tensor | None,
    kind: Kind,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    dtype: torch.dtype,
    chunk_size: int,
    fused: bool | None,
    wanted: list[bool],
) -> list[Tensor]:
    """The sum of losses, and of x, W, r, A, B, C and G the gradients that are wanted."""
    settings = Settings(kind, ignore_index, label_smoothing, z_loss)
    inputs = (x, weight, row, scale, slope, shift, gain)
    wide, words = accumulation_dtype(dtype), weight.shape[0]
    if labels.device.type == "cpu":
        _check_labels(labels, words, ignore_index)
    kernel = dispatch("layers.chunked_cross_entropy_triton", fused, x, weight, dtype)
    row_sums = _row_sums if kernel is None else kernel.row_sums
    gradients = _gradients if kernel is None else kernel.gradients
    with no_autocast(x):
        losses = x.new_empty(labels.shape, dtype=wide)
        totals = [  # of rows, each chunk writes its own; of words, each adds to all
            x.new_zeros(t.shape if i < 3 else (words,), dtype=wide) if t is not None and w else None
            for i, (t, w) in enumerate(zip(inputs, wanted, strict=True))
        ]
        to_x, to_weight, to_row, *to_columns = totals
        x, w = x.to(dtype), weight.to(dtype)
        row = None if row is None else row.to(wide)
        columns: Any = tuple(
            None if t is None else t.to(wide).expand(words).contiguous() for t in inputs[3:]
        )
        for start in range(0, len(labels), chunk_size):
            rows = slice(start, start + chunk_size)
            r = None if row is None else row[rows]
            p = product(x[rows], w.mT)
            lse, at_label, mean = row_sums(p, r, columns, labels[rows], settings)
            loss = lse - (1 - label_smoothing) * at_label - label_smoothing * mean
            loss = loss + z_loss * lse * lse
            losses[rows] = loss.masked_fill(labels[rows] == ignore_index, 0.0)
            if any(wanted):
                by_p, by_row, by_columns = gradients(
                    p, r, columns, labels[rows], lse, settings, wanted, dtype
                )
                if to_x is not None:
                    to_x[rows] = product(by_p, w)
                if to_weight is not None:
                    _add_product(to_weight, by_p.mT, x[rows])
                if to_row is not None and by_row is not None:
                    to_row[rows] = by_row
                for total, by_column in zip(to_columns, by_columns, strict=True):
                    if total is not None and by_column is not None:
                        total += by_column
                del by_p
            del p  # before the next is made
        results = [losses.sum()]
        for t, total in zip(inputs, totals, strict=True):
            if t is not None and total is not None:
                results.append(sum_to(total, t).to(overflow_safe_dtype(t.dtype)))
    return results


_operator = torch.library.custom_op(
    "beltrami::chunked_cross_entropy",
    _loss_and_gradients,
    mutates_args=(),
    schema=(
        "(Tensor x, Tensor weight, Tensor labels, Tensor? row, Tensor? scale, Tensor? slope,"
        " Tensor? shift, Tensor? gain, str kind, int ignore_index, float label_smoothing,"
        " float z_loss, ScalarType dtype, SymInt chunk_size, bool? fused, bool[] wanted)"
        " -> Tensor[]"
    ),
)


@_operator.register_fake
def _fake(*arguments: Any) -> list[Tensor]:
    inputs, dtype, wanted = (*arguments[:2], *arguments[3:8]), arguments[12], arguments[-1]
    results = [arguments[0].new_empty((), dtype=accumulation_dtype(dtype))]
    for t, w in zip(inputs, wanted, strict=True):
        if t is not None and w:
            results.append(t.new_empty(t.shape, dtype=overflow_safe_dtype(t.dtype)))
    return results


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.wanted, ctx.count = inputs[-1], len(inputs)
    ctx.dtypes = [None if t is None else t.dtype for t in (*inputs[:2], *inputs[3:8])]


def _backward(ctx: Any, by_results: list[Tensor]) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():  # second derivatives would lack what went into the gradients
        raise RuntimeError(
            "chunked_cross_entropy has no second derivatives: take F.cross_entropy of word_scores"
        )
    saved = iter(ctx.saved_tensors)
    by_x, *others = (
        (next(saved) * by_results[0]).to(dtype) if wanted else None
        for wanted, dtype in zip(ctx.wanted, ctx.dtypes, strict=True)
    )
    return by_x, others[0], None, *others[1:], *[None] * (ctx.count - 8)


_operator.register_autograd(_backward, setup_context=_keep)


def _check_labels(labels: Tensor, words: int, ignore_index: int) -> None:
    wrong = labels[((labels < 0) | (labels >= words)) & (labels != ignore_index)]
    if len(wrong):
        raise IndexError(
            f"labels must be in [0, {words}) or {ignore_index}, which is ignored, "
            f"got {int(wrong[0])}"
        )


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a·b to a sum in float32, or float64."""
    if a.dtype == total.dtype or not a.is_cuda:
        total.addmm_(upcast(a), upcast(b))
    else:
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)


# --- a chunk: the reference of the kernels --------------------------------------------------------


def _row_sums(
    p: Tensor, row: Tensor | None, columns: Columns, labels: Tensor, settings: Settings
) -> tuple[Tensor, Tensor, Tensor]:
    """The log-sum-exp of each row's scores, the score of its label, and the mean, (n,) each."""
    scores = value_of(argument_of(p, row, columns), settings.kind)
    scores = scores if columns[3] is None else scores * columns[3]
    place = labels.masked_fill(labels == settings.ignore_index, 0).unsqueeze(-1)
    return scores.logsumexp(-1), scores.gather(-1, place).squeeze(-1), scores.mean(-1)


def _gradients(
    p: Tensor,
    row: Tensor | None,
    columns: Columns,
    labels: Tensor,
    lse: Tensor,
    settings: Settings,
    wanted: list[bool],
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """The gradients of p, in `dtype`, and of r, A, B, C and G.

    `wanted` counts from x, and W: what is not wanted may be None.
    """
    kind, ignore_index, smoothing, z_loss = settings
    scale, slope, _, gain = columns
    u = argument_of(p, row, columns)
    value = value_of(u, kind)
    lse = lse.unsqueeze(-1)
    g = (value if gain is None else value * gain).sub(lse).exp_()
    g.mul_(1 + 2 * z_loss * lse).sub_(smoothing / p.shape[1])
    ignored = (labels == ignore_index).unsqueeze(-1)
    place = labels.unsqueeze(-1).masked_fill(ignored, 0)
    g.scatter_add_(-1, place, lse.new_full(place.shape, smoothing - 1))
    g.masked_fill_(ignored, 0.0)
    by_gain = (g * value).sum(0) if wanted[6] else None
    h = g if gain is None else g.mul_(gain)
    h = h if kind == "linear" else h.mul_(slope_of(u, value, kind))
    by_row = (h @ slope).unsqueeze(-1) if wanted[2] and slope is not None else None
    by_scale = (h * p).sum(0) if wanted[3] else None
    by_slope = row.squeeze(-1) @ h if wanted[4] and row is not None else None
    by_shift = h.sum(0) if wanted[5] else None
    by_p = (h if scale is None else h.mul_(scale)).to(dtype)
    return by_p, by_row, [by_scale, by_slope, by_shift, by_gain]
