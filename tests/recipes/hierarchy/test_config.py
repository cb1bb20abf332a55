"""What the hierarchy recipe can be told, and what it says to nonsense."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beltrami.data.hierarchy import HierarchyError
from beltrami.recipes.hierarchy.config import HierarchyConfig
from beltrami.recipes.hierarchy.recipe import HierarchyRecipe


def test_the_defaults_are_accepted() -> None:
    HierarchyConfig().check()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"data": ""}, "--data is empty"),
        ({"epochs": 0}, "--epochs must be at least 1, got 0"),
        ({"batch": 0}, "--batch must be at least 1, got 0"),
        ({"pool": -3}, "--pool must be at least 1, got -3"),
        ({"negatives": 0.0}, "--negatives must be above 0, got 0"),
        ({"negatives": math.inf}, "--negatives must be finite, got inf"),
        ({"max_step": math.nan}, "--max-step must be finite, got nan"),
        ({"burn_in": 1.0}, "--burn-in must be below 1, got 1"),
        ({"burn_in": -0.1}, "--burn-in must be at least 0, got -0.1"),
        ({"burn_in": math.nan}, "--burn-in must be finite, got nan"),
        ({"models": ()}, "--models is empty"),
        ({"models": ("lorentz", "lorentz")}, "--models must not repeat a value"),
        ({"learning_rates": ()}, "--learning-rates is empty"),
        ({"learning_rates": (0.1, -1.0)}, "--learning-rates must be"),
        ({"learning_rates": (math.nan,)}, "--learning-rates must be"),
        ({"learning_rates": (0.1, 0.1)}, "--learning-rates must not repeat a value"),
        ({"dims": ()}, "--dims is empty"),
        ({"dims": (1, 5)}, "--dims must be at least 2, got 1"),
        ({"dims": (5, 5)}, "--dims must not repeat a value"),
        ({"seeds": 0}, "--seeds must be at least 1, got 0"),
    ],
    ids=str,
)
def test_bad_options(options: dict[str, Any], text: str) -> None:
    config = replace(HierarchyConfig(), **options)
    with pytest.raises(ValueError, match=text):
        config.check()
    with pytest.raises(ValueError, match=text):
        HierarchyRecipe(config)  # before any data is looked for


@pytest.mark.parametrize(
    ("data", "root", "name"),
    [
        ("wordnet-mammals", None, "wordnet-mammals"),
        ("wordnet-mammals", "dog.n.01", "wordnet-mammals-dog.n.01"),
        ("folder/My file.tsv", None, "My_file"),
        ("../../etc/passwd", None, "passwd"),
        ("carnivores", "a/../b", "carnivores-a_.._b"),
    ],
)
def test_the_folder_is_named_after_the_data(data: str, root: str | None, name: str) -> None:
    config = HierarchyConfig(data=data, root=root)
    assert config.folder == Path("runs") / f"hierarchy-{name}"


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ("child\tparent\nb\ta\nc\ta\n", "has 3 nodes; at least 4 are needed"),
        ("child\tparent\na\tb\nb\tc\nc\ta\n", "cycle"),
        ("", "empty"),
    ],
)
def test_bad_data(rows: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "edges.tsv"
    path.write_text(rows)
    with pytest.raises(ValueError, match=text):
        HierarchyRecipe(HierarchyConfig(data=str(path)))


def test_data_and_roots_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="wordnet-mammal"):
        HierarchyRecipe(HierarchyConfig(data="wordnet-mamals"))
    with pytest.raises(HierarchyError, match="carnivores has no node labelled 'unicorn'"):
        HierarchyRecipe(HierarchyConfig(data="carnivores", root="unicorn"))


def test_batches_and_pools_grow_with_the_data() -> None:
    config = HierarchyConfig()
    assert [config.batch_of(n) for n in (4, 1180, 82_115)] == [1, 295, 6_537]
    assert config.batch_of(2_600_000) * config.pool_of(2_600_000) <= 1 << 27
    assert [config.pool_of(n) for n in (4, 1180, 82_115)] == [4, 512, 20_529]
    config = HierarchyConfig(batch=7, pool=9)
    assert config.batch_of(1180) == 7
    assert [config.pool_of(n) for n in (4, 1180)] == [4, 9]
