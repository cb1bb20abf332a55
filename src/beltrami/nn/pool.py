"""Many tokens to one."""

from __future__ import annotations

import torch
from torch import Tensor

from beltrami.checks import check_integer
from beltrami.geometry import Manifold
from beltrami.kernels.launch.dtypes import accumulation_dtype
from beltrami.nn.layer import Layer


class Pool(Layer):
    """The centroid of tokens, or of the pixels of a feature map.

    `Σ wᵢxᵢ/(√c·|Σ wᵢxᵢ|_L)` on the Lorentz model (Law et al. 2019), the same point seen in the ball
    (the gyromidpoint, Ungar), and the weighted mean with `manifold=Euclidean()` and as c → 0.

    A mask leaves tokens out as if they were not there, whatever they hold; where nothing is left,
    the result is the origin. It has no parameters.

    Args:
        manifold: of the tokens and of the result.
        dims: how many dimensions to pool: 1 for tokens (B, N, d), 2 for feature maps (B, H, W, d).

    Shapes: x (..., n₁, ..., n_dims, d) to (..., d); mask and weights (..., n₁, ..., n_dims).
    """

    def __init__(self, *, manifold: Manifold, dims: int = 1) -> None:
        super().__init__(manifold)
        self.dims = check_integer("Pool: dims", dims)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """The centroid of the tokens.

        Args:
            x: points.
            mask: bool, true where a token counts; all do if None.
            weights: not negative; equal if None. Their scale does not matter.
        """
        self._check(x, mask, weights)
        x = x.flatten(-1 - self.dims, -2)  # (..., n, d)
        if mask is None and weights is None:
            return self.manifold.centroid(x)
        wide = accumulation_dtype(x.dtype)
        w = torch.ones((), dtype=wide, device=x.device)
        if weights is not None:
            w = weights.flatten(-self.dims).to(wide)
        if mask is not None:
            keep = mask.flatten(-self.dims)
            w = torch.where(keep, w, 0.0)
            x = torch.where(keep.unsqueeze(-1), x, 0.0)
        nonempty = (w > 0).any(-1, keepdim=True)
        # Equal weights where there are none: a centroid that exists, and is then not used.
        point = self.manifold.centroid(x, torch.where(nonempty, w, 1.0))
        return torch.where(nonempty, point, 0.0)

    def _check(self, x: Tensor, mask: Tensor | None, weights: Tensor | None) -> None:
        if x.ndim < 1 + self.dims or 0 in x.shape[-1 - self.dims : -1]:
            raise ValueError(
                f"Pool takes x with {self.dims} dimension{'s' * (self.dims > 1)} of at least one "
                f"token before the last, got {tuple(x.shape)}"
            )
        if mask is not None and mask.dtype != torch.bool:
            raise TypeError(f"Pool: mask must be bool, true where a token counts; got {mask.dtype}")
        if weights is not None and not weights.is_floating_point():
            raise TypeError(f"Pool: weights must be floating point, got {weights.dtype}")
        for name, value in (("mask", mask), ("weights", weights)):
            if value is not None and value.shape != x.shape[:-1]:
                raise ValueError(
                    f"Pool: {name} must have shape {tuple(x.shape[:-1])} for x of shape "
                    f"{tuple(x.shape)}, got {tuple(value.shape)}"
                )

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        return f"manifold={self.manifold!r}, dims={self.dims}"
