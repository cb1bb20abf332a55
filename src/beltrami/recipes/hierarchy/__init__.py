"""Embed a taxonomy in hyperbolic and in flat space: `beltrami run hierarchy`.

`HierarchyEmbedding` is the same in Python, for one geometry.
"""

from typing import Any

__all__ = ["HierarchyEmbedding"]


def __getattr__(name: str) -> Any:
    """Load the training when it is asked for: the command line's help does without."""
    if name == "HierarchyEmbedding":
        from beltrami.recipes.hierarchy.embedding import HierarchyEmbedding

        return HierarchyEmbedding
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
