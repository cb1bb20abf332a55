"""Systems made of the layers, losses and geometry below; one folder a system.

Importing this package imports none of them; each loads on first use.
"""

from beltrami.lazy import lazy

__getattr__, __dir__ = lazy(
    __name__,
    {
        "graph": "beltrami.models.graph",
        "hierarchy": "beltrami.models.hierarchy",
        "knowledge_graph": "beltrami.models.knowledge_graph",
        "level_classifier": "beltrami.models.level_classifier",
        "pretrained": "beltrami.models.pretrained",
        "superposition": "beltrami.models.superposition",
    },
)
