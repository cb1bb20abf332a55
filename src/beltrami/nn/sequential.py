"""Layers in a row, and what must hold in a model as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from beltrami.geometry.curvature import shares_curvatures
from beltrami.nn.layer import Layer


class Sequential(nn.Sequential):
    """`nn.Sequential` that checks, when it is built or changed, that neighbours' manifolds agree.

    Points are plain tensors and do not know their curvature, so a change of it can only be noticed
    here. Modules that are not layers of ours (an `nn.Identity`) are passed over: they are taken to
    work on coordinates and to stay on the manifold.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        check_chain(*self)

    @shares_curvatures
    def forward(self, input: Tensor) -> Any:
        """All layers, one after the other; learnable curvatures are evaluated once."""
        return super().forward(input)

    def append(self, module: nn.Module) -> Sequential:
        """Add a layer at the end, if it takes what the last one puts out."""
        check_chain(*self, module)
        super().append(module)
        return self

    def extend(self, sequential: Iterable[nn.Module]) -> Sequential:
        """Add layers at the end."""
        layers = list(sequential)
        check_chain(*self, *layers)
        for layer in layers:
            super().append(layer)
        return self

    def insert(self, index: int, module: nn.Module) -> Sequential:
        """Add a layer before the one at `index`."""
        layers = list(self)
        check_chain(*layers[:index], module, *layers[index:])
        super().insert(index, module)
        return self

    def __setitem__(self, index: int, module: nn.Module) -> None:
        layers = list(self)
        layers[index] = module
        check_chain(*layers)
        super().__setitem__(index, module)


def check_chain(*layers: nn.Module) -> None:
    """Raise `ValueError` if a layer puts out points of another manifold than the next one takes."""
    before: tuple[str, Layer] | None = None
    for name, layer in _leaves(layers):
        if before is not None and before[1].manifold_out != layer.manifold:
            raise ValueError(
                f"layer {before[0]} ({type(before[1]).__name__}) puts out points of "
                f"{before[1].manifold_out!r}, but layer {name} ({type(layer).__name__}) takes "
                f"points of {layer.manifold!r}: put ChangeCurvature, Lift or Lower between them, "
                "or give both the same manifold object"
            )
        before = name, layer


def _leaves(layers: Iterable[nn.Module], prefix: str = "") -> Iterator[tuple[str, Layer]]:
    """Our layers in the order they are called, those of sequences in sequences too."""
    for i, layer in enumerate(layers):
        if isinstance(layer, nn.Sequential):
            yield from _leaves(layer, f"{prefix}{i}.")
        elif isinstance(layer, Layer):
            yield f"{prefix}{i}", layer
