"""Manifolds as plain data, to be kept in a file beside points, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from beltrami.geometry.manifold import (
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Solvable,
    Sphere,
    Stereographic,
)

__all__ = ["describe", "from_description"]

_CURVED: dict[str, type[Any]] = {
    "lorentz": Lorentz,
    "poincare": PoincareBall,
    "solvable": Solvable,
    "sphere": Sphere,
    "stereographic": Stereographic,
}


def describe(manifold: Manifold) -> dict[str, Any]:
    """A manifold as JSON has it, with the curvatures of now.

    >>> describe(Lorentz(0.5))
    {'kind': 'lorentz', 'c': 0.5}
    """
    if isinstance(manifold, Euclidean):
        return {"kind": "euclidean"}
    if isinstance(manifold, Product):
        factors = [
            {**describe(block.manifold), "size": block.size, "count": block.count}
            for block in manifold.factors
        ]
        return {"kind": "product", "p": manifold.p, "factors": factors}
    for kind, cls in _CURVED.items():
        if type(manifold) is cls:
            name = "kappa" if kind == "stereographic" else "c"
            return {"kind": kind, name: _plain(getattr(manifold, name))}
    raise TypeError(f"{type(manifold).__name__} has no description; use a manifold of beltrami")


def from_description(description: Mapping[str, Any]) -> Manifold:
    """The manifold that `describe` described, with fixed curvatures.

    Raises:
        ValueError: what in the description is wrong.
    """
    try:
        kind = description["kind"]
        if kind == "euclidean":
            return Euclidean()
        if kind == "product":
            return Product(
                [(from_description(f), f["size"], f["count"]) for f in description["factors"]],
                p=description["p"],
            )
        c = description["kappa" if kind == "stereographic" else "c"]
        manifold: Manifold = _CURVED[kind](torch.tensor(c) if isinstance(c, list) else float(c))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{dict(description)} does not describe a manifold ({error!r})") from error
    return manifold


def _plain(c: float | Tensor) -> Any:
    if not isinstance(c, Tensor):
        return c
    return c.item() if c.numel() == 1 else c.detach().tolist()
