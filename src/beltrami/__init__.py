"""beltrami: hyperbolic foundation models for PyTorch.

Importing the package loads torch and nothing else heavy; each subpackage loads on first use:
`import beltrami; beltrami.nn.Linear`.
"""

from typing import TYPE_CHECKING

from beltrami.geometry.checks import debug
from beltrami.lazy import lazy

__version__ = "0.1.0"
__all__ = ["HierarchyEmbedding", "__version__", "debug", "load_run"]

if TYPE_CHECKING:
    from beltrami.embeddings import load_run
    from beltrami.recipes.hierarchy.embedding import HierarchyEmbedding

_PACKAGES = """analysis cli data diagnosis embeddings geometry kernels losses models nn optim peft
    recipes report train"""
_NAMES = {
    "HierarchyEmbedding": "beltrami.recipes.hierarchy.embedding",
    "load_run": "beltrami.embeddings",
}

__getattr__, __dir__ = lazy(
    __name__, {**{name: f"beltrami.{name}" for name in _PACKAGES.split()}, **_NAMES}
)
