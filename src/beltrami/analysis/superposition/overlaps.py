r"""How much rows overlap: cosines of pairs of different rows, as they are and about their mean.

Superposition is more directions than dimensions, and cos² is what they cost each other. Random
directions have 1/d in the mean, and the least that is possible is Welch's κ² (`features.py`). Rows
of a language model have a common part, their mean, that alone can make cos² ten times 1/d: the
centred numbers are those of the rows without it.

The mean of cos² is exact over all pairs: with unit rows u, Σ cos² over ordered pairs is
|Σuuᵀ|² − Σ|u|⁴, from a (d, d) matrix. Means of |cos|, and the distance from an ETF, have no such
formula. Up to 4096 rows, or up to d, all pairs are compared; beyond, pairs are drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from beltrami.analysis.checks import check_tensor
from beltrami.analysis.results import Result
from beltrami.analysis.superposition import row_blocks as reading
from beltrami.analysis.superposition.features import welch_bound
from beltrami.analysis.superposition.row_blocks import Rows, gathered, row_blocks, unit_rows
from beltrami.checks import check_integer
from beltrami.report.lines import Series, line_chart
from beltrami.report.picture import Picture

ALL_PAIRS = 4096  # rows up to which all pairs are compared, whatever d is
DRAWN_NUMBERS = 1 << 24  # of rows that pairs are drawn from: all, or as many as this holds
IN_FLOAT64 = 1 << 24  # numbers of a matrix up to which products are of float64
# Columns of products at once: they are symmetric, so that little more than half is computed.
COLUMNS = 1024
SMALLEST, A_DECADE = -4, 25  # bins of |cos|: from 10⁻⁴ to 1, so many for a factor of 10
_ROUNDING = 1e-12  # of the mean: rows that near to it have no direction about it


@dataclass(frozen=True)
class Overlaps(Result):
    """Overlaps of rows; see the head of this file.

    Args:
        mean_squared: of cosines, over all pairs of different rows, exactly.
        mean_squared_centred: the same once the mean of the rows is taken off. NaN if fewer than two
            rows differ from it.
        mean_absolute, mean_absolute_centred: of |cos|, over `pairs` pairs.
        etf_distance, etf_distance_centred: √⟨(cos² − κ²)²⟩/κ², over the same pairs: 0 for an
            equiangular tight frame, about √2 for many random directions. NaN where κ² is 0.
        random: 1/d. welch: κ², the least mean of cos² (`welch_bound`).
        dimensions: d. rows: that were compared. left_out: those that are 0 or not in `used`.
        pairs: how many were compared for the means of |cos| and the distances.
        exact: whether those were all pairs.
        edges: of bins of |cos|, the first from 0 to 10⁻⁴, then by their logarithm up to 1.
        counts, counts_centred: pairs in each bin, of at most as many pairs as were asked for.
    """

    mean_squared: float
    mean_squared_centred: float
    mean_absolute: float
    mean_absolute_centred: float
    etf_distance: float
    etf_distance_centred: float
    random: float
    welch: float
    dimensions: int
    rows: int
    left_out: int
    pairs: int
    exact: bool
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    counts_centred: tuple[int, ...] = ()

    def plot(self) -> Picture:
        """How |cos| is spread, beside that of random directions and the one value of an ETF."""
        counts = {"these rows": self.counts, "without their mean": self.counts_centred}
        shown = {name: [k / max(1, sum(ks)) for k in ks] for name, ks in counts.items()}
        shown["random directions"] = list(random_shares(self.dimensions, self.edges))
        # The first bin, from 0, has no place on a logarithmic axis.
        lines = [Series(name, self.edges[1:], (*y[1:], 0.0)) for name, y in shown.items()]
        if self.welch > 0:
            tallest = max(max(y[1:]) for y in shown.values())
            at = math.sqrt(self.welch)
            lines.append(Series("equal overlaps (ETF)", (at, at, at), (0.0, tallest, 0.0)))
        return Picture(
            line_chart(
                lines,
                title="Overlaps of rows",
                description=f"Mean square {self.mean_squared:.3g}, {self.mean_squared_centred:.3g} "
                f"without the mean; random directions have {self.random:.3g}.",
                x_label="|cos| of two rows",
                y_label="Share of pairs",
                x_log=True,
                step=True,
            )
        )


def overlaps(
    x: Rows, *, used: Tensor | None = None, pairs: int = 200_000, seed: int = 0
) -> Overlaps:
    """Of rows x, in blocks: a matrix larger than memory can be given as a function.

    Products are of float32, summed in float64; of float64 for small matrices, for float64 rows, and
    on a GPU, where float32 products may have been switched to fewer digits. A block and two (d, d)
    float64 matrices are held, and rows for the pairs, of 16 million numbers at most.

    Args:
        x: (n, d), or a function that gives blocks of rows anew at each call; it is called three
            times.
        used: (n,) booleans, the rows to compare. None is all. Rows that are 0 never are.
        pairs: to draw for the means of |cos|, where comparing all is too expensive, and for the
            histogram. Both rows of a pair are drawn among all rows if they have at most 16 million
            numbers, and otherwise among as many random ones.
        seed: of the drawing.

    Raises:
        ValueError: for fewer than 2 rows to compare, and numbers that are not finite.
    """
    check_integer("pairs", pairs)
    keep, mean, dtype = _first_look(x, used)
    rows, d = int(keep.sum()), len(mean)
    kappa = welch_bound(rows, d)
    g = torch.Generator().manual_seed(seed)
    exact = rows <= max(ALL_PAIRS, d)
    which = keep.nonzero()[:, 0]
    if not exact:
        squares = _gram_means(x, keep, mean, dtype)
        which = which[torch.randperm(rows, generator=g)[: min(rows, max(2, DRAWN_NUMBERS // d))]]
    compared = gathered(x, which).to(dtype)
    decades = torch.linspace(SMALLEST, 0, -SMALLEST * A_DECADE + 1, dtype=torch.float64)
    edges = torch.cat([torch.zeros(1, dtype=torch.float64), 10**decades])
    numbers: dict[str, Any] = {}
    for end, unit in (("", unit_rows(compared)), ("_centred", _centred(compared, mean))):
        drawn = _drawn_cosines(unit, pairs, g)
        count = len(unit) * (len(unit) - 1) // 2 if exact else len(drawn)
        sums = _all_pairs(unit, kappa) if exact else _sums(drawn, kappa)
        squared, absolute, off = (sums / count).tolist() if count else [math.nan] * 3
        numbers |= {
            f"counts{end}": _counts(drawn, edges),
            f"mean_squared{end}": squared if exact else squares[end],
            f"mean_absolute{end}": absolute,
            f"etf_distance{end}": math.sqrt(off) / kappa if kappa > 0 else math.nan,
        }
        numbers.setdefault("pairs", count)
    return Overlaps(
        random=1 / d,
        welch=kappa,
        dimensions=d,
        rows=rows,
        left_out=len(keep) - rows,
        exact=exact,
        edges=tuple(edges.tolist()),
        **numbers,
    )


def random_shares(d: int, edges: tuple[float, ...]) -> tuple[float, ...]:
    """Shares of |cos| in each bin for random directions of d dimensions.

    With cos = sin θ, the density of θ is ∝ cos^(d−2) θ, which is summed here.
    """
    at = torch.tensor(edges, dtype=torch.float64).asin()
    if d == 1:  # there are two directions, and |cos| is 1
        return (*(0.0 for _ in edges[2:]), 1.0)
    steps = torch.linspace(0, 1, 65, dtype=torch.float64)
    inner = at[:-1, None] + (at[1:] - at[:-1])[:, None] * steps
    density = inner.cos() ** (d - 2)
    shares = torch.trapezoid(density, inner)
    return tuple((shares / shares.sum()).tolist())


def _first_look(x: Rows, used: Tensor | None) -> tuple[Tensor, Tensor, torch.dtype]:
    """Which rows are compared, (n,), their mean in float64, (d,), and the dtype of products."""
    if used is not None:
        check_tensor("used", used)
        if used.dtype != torch.bool or used.ndim != 1:
            raise ValueError(
                f"used must be booleans, one a row, got {used.dtype} of shape {tuple(used.shape)}"
            )
        used = used.detach().cpu()
    kept_rows, total, narrow = [], None, True
    for first, block in row_blocks(x):
        keep = (block != 0).any(-1)
        if used is not None:
            wanted = used[first : first + len(block)]
            if len(wanted) < len(block):
                raise ValueError(f"used has {len(used)} entries, and there are more rows")
            keep &= wanted.to(keep.device)
        part = block[keep].sum(0, dtype=torch.float64)
        total = part if total is None else total + part
        kept_rows.append(keep.cpu())
        narrow = block.dtype == torch.float32 and block.device.type == "cpu"
    keep = torch.cat(kept_rows)
    if used is not None and len(used) != len(keep):
        raise ValueError(f"used has {len(used)} entries, and there are {len(keep)} rows")
    rows = int(keep.sum())
    if rows < 2:
        raise ValueError(f"overlaps are of pairs of rows, and there are {rows} to compare")
    assert total is not None  # there are rows
    large = narrow and len(keep) * len(total) > IN_FLOAT64
    return keep, total / rows, torch.float32 if large else torch.float64


def _centred(block: Tensor, mean: Tensor) -> Tensor:
    """Directions of rows about the mean, without rows that are the mean but for rounding."""
    parts = [block.new_empty(0, block.shape[1])]
    for part in block.split(max(1, reading.BLOCK // block.shape[1])):
        moved = part.double() - mean  # in float64: what is taken off may be much longer
        length = torch.linalg.vector_norm(moved, dim=-1)
        moved = moved[length > _ROUNDING * torch.linalg.vector_norm(mean)]
        parts.append(unit_rows(moved.to(block.dtype)))
    return torch.cat(parts)


def _sums(cosines: Tensor, kappa: float) -> Tensor:
    """Of cos², |cos| and (cos² − κ²)²."""
    cosines = cosines.double()
    squares = cosines.square()
    return torch.stack([squares.sum(), cosines.abs().sum(), (squares - kappa).square().sum()])


def _all_pairs(unit: Tensor, kappa: float) -> Tensor:
    """Sums over each pair once: a block of rows with those after them."""
    sums = torch.zeros(3, dtype=torch.float64, device=unit.device)
    step = max(1, reading.BLOCK // max(1, len(unit)))
    for first in range(0, len(unit), step):
        block = unit[first : first + step]
        later = torch.ones(len(block), len(unit) - first, dtype=torch.bool, device=unit.device)
        sums += _sums((block @ unit[first:].mT)[later.triu(1)], kappa)
    return sums


def _gram_means(x: Rows, keep: Tensor, mean: Tensor, dtype: torch.dtype) -> dict[str, float]:
    """Means of cos² over all pairs, of rows as they are and of centred ones, in one pass.

    Of Σuuᵀ, which is symmetric, the diagonal and what is below it, by blocks of columns.
    """
    d = len(mean)
    lows = range(0, d, COLUMNS)
    grams = {
        end: [mean.new_zeros(d - low, min(COLUMNS, d - low)) for low in lows]
        for end in ("", "_centred")
    }
    counts = dict.fromkeys(grams, 0)
    for first, block in row_blocks(x):
        rows = block[keep[first : first + len(block)].to(block.device)].to(dtype)
        for end, unit in (("", unit_rows(rows)), ("_centred", _centred(rows, mean))):
            counts[end] += len(unit)
            for low, part in zip(lows, grams[end], strict=True):
                part += unit[:, low:].mT @ unit[:, low : low + COLUMNS]
    means = {}
    for end, parts in grams.items():
        n = counts[end]
        # Each part has both halves of its square on the diagonal, and the lower half below it.
        squares = (2 * part.square().sum() - part[: part.shape[1]].square().sum() for part in parts)
        total = float(sum(squares))  # with the n pairs of a row and itself
        means[end] = (total - n) / (n * (n - 1)) if n > 1 else math.nan
    return means


def _drawn_cosines(unit: Tensor, pairs: int, g: torch.Generator) -> Tensor:
    """Of random pairs of different rows; of each pair once where there are no more than asked."""
    n = len(unit)
    if n < 2:
        return unit.new_empty(0)
    if n * (n - 1) // 2 <= pairs:
        a, b = torch.triu_indices(n, n, 1)
    else:
        a = torch.randint(n, (pairs,), generator=g)
        b = torch.randint(n - 1, (pairs,), generator=g)
        b = b + (b >= a)  # any but a
    step = max(1, reading.BLOCK // unit.shape[1])
    steps = zip(a.to(unit.device).split(step), b.to(unit.device).split(step), strict=True)
    return torch.cat([(unit[i] * unit[j]).sum(-1) for i, j in steps])


def _counts(cosines: Tensor, edges: Tensor) -> tuple[int, ...]:
    """The last bin has what rounding puts above 1."""
    place = torch.bucketize(cosines.abs().double().cpu(), edges[1:-1].contiguous(), right=True)
    return tuple(torch.bincount(place, minlength=len(edges) - 1).tolist())
