"""The residual connection between points."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from beltrami.checks import check_choice, check_positive
from beltrami.geometry import Lorentz, Manifold, PoincareBall, lorentz, poincare
from beltrami.geometry.checks import Scalar
from beltrami.kernels.launch.dtypes import upcast
from beltrami.kernels.layers.residual import residual
from beltrami.nn.layer import Layer


class Residual(Layer):
    r"""Adds a branch y to the stream x with a weight w > 0.

    - Lorentz: `γ·z/(√c·|z|_L)` with z = x + w·y as ambient vectors, γ = 1 + w (Lorentzian residual
      networks, He et al. 2024). It lies on the geodesic from x to y when γ = 1. An empty branch
      then shortens the stream in every layer, and a deep model forgets its tokens; a γ that is
      constant and undoes it at the start no longer does once w and c have moved. `scale="keep"` is

          γ = (1 + w)·√(1 + 2w/(1 + w)²·τ(x)·√c),

      with which an empty branch leaves every x as it is, at any w and c.
    - Lorentz with form="boost": x moved by the translation that takes the origin to w ⊗ y. An empty
      branch leaves x as it is, so it needs no gain.
    - PoincareBall: `x ⊕ (w ⊗ y)`, Möbius addition and scaling (Ganea et al. 2018).
    - Euclidean, the limit of all as c → 0: `γ/(1 + w)·(x + w·y)`, x + w·y by default.

    Args:
        manifold: Lorentz, PoincareBall or Euclidean.
        weight: w at the start. It is stored as `log_weight` (1,), so it stays positive.
        learnable: whether w is a parameter; else it is fixed.
        scale: γ, or "keep"; 1 + w if None. In flat space it makes a leaky residual: with
            w = 1/0.94 and γ = 1 + 0.94 it is 0.94·x + y.
        form: "manifold"; on Lorentz also "boost", and "euclidean" for x + w·y on space parts, the
            ablation.
    """

    several = True

    def __init__(
        self,
        *,
        manifold: Manifold,
        weight: float = 1.0,
        learnable: bool = True,
        scale: float | str | None = None,
        form: str = "manifold",
    ) -> None:
        super().__init__(manifold)
        weight = check_positive("Residual: weight", weight)
        self.form = check_choice("Residual: form", form, ("manifold", "boost", "euclidean"))
        if isinstance(manifold, PoincareBall) and form == "euclidean":
            raise ValueError("Residual: the sum of two points of the ball may lie outside of it")
        if isinstance(manifold, PoincareBall) and form == "boost":
            raise ValueError("Residual: form='boost' is for Lorentz points; the ball's is Möbius's")
        if isinstance(scale, str):
            check_choice("Residual: scale, unless a number,", scale, ("keep",))
        elif scale is not None:
            scale = check_positive("Residual: scale", scale)
            if form == "boost" or isinstance(manifold, PoincareBall):
                raise ValueError(
                    f"Residual: scale is for sums of vectors, not for form={form!r} on {manifold!r}"
                )
        self.init, self.scale = weight, scale
        self.log_weight = nn.Parameter(torch.empty(1)) if learnable else None
        if learnable:
            self.log_scales.add("log_weight")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """w as given."""
        if self.log_weight is not None:
            nn.init.constant_(self.log_weight, math.log(self.init))

    @property
    def weight(self) -> Tensor | float:
        """w now: a float if fixed, else a tensor of shape (1,)."""
        return self.init if self.log_weight is None else self.log_weight.exp()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Stream x and branch y, (..., d), broadcasting."""
        if not _fit(x, y):
            raise ValueError(
                f"Residual on {self.manifold!r}: stream and branch must have the same last "
                f"dimension and broadcast, got {tuple(x.shape)} and {tuple(y.shape)}"
            )
        w, manifold = self.weight, self.manifold
        if isinstance(manifold, PoincareBall):
            # Rounding may carry either result onto the border.
            c = manifold.c_like(x)
            scaled = manifold.project(poincare.mobius_scalar(w, y, c))
            return manifold.project(poincare.mobius_add(x, scaled, c))
        if isinstance(manifold, Lorentz) and self.form == "manifold":
            scale = None if isinstance(self.scale, str) else self.scale
            keep = isinstance(self.scale, str)
            return residual(x, y, w, scale=scale, keep=keep, radius=manifold.radius_like(x))
        if isinstance(manifold, Lorentz) and self.form == "boost":
            c = manifold.c_like(x)
            step = y if self.log_weight is None and w == 1 else _scaled(y, w, c)
            dtype = torch.promote_types(x.dtype, y.dtype)
            return lorentz.boost(upcast(x), upcast(step), c).to(dtype)
        if isinstance(w, Tensor):
            # The weight must not widen a half-precision branch, and with it the stream.
            y = (w * y).to(y.dtype)
        elif w != 1:
            y = w * y
        out = x + y
        if self.scale is None or isinstance(self.scale, str):
            return out
        return (out * (self.scale / (1 + w))).to(out.dtype)

    def extra_repr(self) -> str:
        """Weight, scale and manifold."""
        learnable = self.log_weight is not None
        return (
            f"weight={self.init}, learnable={learnable}, scale={self.scale}, "
            f"form={self.form}, manifold={self.manifold!r}"
        )


def _scaled(y: Tensor, w: Tensor | float, c: Scalar) -> Tensor:
    """w ⊗ y: the point at w times the distance of y from the origin."""
    return lorentz.exp0(w * lorentz.log0(upcast(y), c), c)


def _fit(x: Tensor, y: Tensor) -> bool:
    if x.ndim == 0 or y.ndim == 0 or x.shape[-1] != y.shape[-1]:
        return False
    for i in range(-min(x.ndim, y.ndim), -1):  # no all(), which torch 2.9 does not trace here
        if x.shape[i] != y.shape[i] and 1 not in (x.shape[i], y.shape[i]):
            return False
    return True
