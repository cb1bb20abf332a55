"""Layers that work on each coordinate: activation and dropout."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.checks import check_choice
from beltrami.geometry import Manifold, PoincareBall
from beltrami.nn.borders import lift0
from beltrami.nn.layer import Layer

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
}


def apply_to_coordinates(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    manifold: Manifold,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """`f(s)` on space parts and in flat space; `exp0(f(log0(x)))` in the ball. In `dtype`."""
    dtype = dtype or x.dtype
    if isinstance(manifold, PoincareBall):
        return lift0(function(manifold.log0(x)), manifold, dtype)
    return function(x).to(dtype)


class Activation(Layer):
    """A function of each coordinate: `f(s)` on Lorentz space parts, `exp0(f(log0(x)))` in the ball.

    Every tensor is the space part of a point, so nothing else is to be done (Hypformer, Yang et al.
    2024; in the ball Hyperbolic Neural Networks, Ganea et al. 2018). The same for every c.

    Args:
        function: "relu", "gelu", "gelu_tanh", "silu", "tanh", "elu", "leaky_relu", or any function
            of a tensor that keeps its shape.
        manifold: Lorentz, PoincareBall or Euclidean.
    """

    def __init__(
        self, function: str | Callable[[Tensor], Tensor] = "relu", *, manifold: Manifold
    ) -> None:
        super().__init__(manifold)
        if isinstance(function, str):
            check_choice("Activation: function", function, tuple(ACTIVATIONS))
        elif not callable(function):
            raise TypeError(
                f"Activation: function must be a name or callable, got {type(function).__name__}"
            )
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) to (..., d)."""
        function = ACTIVATIONS[self.function] if isinstance(self.function, str) else self.function
        return apply_to_coordinates(function, x, self.manifold)

    def extra_repr(self) -> str:
        """The function and the manifold."""
        return f"{self.function}, manifold={self.manifold!r}"


class Dropout(Layer):
    """Dropout of coordinates: of the space part, or of log0(x) in the ball (Hypformer).

    A point that loses all coordinates is the origin. The identity in `eval()`. The same for
    every c.

    Args:
        p: probability that a coordinate becomes 0; the others grow by 1/(1 − p).
        manifold: Lorentz, PoincareBall or Euclidean.
    """

    def __init__(self, p: float = 0.5, *, manifold: Manifold) -> None:
        super().__init__(manifold)
        if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
            raise ValueError(f"Dropout: p must be a probability between 0 and 1, got {p}")
        self.p = float(p)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) to (..., d)."""
        if not self.training or self.p == 0:
            return x
        return apply_to_coordinates(lambda s: F.dropout(s, self.p), x, self.manifold)

    def extra_repr(self) -> str:
        """Probability and manifold."""
        return f"p={self.p}, manifold={self.manifold!r}"
