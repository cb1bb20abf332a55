"""Graph neural networks on a manifold: node classification and link prediction, with twins."""

from beltrami.models.graph.config import GraphConfig, matched_twin
from beltrami.models.graph.decoder import FermiDirac
from beltrami.models.graph.model import GraphEncoder, LinkPredictor, NodeClassifier
from beltrami.models.graph.tasks import (
    evaluate_links,
    evaluate_nodes,
    link_prediction_loss,
    macro_f1,
    node_classification_loss,
)
from beltrami.models.parameters import count_parameters

__all__ = [
    "FermiDirac",
    "GraphConfig",
    "GraphEncoder",
    "LinkPredictor",
    "NodeClassifier",
    "count_parameters",
    "evaluate_links",
    "evaluate_nodes",
    "link_prediction_loss",
    "macro_f1",
    "matched_twin",
    "node_classification_loss",
]
