r"""Which features a weight matrix represents: those whose rows are long.

A row Wᵢ of the toy model's weights (n, m) is the direction of feature i. Trained rows are near 0 or
near 1, so that a feature counts as represented where |Wᵢ| > ½; φ½ is the share of those, and φ₁
the share with |Wᵢ| > 1 (Liu et al. 2025, arXiv 2505.10465).

A feature that is not represented costs what its variance is: with x = u·v, u = 1 with probability
p and v uniform in 0..2, that is ⟨x²⟩ − ⟨x⟩² = 4p/3 − p².
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from beltrami.analysis.checks import check_tensor
from beltrami.analysis.results import Result
from beltrami.checks import check_integer
from beltrami.geometry.checks import check_finite
from beltrami.report.lines import Series, line_chart
from beltrami.report.picture import Picture

HALF = 0.5  # rows are represented above it


@dataclass(frozen=True)
class NormHistogram(Result):
    """How long the rows are.

    Args:
        edges: of the bins, from 0 to the longest row, one more than there are bins.
        counts: rows in each; a row on an edge belongs to the bin above it, the longest to the last.
        above_half, above_one: φ½ and φ₁, shares of the rows.
        mean, longest: of the norms.
        rows: how many there are.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    above_half: float
    above_one: float
    mean: float
    longest: float
    rows: int

    def plot(self) -> Picture:
        """The counts over the norms."""
        steps = Series("rows", self.edges, (*self.counts, 0))
        return Picture(
            line_chart(
                [steps],
                title="Lengths of the rows",
                description=f"Longer than ½ are {self.above_half:.3g} of the rows.",
                x_label="Norm of a row",
                y_label="Rows",
                step=True,
            )
        )


def represented(w: Tensor, above: float = HALF) -> Tensor:
    """Share of rows that are longer than `above`: φ½, or φ₁ with `above=1`.

    Args:
        w: (n, m), or a stack of such, (..., n, m).

    Returns:
        (...), float64; a single number for one matrix.
    """
    return (_norms(w) > above).double().mean(-1)


def unlearned_loss(w: Tensor, frequencies: Tensor, above: float = HALF) -> Tensor:
    """What the features without a row of their own cost: Σ 4p/3 − p² over |Wᵢ| ≤ `above`.

    Args:
        w: (..., n, m).
        frequencies: pᵢ, the probability that a feature is active, (..., n), from 0 to 1.

    Returns:
        (...), float64.
    """
    norms = _norms(w)
    check_tensor("frequencies", frequencies)
    check_finite(frequencies=frequencies)
    if frequencies.ndim == 0 or frequencies.shape[-1] != norms.shape[-1]:
        raise ValueError(
            f"there must be a frequency for each of {norms.shape[-1]} features, got shape "
            f"{tuple(frequencies.shape)}"
        )
    p = frequencies.detach().double()
    if float(p.min()) < 0 or float(p.max()) > 1:
        raise ValueError(
            f"frequencies are probabilities, from 0 to 1, got {float(p.min()):g} to "
            f"{float(p.max()):g}"
        )
    return torch.where(norms > above, 0.0, 4 / 3 * p - p.square()).sum(-1)


def norm_histogram(w: Tensor, bins: int = 40) -> NormHistogram:
    """Of all rows of (..., n, m), those of a stack together."""
    check_integer("bins", bins)
    norms = _norms(w).flatten().cpu()
    longest = float(norms.max())
    top = longest if longest > 0 else 1.0  # rows that are all 0 still need a bin
    edges = torch.linspace(0, top, bins + 1, dtype=torch.float64)
    place = torch.bucketize(norms, edges[1:-1].contiguous(), right=True)
    return NormHistogram(
        edges=tuple(edges.tolist()),
        counts=tuple(torch.bincount(place, minlength=bins).tolist()),
        above_half=float((norms > HALF).double().mean()),
        above_one=float((norms > 1).double().mean()),
        mean=float(norms.mean()),
        longest=longest,
        rows=len(norms),
    )


def _norms(w: Tensor) -> Tensor:
    """(..., n), float64."""
    check_tensor("w", w)
    if w.ndim < 2 or not w.is_floating_point() or w.numel() == 0:
        raise ValueError(
            f"w must be floating point rows (..., n, m), at least one, got {w.dtype} of shape "
            f"{tuple(w.shape)}"
        )
    check_finite(w=w)
    norms: Tensor = torch.linalg.vector_norm(w.detach(), dim=-1, dtype=torch.float64)
    return norms
