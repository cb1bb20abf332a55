"""Losses on points of a manifold: ranking by distance, and entailment cones."""

from beltrami.losses.entailment import (
    cone_manifolds,
    entailment_energy,
    entailment_loss,
    keep_outside,
    least_radius,
)
from beltrami.losses.grouped_ranking import grouped_ranking_loss
from beltrami.losses.ranking import ranking_loss

__all__ = [
    "cone_manifolds",
    "entailment_energy",
    "entailment_loss",
    "grouped_ranking_loss",
    "keep_outside",
    "least_radius",
    "ranking_loss",
]
