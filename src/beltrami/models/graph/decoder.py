"""From two points to the chance of an edge between them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from beltrami.geometry import Euclidean, Manifold
from beltrami.nn import Layer


class FermiDirac(Layer):
    """Scores of edges, `(r − d²)/T`: their sigmoid is the Fermi–Dirac distribution of d².

    An edge has chance ½ at the squared distance r (Krioukov et al. 2010; HGCN, Chami et al. 2019).
    Both r, `radius` (1,), and T, as `log_temperature` (1,), are learned. As c → 0 d is Euclidean.

    Args:
        manifold: of the points.
        radius: r at the start. temperature: T at the start.
    """

    def __init__(
        self, *, manifold: Manifold, radius: float = 2.0, temperature: float = 1.0
    ) -> None:
        super().__init__(manifold)
        if temperature <= 0:
            raise ValueError(f"FermiDirac: temperature must be positive, got {temperature}")
        self.start = radius, temperature
        self.radius = nn.Parameter(torch.empty(1))
        self.log_temperature = nn.Parameter(torch.empty(1))
        self.log_scales.add("log_temperature")
        self.reset_parameters()

    @property
    def manifold_out(self) -> Manifold:
        """`Euclidean()`: scores are numbers."""
        return Euclidean()

    def reset_parameters(self) -> None:
        """Set r and T to their starting values."""
        nn.init.constant_(self.radius, self.start[0])
        nn.init.constant_(self.log_temperature, math.log(self.start[1]))

    def no_weight_decay(self) -> set[str]:
        """The radius and the temperature."""
        return {"radius", "log_temperature"}

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        """Points (N, d) and pairs of nodes (2, k) to scores (k,)."""
        far = self.manifold.dist_sq(x[pairs[0]], x[pairs[1]])
        return (self.radius - far) * torch.exp(-self.log_temperature)
