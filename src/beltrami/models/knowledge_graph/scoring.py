r"""Hyperbolic scores of queries against *all* entities, and the softmax loss over them.

An entity is a tangent vector v at the origin; the curvature c belongs to the query's relation, so
the point it stands for, `x = sinhc(√c|v|)·v`, is another one for every relation. Still the (b, n)
table of distances is one matrix product. With `T = √(1 + c|q|²)` and

    h_q = (T − 1)/2 = c|q|²/(2(T + 1))      S = sinhc(√c|v|)      H = sinh²(√c|v|/2)
    u = sinh²(√c·d/2) = h_q + (1 + 2h_q)·H − S·(c·q/2)·v
    score = b_v − d² = b_v − (4/c)·asinh²(√u)

S and H are tables (relations, n) of c|v|², computed once a batch, of which each query takes its
row.

Accuracy. The three terms of u cancel for near pairs, so u carries an *absolute* error of a few
eps·cosh(ρ_q)·cosh(ρ_v) with ρ = √c·radius, and the score, whose slope in u is at most 4/c, one of
`SCORE_ERROR`·eps·cosh(ρ_q)·cosh(ρ_v)/c: 1e-4 for ρ = 3 in float32. Differences between scores
of that size do not move a rank that anyone would trust; where they matter, use float64, or
`triple_scores` of the model, which goes pair by pair through `lorentz.dist_sq`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from beltrami.geometry import radial

# The constant of the error bound above, as the tests hold it.
SCORE_ERROR = 16.0

# Elements of a block of scores: a CPU keeps it in its cache, a GPU wants all there is, up to 2 GB
# a table of float32.
_CPU_ELEMENTS = 1 << 20
_GPU_ELEMENTS = 1 << 29


class ScoreTerms(NamedTuple):
    """What all scores of a batch of b queries against n entities are made of."""

    half_query: Tensor  # c·q/2, (b, d)
    rise: Tensor  # h_q, (b, 1)
    scale: Tensor  # 4/c, (b, 1)
    entity: Tensor  # v, (n, d)
    reach_sq: Tensor  # c|v|², (k, n): a row for each relation, or for each query
    bias: Tensor  # b_v, (n,)


def score_terms(
    query: Tensor, c: Tensor, relation: Tensor, entity: Tensor, bias: Tensor
) -> tuple[ScoreTerms, Tensor | None]:
    """The terms of a batch, and the row of the tables that each query takes (None: its own).

    Args:
        query: Lorentz points (space part) of the curvatures of their relations, (b, d).
        c: curvatures of all relations, (k, 1).
        relation: int64 (b,), the relation of each query.
        entity: tangent vectors at the origin, (n, d).
        bias: (n,).
    """
    of_query = torch.nn.functional.embedding(relation, c)  # (b, 1)
    q2 = of_query * query.square().sum(-1, keepdim=True)
    shared = len(c) <= len(query)
    terms = ScoreTerms(
        of_query * query / 2,
        q2 / (2 + 2 * torch.sqrt(1 + q2)),
        4 / of_query,
        entity,
        (c if shared else of_query) * entity.square().sum(-1),
        bias,
    )
    return terms, relation if shared else None


def all_scores(terms: ScoreTerms, rows: Tensor | None) -> Tensor:
    """Scores of every query against every entity, (b, n); keeps only its inputs for backward."""
    out: Tensor = _AllScores.apply(rows, *terms)
    return out


def softmax_loss(
    terms: ScoreTerms,
    rows: Tensor | None,
    target: Tensor,
    *,
    smoothing: float = 0.0,
) -> Tensor:
    """Mean cross-entropy of the targets under the softmax of all scores: a scalar.

    The gradient is computed along with the value, a block of queries at a time, so that a table
    of scores is neither kept nor computed twice. Differentiable once.

    Args:
        terms, rows: of `score_terms`.
        target: int64 (b,), the entity that answers each query.
        smoothing: the share of probability that is spread over all entities.
    """
    out: Tensor = _SoftmaxLoss.apply(rows, target, smoothing, *terms)
    return out


# --- one block of queries ------------------------------------------------------------------------


class _Tables(NamedTuple):
    """S and H of `reach_sq`, (k, n)."""

    stretch: Tensor
    height: Tensor


def _tables(terms: ScoreTerms) -> _Tables:
    half = radial.sinhc_sq(terms.reach_sq / 4)
    return _Tables(radial.sinhc_sq(terms.reach_sq), terms.reach_sq / 4 * half * half)


class _Block(NamedTuple):
    """Some of the queries, with (b, n) tables of their rows."""

    half_query: Tensor
    rise: Tensor
    scale: Tensor
    stretch: Tensor
    height: Tensor


def _blocks(
    terms: ScoreTerms, tables: _Tables, rows: Tensor | None
) -> Iterator[tuple[slice, _Block]]:
    b, n = len(terms.rise), len(terms.entity)
    limit = _CPU_ELEMENTS if terms.entity.device.type == "cpu" else _GPU_ELEMENTS
    # A compiler fuses what a block would keep in the cache, and would unroll the loop.
    step = b if torch.compiler.is_compiling() else max(1, limit // n)
    for first in range(0, b, step):
        part = slice(first, min(b, first + step))
        row = part if rows is None else rows[part]
        yield (
            part,
            _Block(
                terms.half_query[part],
                terms.rise[part],
                terms.scale[part],
                tables.stretch[row],
                tables.height[row],
            ),
        )


class _Pairs(NamedTuple):
    """The (b, n) tables of a block that its gradient needs again."""

    product: Tensor  # (c·q/2)·v
    angle_sq: Tensor  # a² = asinh²(√u) = c·d²/4
    slope: Tensor  # d(a²)/du = a/(√u·√(1+u)), 1 at u = 0


def _pairs(block: _Block, entity: Tensor) -> _Pairs:
    product = block.half_query @ entity.T
    # u is non-negative; rounding may leave a coincident pair a little below.
    u = (block.rise + (1 + 2 * block.rise) * block.height - block.stretch * product).relu()
    w, r = torch.sqrt(u), torch.sqrt(1 + u)
    angle = torch.log1p(w + u / (1 + r))  # asinh(w), with all digits near 0
    return _Pairs(product, angle * angle, torch.where(u > 0, angle / (w * r), 1.0))


class _Gradients:
    """Gradients of `(g·score).sum()` in all terms, gathered over blocks of queries."""

    def __init__(self, terms: ScoreTerms, tables: _Tables, rows: Tensor | None) -> None:
        self._terms, self._tables, self._rows = terms, tables, rows
        self._per_query: list[tuple[Tensor, ...]] = []  # of half_query, rise, scale
        self._per_table: list[tuple[Tensor, Tensor]] = []  # of stretch, height
        self._entity: Tensor | None = None
        self._bias: Tensor | None = None

    def add(self, part: slice, block: _Block, pairs: _Pairs, g: Tensor) -> None:
        of_u = -block.scale * g * pairs.slope
        of_product = -block.stretch * of_u
        self._per_query.append(
            (
                of_product @ self._terms.entity,
                (of_u * (1 + 2 * block.height)).sum(-1, keepdim=True),
                -(g * pairs.angle_sq).sum(-1, keepdim=True),
            )
        )
        self._entity = _plus(self._entity, of_product.T @ block.half_query)
        self._bias = _plus(self._bias, g.sum(0))
        of_stretch, lift = -pairs.product * of_u, 1 + 2 * block.rise
        if self._rows is None:
            self._per_table.append((of_stretch, lift * of_u))
            return
        # A matrix product adds up in a fixed order, which a scatter on a GPU does not.
        index = torch.arange(len(self._tables.stretch), device=g.device).unsqueeze(1)
        member = (self._rows[part] == index).to(g.dtype)  # (k, b)
        both = (member @ of_stretch, (member * lift.T) @ of_u)
        if self._per_table:
            before = self._per_table.pop()
            both = (before[0] + both[0], before[1] + both[1])
        self._per_table.append(both)

    def result(self) -> tuple[Tensor, ...]:
        """In the order of the terms."""
        assert self._entity is not None
        assert self._bias is not None
        of_query = [_joined(parts) for parts in zip(*self._per_query, strict=True)]
        of_stretch, of_height = (_joined(parts) for parts in zip(*self._per_table, strict=True))
        slope = radial.sinhc_sq_prime(self._terms.reach_sq)
        of_reach = of_stretch * slope + of_height * self._tables.stretch / 4
        return (*of_query, self._entity, of_reach, self._bias)


def _plus(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total + part


def _joined(parts: tuple[Tensor, ...]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


# --- autograd ------------------------------------------------------------------------------------


class _AllScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor | None, *args: Tensor) -> Tensor:
        terms = ScoreTerms(*args)
        ctx.save_for_backward(*args)
        ctx.rows = rows
        out = terms.bias.new_empty(len(terms.rise), len(terms.entity))
        for part, block in _blocks(terms, _tables(terms), rows):
            out[part] = _score(terms, block, _pairs(block, terms.entity))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        terms, rows = ScoreTerms(*ctx.saved_tensors), ctx.rows
        tables = _tables(terms)
        gradients = _Gradients(terms, tables, rows)
        for part, block in _blocks(terms, tables, rows):
            gradients.add(part, block, _pairs(block, terms.entity), g[part])
        return None, *gradients.result()


def _score(terms: ScoreTerms, block: _Block, pairs: _Pairs) -> Tensor:
    return terms.bias - block.scale * pairs.angle_sq


def _loss_and_gradients(
    terms: ScoreTerms, rows: Tensor | None, target: Tensor, smoothing: float
) -> tuple[Tensor, ...]:
    """The softmax loss and its gradients in all terms."""
    tables = _tables(terms)
    gradients = _Gradients(terms, tables, rows)
    b, n = len(terms.rise), len(terms.entity)
    index = torch.arange(n, device=target.device)
    losses = []
    for part, block in _blocks(terms, tables, rows):
        pairs = _pairs(block, terms.entity)
        score = _score(terms, block, pairs)
        log_total = score.logsumexp(-1, keepdim=True)
        place = target[part].unsqueeze(1)
        loss = log_total - (1 - smoothing) * score.gather(1, place)
        losses.append(loss - smoothing * score.mean(-1, keepdim=True) if smoothing else loss)
        g = torch.exp(score - log_total) - smoothing / n
        g = torch.where(index == place, g - (1 - smoothing), g)
        gradients.add(part, block, pairs, g / b)
    return _joined(tuple(losses)).mean(), *gradients.result()


class _SoftmaxLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor | None, target: Tensor, smoothing: float, *args: Tensor
    ) -> Tensor:
        loss, *gradients = _loss_and_gradients(ScoreTerms(*args), rows, target, smoothing)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *[g * gradient for gradient in ctx.saved_tensors]
