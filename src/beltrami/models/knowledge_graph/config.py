"""The settings of a knowledge-graph model, and the names that the literature gives to some."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Turn = Literal["rotation", "reflection", "attention"]
Geometry = Literal["hyperbolic", "euclidean"]

VARIANTS: dict[str, tuple[Turn, Geometry]] = {
    "RotE": ("rotation", "euclidean"),
    "RefE": ("reflection", "euclidean"),
    "AttE": ("attention", "euclidean"),
    "RotH": ("rotation", "hyperbolic"),
    "RefH": ("reflection", "hyperbolic"),
    "AttH": ("attention", "hyperbolic"),
}
"""The six models of Chami et al. (2020), arXiv 2005.00545."""


@dataclass(frozen=True)
class KnowledgeGraphConfig:
    """How queries are made and scored.

    Args:
        entities: how many there are.
        relations: how many there are, without reciprocals; the model has 2·relations.
        variant: one of `VARIANTS`.
        dim: width of an entity; even, since turns act on pairs of coordinates.
        curvature: c of every relation at the start (hyperbolic variants).
        learn_curvature: whether each relation learns its own c.
        curvature_bounds: the interval in which it does.
        order: "head" is the published query, turned head ⊕ relation; "relation" is
            relation ⊕ turned head, an isometry of the heads. The same in Euclidean space.
        pre_translation: a second translation of each relation, before the turn. Redundant in
            Euclidean space, where a twin still counts it.
        init_scale: standard deviation of entities and translations at the start.
        dropout: of the turned head's coordinates, while training.
    """

    entities: int
    relations: int
    variant: str = "RotH"
    dim: int = 32
    curvature: float = 1.0
    learn_curvature: bool = True
    curvature_bounds: tuple[float, float] = (0.01, 100.0)
    order: Literal["head", "relation"] = "head"
    pre_translation: bool = False
    init_scale: float = 1e-3
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("entities", "relations", "dim"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.dim % 2:
            raise ValueError(f"dim must be even (turns act on pairs of numbers), got {self.dim}")
        if self.variant not in VARIANTS:
            raise ValueError(f"variant must be one of {', '.join(VARIANTS)}; got {self.variant!r}")
        if self.order not in ("head", "relation"):
            raise ValueError(f'order must be "head" or "relation", got {self.order!r}')
        low, high = self.curvature_bounds
        if self.learn_curvature and not low < self.curvature < high:
            raise ValueError(
                f"curvature must lie strictly inside curvature_bounds ({low}, {high}), "
                f"got {self.curvature}"
            )
        if not 0 < self.init_scale < float("inf"):
            raise ValueError(f"init_scale must be positive and finite, got {self.init_scale}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")

    @property
    def turn(self) -> Turn:
        """How a relation turns its heads."""
        return VARIANTS[self.variant][0]

    @property
    def geometry(self) -> Geometry:
        """Where distances are measured."""
        return VARIANTS[self.variant][1]

    def twin(self) -> KnowledgeGraphConfig:
        """The same model in Euclidean space: all parameters but the curvatures, 2·relations."""
        return replace(self, variant=self.variant[:-1] + "E")
