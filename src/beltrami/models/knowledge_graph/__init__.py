"""Link prediction in knowledge graphs: RotH, RefH, AttH and their Euclidean twins."""

from beltrami.models.knowledge_graph.config import VARIANTS, KnowledgeGraphConfig
from beltrami.models.knowledge_graph.evaluate import evaluate, rank_triples, relation_metrics
from beltrami.models.knowledge_graph.model import KnowledgeGraphModel
from beltrami.models.knowledge_graph.objective import cubic_penalty, sampled_loss

__all__ = [
    "VARIANTS",
    "KnowledgeGraphConfig",
    "KnowledgeGraphModel",
    "cubic_penalty",
    "evaluate",
    "rank_triples",
    "relation_metrics",
    "sampled_loss",
]
