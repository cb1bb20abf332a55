"""The recipes there are: their options, and where the rest of each is found when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from beltrami.recipes.cones.config import ConesConfig
from beltrami.recipes.config import RunConfig
from beltrami.recipes.graph.config import GraphRunConfig
from beltrami.recipes.helm.config import HelmRunConfig
from beltrami.recipes.hierarchy.config import HierarchyConfig
from beltrami.recipes.hyplora.config import HypLoraRunConfig
from beltrami.recipes.knowledge_graph.config import KnowledgeGraphRunConfig
from beltrami.recipes.levels.config import LevelsConfig
from beltrami.recipes.superposition.config import SuperpositionConfig

if TYPE_CHECKING:
    from beltrami.recipes.recipe import Recipe

# Configs are light; the classes behind them load torch and all that they need.
RECIPES: dict[type[RunConfig], str] = {
    HierarchyConfig: "beltrami.recipes.hierarchy.recipe:HierarchyRecipe",
    GraphRunConfig: "beltrami.recipes.graph.recipe:GraphRecipe",
    LevelsConfig: "beltrami.recipes.levels.recipe:LevelsRecipe",
    ConesConfig: "beltrami.recipes.cones.recipe:ConesRecipe",
    KnowledgeGraphRunConfig: "beltrami.recipes.knowledge_graph.recipe:KnowledgeGraphRecipe",
    HelmRunConfig: "beltrami.recipes.helm.recipe:HelmRecipe",
    HypLoraRunConfig: "beltrami.recipes.hyplora.recipe:HypLoraRecipe",
    SuperpositionConfig: "beltrami.recipes.superposition.recipe:SuperpositionRecipe",
}


def create(config: RunConfig) -> Recipe[Any, Any]:
    """The recipe of a config; a `ValueError` says what the user got wrong."""
    for kind, place in RECIPES.items():
        if isinstance(config, kind):
            module, name = place.split(":")
            recipe: Recipe[Any, Any] = getattr(import_module(module), name)(config)
            return recipe
    raise TypeError(f"no recipe has the config {type(config).__name__}")
