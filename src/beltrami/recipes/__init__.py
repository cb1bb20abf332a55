"""Runnable experiments: a hyperbolic system and its Euclidean twin, measured side by side."""

from beltrami.lazy import lazy

__getattr__, __dir__ = lazy(
    __name__,
    {
        "RECIPES": "beltrami.recipes.registry",
        "Recipe": "beltrami.recipes.recipe",
        "RunConfig": "beltrami.recipes.config",
        "create": "beltrami.recipes.registry",
        "run": "beltrami.recipes.runner",
    },
)
