"""The settings of a classifier of levels, and its Euclidean twin of about the same size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from beltrami.models.parameters import match_widths


@dataclass(frozen=True)
class LevelConfig:
    """What the classifier is made of.

    Args:
        features: number of features of a node.
        classes: how many there are at each level.
        widths: coordinates after each linear layer; the last is the size of the embedding.
        geometry: "lorentz", "ball" or "euclidean".
        curvature: c at the start. learn_curvature: whether it is learned.
        head: "mlr" for hyperplanes, "distance" for one point a class.
        activation: after every layer but the last.
        dropout: of the coordinates before every layer.
    """

    features: int
    classes: tuple[int, ...]
    widths: tuple[int, ...] = (64, 16)
    geometry: Literal["lorentz", "ball", "euclidean"] = "lorentz"
    curvature: float = 1.0
    learn_curvature: bool = True
    head: Literal["mlr", "distance"] = "mlr"
    activation: str = "relu"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.features < 1:
            raise ValueError(f"features must be at least 1, got {self.features}")
        for name in ("classes", "widths"):
            values = getattr(self, name)
            if not values or min(values) < 1:
                raise ValueError(f"{name} must be positive and at least one, got {values}")
        for name, choices in (
            ("geometry", ("lorentz", "ball", "euclidean")),
            ("head", ("mlr", "distance")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be one of {', '.join(choices)}; got {getattr(self, name)!r}"
                )


def matched_twin(config: LevelConfig, count: Callable[[LevelConfig], int]) -> LevelConfig:
    """The same classifier in Euclidean space, with hidden widths that come closest in parameters.

    Args:
        config: of the hyperbolic model.
        count: parameters of the model of a config.
    """
    flat = replace(config, geometry="euclidean")
    *hidden, last = config.widths
    widths = match_widths(
        tuple(hidden),
        count(config),
        lambda chosen: count(replace(flat, widths=(*chosen, last))),
    )
    return replace(flat, widths=(*widths, last))
