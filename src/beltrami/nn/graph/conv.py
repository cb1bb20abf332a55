"""Graph convolutions: a linear layer, the mean of the neighbours, an activation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall
from beltrami.kernels.launch.dtypes import upcast
from beltrami.nn.borders import lift0
from beltrami.nn.change import ChangeCurvature
from beltrami.nn.graph.aggregate import GraphAggregate
from beltrami.nn.graph.edges import read_edges
from beltrami.nn.layer import Layer, check_form
from beltrami.nn.linear import Linear
from beltrami.nn.pointwise import ACTIVATIONS, Activation

_FORMS: dict[type[Manifold], tuple[str, ...]] = {
    Lorentz: ("htc", "hybonet", "hgcn"),
    PoincareBall: ("hgcn",),
    Euclidean: ("htc", "hybonet", "hgcn"),
}

# The form of `Linear` and of `GraphAggregate` in each.
_LINEAR = {"htc": "htc", "hybonet": "hybonet", "hgcn": "mobius"}
_AGGREGATE = {"htc": "centroid", "hybonet": "centroid", "hgcn": "origin"}


class GraphConv(Layer):
    r"""`f(mean of the neighbours of linear(x))`, a graph convolution between points.

    | form    | linear    | mean     | activation             | from                         |
    |---------|-----------|----------|------------------------|------------------------------|
    | htc     | `htc`     | centroid | `f(s)` on space parts  | Hypformer, Yang et al. 2024  |
    | hybonet | `hybonet` | centroid | `f(s)` on space parts  | HyboNet, Chen et al. 2022    |
    | hgcn    | `mobius`  | origin   | `exp0'(f(log0(x)))`    | HGCN, Chami et al. 2019      |

    Linear forms are those of `Linear`, means those of `GraphAggregate`, with its treatment of
    weights, loops and isolated nodes; `aggregate` chooses another mean. HyboNet has its activation
    before the linear layer; here it is at the end of the layer before, which is the same in a row.

    The output may have another curvature, `manifold_out`, or be in the other model: "hgcn" keeps
    distances from the origin then (its exp0' is that of the output), the others scale space parts
    as `ChangeCurvature` does. As c → 0, and with `manifold=Euclidean()`, a form is `f(Â·(Wx + b))`
    with Â the normalised adjacency matrix: with `norm="symmetric"` and the mean "origin" the GCN of
    Kipf and Welling; hybonet keeps its gate.

    Args:
        in_features, out_features: coordinates of the input and output points.
        manifold: Lorentz, PoincareBall or Euclidean.
        manifold_out: of the output; `manifold` if None.
        form: see above; the first that the manifold has if None ("hgcn" alone in the ball).
        aggregate: "centroid", "origin" or "local"; that of the form if None.
        activation: a name that `Activation` knows, a function, or None for none.
        norm, self_loops: as in `GraphAggregate`.
        bias, time: as in `Linear`.

    Shapes: x (..., N, in), edge_index int64 (2, E), edge_weight (E,) to (..., N, out).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        manifold: Manifold,
        manifold_out: Manifold | None = None,
        form: str | None = None,
        aggregate: str | None = None,
        activation: str | Callable[[Tensor], Tensor] | None = None,
        norm: str = "mean",
        self_loops: bool = True,
        bias: bool = True,
        time: bool = True,
    ) -> None:
        super().__init__(manifold)
        self.form = check_form(form, _FORMS, manifold, f"GraphConv on {manifold!r}")
        self.linear = Linear(
            in_features,
            out_features,
            manifold=manifold,
            form=_LINEAR[self.form],
            bias=bias,
            time=time,
        )
        self.aggregate = GraphAggregate(
            manifold=manifold,
            form=_AGGREGATE[self.form] if aggregate is None else aggregate,
            norm=norm,
            self_loops=self_loops,
        )
        self.activation = None if activation is None else Activation(activation, manifold=manifold)
        self.change: ChangeCurvature | None = None
        if manifold_out is not None and manifold_out != manifold:
            self.change = ChangeCurvature(manifold=manifold, manifold_out=manifold_out)

    @property
    def manifold_out(self) -> Manifold:
        """The manifold of the output."""
        return self.manifold if self.change is None else self.change.manifold_out

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """(..., N, in_features) to (..., N, out_features)."""
        self.check_size(x, self.linear.in_features)
        loops = self.aggregate.self_loops
        edges = read_edges(x, edge_index, edge_weight, "GraphConv", self_loops=loops)
        y = self.aggregate.spread(self.linear(x), edges)
        if self.form == "hgcn":
            return self._through_origin(y)
        if self.activation is not None:
            y = self.activation(y)
        if self.change is not None:
            y = self.change(y)
        return y

    def _through_origin(self, y: Tensor) -> Tensor:
        """`exp0'(f(log0(y)))`: HGCN's activation between two curvatures."""
        if self.activation is None and self.change is None:
            return y
        v = self.manifold.log0(upcast(y))
        if self.activation is not None:
            f = self.activation.function
            v = ACTIVATIONS[f](v) if isinstance(f, str) else f(v)
        return lift0(v, self.manifold_out, y.dtype)

    def extra_repr(self) -> str:
        """Form and manifolds; the sizes are with the linear layer."""
        return f"form={self.form}, manifold={self.manifold!r}, manifold_out={self.manifold_out!r}"
