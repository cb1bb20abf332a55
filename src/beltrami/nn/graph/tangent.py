"""Graph layers that know nothing of manifolds, in the tangent space at the origin."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from beltrami.geometry import Manifold
from beltrami.nn.borders import lift0
from beltrami.nn.layer import Layer


class TangentConv(Layer):
    """`exp0(module(log0(x), ...))`: a Euclidean graph layer between points.

    For the message passing of other libraries: any `MessagePassing` layer of PyTorch Geometric
    (`GATv2Conv`, `SAGEConv`, ...), or a module of your own, becomes a layer on points that sits
    between ours. Commutes with rotations if the module does. With `manifold=Euclidean()`, and as
    c → 0, it is the module itself.

    Args:
        module: called with tangent vectors (..., N, in) and whatever else the call is given, for
            vectors (..., N, out).
        manifold: Lorentz, PoincareBall or Euclidean.
    """

    def __init__(self, module: nn.Module, *, manifold: Manifold) -> None:
        super().__init__(manifold)
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"TangentConv: module must be an nn.Module, got {type(module).__name__}"
            )
        self.module = module

    def forward(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        """Points (..., N, in) and what else the module takes (edge_index, ...) to (..., N, out)."""
        v = self.module(self.manifold.log0(x), *args, **options)
        return lift0(v, self.manifold, v.dtype)

    def extra_repr(self) -> str:
        """The arguments that print(module) shows."""
        return f"manifold={self.manifold!r}"
