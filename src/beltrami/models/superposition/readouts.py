r"""From a hidden state to what is read of each feature, in flat and in hyperbolic space.

The hidden state h and the row Wᵢ of a feature are the same numbers in all of them, vectors at the
origin; in hyperbolic space they stand for the points exp0(h) and exp0(Wᵢ). With B the Busemann
function of the ideal point in the direction of Wᵢ,

    linear      h·Wᵢ
    bent        h·Wᵢ·(1 + |h·Wᵢ|)/2
    margin      2h·Wᵢ − |h|·|Wᵢ|
    distance    (|h|² + |Wᵢ|² − d²(exp0 h, exp0 Wᵢ))/2
    busemann    −|Wᵢ|·B(exp0 h)

The last two tend to the linear one as c → 0. The two before are flat controls for them: as
nonlinear in h·Wᵢ; and, as distances far out are about |h| + |Wᵢ|, with less than h·Wᵢ wherever
directions differ. All are 0 for h = 0: a sample without features gives ReLU(b).
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from beltrami.geometry import lorentz
from beltrami.kernels.pairs.gram_distances import gram_distances
from beltrami.nn.classifiers import busemann_logits

Readout = Literal["linear", "bent", "margin", "distance", "busemann"]


def read_out(h: Tensor, w: Tensor, readout: Readout = "linear", c: float = 1.0) -> Tensor:
    """What is read of all features, (rows, n).

    Args:
        h: hidden states, (rows, m). w: rows of the features, (n, m).
        readout: see the head of this file.
        c: curvature −c, for the last two.
    """
    if readout == "linear":
        return h @ w.mT
    if readout == "bent":
        flat = h @ w.mT
        return flat * (1 + flat.abs()) / 2
    if readout == "margin":
        lengths = [torch.linalg.vector_norm(v, dim=-1) for v in (h, w)]
        return 2 * (h @ w.mT) - torch.outer(*lengths)
    x = lorentz.exp0(h, c)
    if readout == "busemann":
        return busemann_logits(x, w, c, h.dtype)
    if readout != "distance":
        raise ValueError(f"readout must be one of {', '.join(get_args(Readout))}, got {readout!r}")
    d = gram_distances(x, lorentz.exp0(w, c), c)
    squares = h.square().sum(-1, keepdim=True) + w.square().sum(-1)
    return (squares - d.square()) / 2


class ToyAutoencoder(nn.Module):
    """Features through fewer dimensions and back; `ToyStack` trains many of them at once.

    Args:
        n: features. m: hidden dimensions.
        readout, c: how features are read of a hidden state; see the head of this file.
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
