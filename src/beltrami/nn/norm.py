"""Normalisation of each point by itself: RMSNorm and LayerNorm."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.checks import check_integer, check_positive
from beltrami.geometry import Manifold, PoincareBall
from beltrami.nn.layer import Layer
from beltrami.nn.pointwise import apply_to_coordinates


class _Norm(Layer):
    several = True

    def __init__(self, size: int, *, manifold: Manifold, eps: float, bias: bool) -> None:
        super().__init__(manifold)
        self.size = check_integer(f"{type(self).__name__}: size", size)
        self.eps = check_positive(f"{type(self).__name__}: eps", eps)
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Gain 1, or 1/√size in the ball, whose tangent vectors must stay short; bias 0."""
        in_ball = isinstance(self.manifold, PoincareBall)
        nn.init.constant_(self.weight, self.size**-0.5 if in_ball else 1.0)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _normalise(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """(..., size) to (..., size)."""
        self.check_size(x, self.size)
        # A half-precision stream under float32 parameters is normalised in float32.
        dtype = self.weight.dtype
        wide = x if x.dtype == dtype else x.to(torch.promote_types(x.dtype, dtype))
        return apply_to_coordinates(self._normalise, wide, self.manifold, x.dtype)

    def extra_repr(self) -> str:
        """Size, eps and manifold."""
        bias = self.bias is not None
        return f"{self.size}, eps={self.eps}, bias={bias}, manifold={self.manifold!r}"


class RMSNorm(_Norm):
    r"""`w ⊙ s/√(mean(s²) + eps)` on space parts; in the ball on log0(x), the result through exp0.

    On Lorentz points the norm moves a point along its ray to space length about √d, so the radius
    becomes asinh(√(c·d))/√c before the gain. The same for every c, hence also as c → 0.
    (Hypformer, Yang et al. 2024; in the ball as in HGCN's tangent maps, Chami et al. 2019.)
    """

    def __init__(self, size: int, *, manifold: Manifold, eps: float = 1e-6) -> None:
        super().__init__(size, manifold=manifold, eps=eps, bias=False)

    def _normalise(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self.size,), self.weight, self.eps)


class LayerNorm(_Norm):
    r"""`w ⊙ (s − mean(s))/√(var(s) + eps) + b` on space parts; in the ball on log0(x), as RMSNorm.

    (Hypformer, Yang et al. 2024.) The same for every c.
    """

    def __init__(
        self, size: int, *, manifold: Manifold, eps: float = 1e-5, bias: bool = True
    ) -> None:
        super().__init__(size, manifold=manifold, eps=eps, bias=bias)

    def _normalise(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.size,), self.weight, self.bias, self.eps)
