"""Systems made of the layers, losses and geometry below; one folder a system.

Importing this package imports none of them; each loads on first use.
"""

from beltrami.lazy import lazy

_MODELS = (
    "graph",
    "helm",
    "hierarchy",
    "knowledge_graph",
    "level_classifier",
    "pretrained",
    "superposition",
)

__getattr__, __dir__ = lazy(__name__, {name: f"{__name__}.{name}" for name in _MODELS})
