"""Embeddings of trees and taxonomies.

- `sarkar` places a tree without training, at any precision.
- `ConeEmbedding` has entailment cones, and `cone_loss` is what they learn by; `split_closure` makes
  the sets of pairs they are judged by.
"""

from beltrami.models.hierarchy.closure_split import ClosureSplit, corrupt_pairs, split_closure
from beltrami.models.hierarchy.cones import (
    ConeEmbedding,
    cone_loss,
    epoch_pairs,
    judge_cones,
)
from beltrami.models.hierarchy.sarkar import PrecisionWarning, SarkarEmbedding, lost_edges, sarkar
from beltrami.models.hierarchy.sarkar_bound import distortion_bound, edge_length_for
from beltrami.models.hierarchy.spherical_code import least_angle, spherical_code

__all__ = [
    "ClosureSplit",
    "ConeEmbedding",
    "PrecisionWarning",
    "SarkarEmbedding",
    "cone_loss",
    "corrupt_pairs",
    "distortion_bound",
    "edge_length_for",
    "epoch_pairs",
    "judge_cones",
    "least_angle",
    "lost_edges",
    "sarkar",
    "spherical_code",
    "split_closure",
]
