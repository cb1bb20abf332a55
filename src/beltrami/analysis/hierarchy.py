"""The measures of hierarchies in one place: what recipes import.

    from beltrami.analysis import hierarchy
    hierarchy.reconstruct_points(points, Lorentz(1.0), taxonomy.closure()).map

`ranking` has mean rank and MAP, `distortion` distances against hops, `correlation` depth against
radius, `tree_errors` and `overlap` wrong classes and labels, `link_ranks` filtered ranks in
knowledge graphs, `edges` yes-or-no answers for pairs.
"""

from beltrami.analysis.correlation import (
    DepthCorrelation,
    depth_correlation,
    kendall_tau,
    radii,
    spearman,
)
from beltrami.analysis.distortion import (
    Distortion,
    Hops,
    average_distortion,
    distortion,
    distortion_of_points,
    worst_distortion,
)
from beltrami.analysis.edges import (
    EdgeScores,
    average_precision,
    best_threshold,
    classify_edges,
    edge_scores,
    roc_auc,
)
from beltrami.analysis.link_ranks import LinkScores, filtered_ranks, mrr_hits
from beltrami.analysis.overlap import (
    LevelScores,
    SetScores,
    accuracy_per_level,
    level_scores,
    set_scores,
)
from beltrami.analysis.ranking import (
    Reconstruction,
    mean_average_precision,
    reconstruct_points,
    reconstruction,
)
from beltrami.analysis.results import Result
from beltrami.analysis.rows import Distances, point_distances, point_order
from beltrami.analysis.tree_errors import ClassTables, TreeErrors, class_tables, tree_errors

__all__ = [
    "ClassTables",
    "DepthCorrelation",
    "Distances",
    "Distortion",
    "EdgeScores",
    "Hops",
    "LevelScores",
    "LinkScores",
    "Reconstruction",
    "Result",
    "SetScores",
    "TreeErrors",
    "accuracy_per_level",
    "average_distortion",
    "average_precision",
    "best_threshold",
    "class_tables",
    "classify_edges",
    "depth_correlation",
    "distortion",
    "distortion_of_points",
    "edge_scores",
    "filtered_ranks",
    "kendall_tau",
    "level_scores",
    "mean_average_precision",
    "mrr_hits",
    "point_distances",
    "point_order",
    "radii",
    "reconstruct_points",
    "reconstruction",
    "roc_auc",
    "set_scores",
    "spearman",
    "tree_errors",
    "worst_distortion",
]
