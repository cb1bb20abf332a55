"""Embed a taxonomy in hyperbolic and in flat space: `beltrami run hierarchy`.

`HierarchyEmbedding` is the same in Python, for one geometry.
"""

from beltrami.lazy import lazy

__all__ = ["HierarchyEmbedding"]

# The command line's help does without the training.
__getattr__, __dir__ = lazy(
    __name__, {"HierarchyEmbedding": "beltrami.recipes.hierarchy.embedding"}
)
