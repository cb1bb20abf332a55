"""Measures of embeddings, graphs and models.

    from beltrami.analysis import delta_hyperbolicity, reconstruct_points

Each measure has a file of its own, whose head has its formulas; `beltrami.analysis.superposition`
has those of features and losses over widths.
"""

from beltrami.analysis.correlation import (
    DepthCorrelation,
    depth_correlation,
    kendall_tau,
    radii,
    spearman,
)
from beltrami.analysis.curvature_fit import CurvatureFit, fit_curvature
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
from beltrami.analysis.gromov import Delta, curvature_estimate, delta_hyperbolicity
from beltrami.analysis.gromov_search import Gap, largest_gap
from beltrami.analysis.hmds import hmds
from beltrami.analysis.horopca import horopca
from beltrami.analysis.hubness import Hubness, hubness
from beltrami.analysis.intervals import Interval, mean_interval
from beltrami.analysis.intrinsic_dimension import IntrinsicDimension, intrinsic_dimension
from beltrami.analysis.isotropy import Isotropy, isotropy
from beltrami.analysis.link_ranks import LinkScores, filtered_ranks, mrr_hits
from beltrami.analysis.lowering import Lowered
from beltrami.analysis.mixed_curvature import ProductFit, ProductSuggestion, suggest_product
from beltrami.analysis.neighbours import nearest_points
from beltrami.analysis.null_models import (
    gaussian_at_radii,
    gaussian_like,
    hop_distances,
    random_graph_distances,
    sphere_distances,
    tree_distances,
)
from beltrami.analysis.overlap import (
    LevelScores,
    SetScores,
    accuracy_per_level,
    level_scores,
    set_scores,
)
from beltrami.analysis.power_law import PowerLaw, power_law_fit
from beltrami.analysis.ranking import (
    Reconstruction,
    mean_average_precision,
    reconstruct_points,
    reconstruction,
)
from beltrami.analysis.results import Result
from beltrami.analysis.rows import Distances, point_distances, point_order
from beltrami.analysis.saved_memory import saved_bytes
from beltrami.analysis.tangent_pca import tangent_pca
from beltrami.analysis.tree_errors import ClassTables, TreeErrors, class_tables, tree_errors

__all__ = [
    "ClassTables",
    "CurvatureFit",
    "Delta",
    "DepthCorrelation",
    "Distances",
    "Distortion",
    "EdgeScores",
    "Gap",
    "Hops",
    "Hubness",
    "Interval",
    "IntrinsicDimension",
    "Isotropy",
    "LevelScores",
    "LinkScores",
    "Lowered",
    "PowerLaw",
    "ProductFit",
    "ProductSuggestion",
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
    "curvature_estimate",
    "delta_hyperbolicity",
    "depth_correlation",
    "distortion",
    "distortion_of_points",
    "edge_scores",
    "filtered_ranks",
    "fit_curvature",
    "gaussian_at_radii",
    "gaussian_like",
    "hmds",
    "hop_distances",
    "horopca",
    "hubness",
    "intrinsic_dimension",
    "isotropy",
    "kendall_tau",
    "largest_gap",
    "level_scores",
    "mean_average_precision",
    "mean_interval",
    "mrr_hits",
    "nearest_points",
    "point_distances",
    "point_order",
    "power_law_fit",
    "radii",
    "random_graph_distances",
    "reconstruct_points",
    "reconstruction",
    "roc_auc",
    "saved_bytes",
    "set_scores",
    "spearman",
    "sphere_distances",
    "suggest_product",
    "tangent_pca",
    "tree_distances",
    "tree_errors",
    "worst_distortion",
]
