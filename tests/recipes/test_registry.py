from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from inspect import getdoc

import pytest

from beltrami.recipes.config import RunConfig
from beltrami.recipes.recipe import Recipe
from beltrami.recipes.registry import RECIPES, create
from tests.recipes.tiny import TinyConfig, TinyRecipe


@pytest.mark.parametrize("kind", RECIPES, ids=lambda kind: kind.recipe)
def test_every_recipe_is_what_the_framework_needs(kind: type[RunConfig]) -> None:
    module, name = RECIPES[kind].split(":")
    recipe = getattr(import_module(module), name)
    assert issubclass(recipe, Recipe)
    assert recipe.name == kind.recipe
    if isinstance(recipe.metrics, tuple):  # else they depend on the config
        keys = [metric.key for metric in recipe.metrics]
        assert len(set(keys)) == len(keys)
        assert recipe.chosen_by in keys
        assert recipe.metrics[0].better is not None  # it is the one that `beltrami runs` shows
    kind().check()
    first = (getdoc(kind) or "").split("\n\n")[0]
    assert "\n" not in first, "the list of recipes shows the first line"
    assert first.endswith(".")


def test_names_are_unique() -> None:
    names = [kind.recipe for kind in RECIPES]
    assert len(set(names)) == len(names)


def test_the_list_of_recipes_loads_none() -> None:
    code = (
        "import sys, beltrami; before = set(sys.modules); import beltrami.cli.run;"
        "new = {m for m in set(sys.modules) - before};"
        "print(*sorted(m for m in new if m.endswith(('.recipe', '.runner')) or "
        "m.split('.')[0] in ('safetensors', 'transformers', 'tensorboard', 'scipy', 'rich')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() in ([], ["rich"])


def test_create(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, TinyConfig, "tests.recipes.tiny:TinyRecipe")
    config = TinyConfig()
    recipe = create(config)
    assert isinstance(recipe, TinyRecipe)
    assert recipe.config is config
    with pytest.raises(LookupError, match="recipe tiny has no metric 'map', only error, loss"):
        recipe.metric("map")


def test_create_without_a_recipe() -> None:
    with pytest.raises(TypeError, match="no recipe has the config TinyConfig"):
        create(TinyConfig())
