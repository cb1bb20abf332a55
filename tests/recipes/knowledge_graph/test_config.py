"""What the knowledge-graph recipe can be told, and what it says to nonsense."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from beltrami.data.triples import TripleError
from beltrami.recipes.knowledge_graph.config import KnowledgeGraphRunConfig
from beltrami.recipes.knowledge_graph.recipe import KnowledgeGraphRecipe


def test_the_defaults_are_accepted() -> None:
    KnowledgeGraphRunConfig().check()
    KnowledgeGraphRunConfig(objective="softmax").check()
    KnowledgeGraphRunConfig(objective="tails", pool=9, negatives=7.0).check()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"data": ""}, "--data is empty"),
        ({"epochs": 0}, "--epochs must be at least 1, got 0"),
        ({"batch": 0}, "--batch must be at least 1, got 0"),
        ({"pool": 0}, "--pool must be at least 1, got 0"),
        ({"validate_every": 0}, "--validate-every must be at least 1, got 0"),
        ({"negatives": math.nan}, "--negatives must be finite, got nan"),
        ({"objective": "softmax", "negatives": 7.0}, "--negatives 7 has no use with --objective s"),
        ({"objective": "softmax", "pool": 9}, "--pool 9 has no use with --objective softmax"),
        ({"curvature": 0.0}, "--curvature must be above 0.01, got 0"),
        ({"curvature_rate": -1.0}, "--curvature-rate must be at least 0, got -1"),
        ({"models": ()}, "--models is empty"),
        ({"models": ("RotH", "RotH")}, "--models must not repeat a value"),
        ({"dims": ()}, "--dims is empty"),
        ({"dims": (5,)}, "--dims must be even numbers"),
        ({"dims": (4, 4)}, "--dims must not repeat a value"),
        ({"learning_rates": ()}, "--learning-rates is empty"),
        ({"learning_rates": (0.1, 0.0)}, "--learning-rates must be"),
        ({"learning_rates": (0.1, 0.1)}, "--learning-rates must not repeat a value"),
        ({"seeds": 0}, "--seeds must be at least 1, got 0"),
    ],
    ids=str,
)
def test_bad_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        KnowledgeGraphRunConfig(**options).check()


@pytest.mark.parametrize(
    ("data", "name"), [("mammals", "mammals"), ("some/WN18RR/", "WN18RR"), ("/", "graph")]
)
def test_the_folder_is_named_after_the_data(data: str, name: str) -> None:
    folder = KnowledgeGraphRunConfig(data=data).folder
    assert folder.name == f"knowledge-graph-{name}"


def test_data_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="--data nowhere is not a folder, and none of mammals"):
        KnowledgeGraphRecipe(KnowledgeGraphRunConfig(data="nowhere"))


def test_data_that_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="beltrami data get small-kgs"):
        KnowledgeGraphRecipe(KnowledgeGraphRunConfig(data="umls"))


def test_a_folder_without_triples(tmp_path: Path) -> None:
    with pytest.raises(TripleError, match=r"has no train\.txt"):
        KnowledgeGraphRecipe(KnowledgeGraphRunConfig(data=str(tmp_path)))
