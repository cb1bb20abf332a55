"""The feed-forward part of a transformer block."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from beltrami.checks import check_choice, check_integer
from beltrami.geometry import Euclidean, Lorentz, Manifold
from beltrami.nn.layer import Layer
from beltrami.nn.linear import Linear
from beltrami.nn.pointwise import ACTIVATIONS


class MLP(Layer):
    """Two linear layers with an activation between them, or a gated one.

    `W₂·f(W₁s + …) + …`, or for "swiglu" `W₂·(silu(W₁s + …) ⊙ (W₃s + …)) + …`, each W an HTC
    `Linear` with its time column; the activation works on space parts (HELM, He et al. 2025). As
    c → 0 the Euclidean layer of the same weights.

    Args:
        size: coordinates of the points.
        hidden: width of the hidden layer.
        manifold: Lorentz or Euclidean.
        activation: "swiglu", or a name that `Activation` knows.
        bias, time: as in `Linear`.
    """

    accepts = (Lorentz, Euclidean)

    def __init__(
        self,
        size: int,
        hidden: int,
        *,
        manifold: Manifold,
        activation: str = "swiglu",
        bias: bool = True,
        time: bool = True,
    ) -> None:
        super().__init__(manifold)
        self.size = check_integer("MLP: size", size)
        self.hidden = check_integer("MLP: hidden", hidden)
        self.activation = check_choice("MLP: activation", activation, ("swiglu", *ACTIVATIONS))
        width = 2 * hidden if activation == "swiglu" else hidden
        self.up = Linear(size, width, manifold=manifold, bias=bias, time=time)
        self.down = Linear(hidden, size, manifold=manifold, bias=bias, time=time)

    def forward(self, x: Tensor) -> Tensor:
        """(..., size) to (..., size)."""
        self.check_size(x, self.size)
        h = self.up(x)
        if self.activation == "swiglu":
            gate, value = h.chunk(2, dim=-1)
            h = F.silu(gate) * value
        else:
            h = ACTIVATIONS[self.activation](h)
        out: Tensor = self.down(h)
        return out

    def extra_repr(self) -> str:
        """Sizes, activation and manifold."""
        return (
            f"{self.size}, hidden={self.hidden}, activation={self.activation}, "
            f"manifold={self.manifold!r}"
        )
