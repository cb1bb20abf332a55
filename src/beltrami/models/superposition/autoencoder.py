"""One toy model, as plain as its formula: `y = ReLU(x·W·Wᵀ + b)`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from beltrami.models.superposition.readouts import Readout, read_out


class ToyAutoencoder(nn.Module):
    """Features through fewer dimensions and back; `ToyStack` trains many of them at once.

    Args:
        n: features. m: hidden dimensions.
        readout, c: how features are read of a hidden state; see `readouts`.
    """

    def __init__(self, n: int, m: int, *, readout: Readout = "linear", c: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, m) / m**0.5)
        self.bias = nn.Parameter(torch.randn(n))
        self.readout, self.c = readout, c

    def forward(self, x: Tensor) -> Tensor:
        """Samples (..., n) to what is recovered of them."""
        h = x @ self.weight
        return torch.relu(read_out(h, self.weight, self.readout, self.c) + self.bias)
