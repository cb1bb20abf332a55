r"""How far an adapter is from a linear map, on a user's own tokens.

The gain depends on the token, so no weight equals an adapter. The nearest multiple of LoRA's own
update, Δ ≈ κ·B·u (+ a bias for boost, whose update is not 0 at the origin), has

    κ = E⟨Δ, Bu⟩/E|Bu|²,        for a gain g: E[g·m²]/E[m²].

All of it is summed in the r coordinates of the adapter: with Δ = W·z, |Δ|² = zᵀ(WᵀW)z.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


class Calibration:
    """Sums over the tokens a layer has seen. `bias` says whether a constant may be fitted, too."""

    def __init__(self, *, bias: bool) -> None:
        self.bias = bias
        self.tokens = 0
        self._moments: Tensor | None = None  # E of (z, u)(z, u)ᵀ, unnormalised
        self._sums: Tensor | None = None
        self._size = 0

    def see(self, u: Tensor, z: Tensor) -> None:
        """Add tokens: u = A·x, and z with Δ = W·z."""
        self._size = z.shape[-1]
        both = torch.cat([z, u], -1).detach().double().flatten(0, -2)
        moments, sums = both.mT @ both, both.sum(0)
        self._moments = moments if self._moments is None else self._moments + moments
        self._sums = sums if self._sums is None else self._sums + sums
        self.tokens += len(both)

    def fit(self, weight: Tensor, wide_weight: Tensor) -> LinearFit:
        """The nearest multiple of B·u.

        Args:
            weight: B, (out, r). wide_weight: W of Δ = W·z.
        """
        if self._moments is None or self._sums is None or self.tokens == 0:
            raise ValueError("calibration has seen no tokens; give calibrate() some batches")
        z_size, count = self._size, self.tokens
        moments, means = self._moments / count, self._sums / count
        if self.bias:
            moments = moments - torch.outer(means, means)
        b, w = weight.detach().double(), wide_weight.detach().double()
        cross = ((w.mT @ b) * moments[:z_size, z_size:]).sum()
        square = ((b.mT @ b) * moments[z_size:, z_size:]).sum()
        whole = ((w.mT @ w) * moments[:z_size, :z_size]).sum()
        gain = float(cross / square) if square > 0 else 1.0
        left = float(whole) - gain * float(cross)
        offset = w @ means[:z_size] - gain * (b @ means[z_size:]) if self.bias else None
        total = float(whole)
        if self.bias:  # what remains is measured against the whole update, its mean included
            total += float((w @ means[:z_size]).square().sum())
        residual = (max(left, 0.0) / total) ** 0.5 if total > 0 else 0.0
        return LinearFit(gain=gain, residual=residual, tokens=count, offset=offset)


@dataclass(frozen=True)
class LinearFit:
    """κ, the relative error of κ·B·u (+ offset), and on how many tokens it was measured."""

    gain: float
    residual: float
    tokens: int
    offset: Tensor | None = None
