"""Layers in a row, and what must hold in a model as a whole."""

from __future__ import annotations

from torch import nn

from beltrami.geometry import Curvature, Manifold, Product
from beltrami.nn.layer import Layer


class Sequential(nn.Sequential):
    """`nn.Sequential` that checks, when it is built, that each layer's manifold is the next one's.

    Points are plain tensors and do not know their curvature, so a change of it can only be noticed
    here. Modules that are not layers of ours (an `nn.Identity`) are passed over: they are taken to
    work on coordinates and to stay on the manifold.
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        check_chain(*layers)


def check_chain(*layers: nn.Module) -> None:
    """Raise `ValueError` if a layer puts out points of another manifold than the next one takes."""
    before: tuple[int, Layer] | None = None
    for i, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            continue
        if before is not None and before[1].manifold_out != layer.manifold:
            raise ValueError(
                f"layer {before[0]} ({type(before[1]).__name__}) puts out points of "
                f"{before[1].manifold_out!r}, but layer {i} ({type(layer).__name__}) takes points "
                f"of {layer.manifold!r}: put ChangeCurvature, Lift or Lower between them, or give "
                "both the same manifold object"
            )
        before = i, layer


def check_model(model: nn.Module) -> None:
    """Raise `ValueError` if a layer's learnable `Curvature` is not a submodule of the model.

    A manifold is a plain object, so a curvature that no module registers is neither trained, nor
    saved, nor moved to another device. Register it once: `self.curvature = Curvature(1.0)`.
    """
    registered = {id(module) for module in model.modules() if isinstance(module, Curvature)}
    for name, module in model.named_modules():
        if not isinstance(module, Layer):
            continue
        for manifold in (module.manifold, module.manifold_out, *module.manifold_of.values()):
            for curvature in _curvatures(manifold):
                if curvature.learnable and id(curvature) not in registered:
                    raise ValueError(
                        f"{name or type(module).__name__} works on {manifold!r}, whose Curvature "
                        "no module of the model has registered, so it is not trained, saved or "
                        "moved: set it as an attribute of the model, once"
                    )


def _curvatures(manifold: Manifold) -> list[Curvature]:
    if isinstance(manifold, Product):
        return [c for block in manifold.factors for c in _curvatures(block.manifold)]
    given = getattr(manifold, "curvature", None)
    return [given] if isinstance(given, Curvature) else []
