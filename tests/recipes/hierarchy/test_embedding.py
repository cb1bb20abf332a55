from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from beltrami.data import Hierarchy, load_hierarchy
from beltrami.embeddings import Embedding
from beltrami.geometry import Euclidean, Lorentz
from beltrami.recipes.hierarchy import HierarchyEmbedding

from .small import binary_tree

SMALL: dict[str, Any] = {"dim": 2, "epochs": 60, "batch": 4, "pool": 15, "learning_rates": (0.3,)}
PAIRS = [(f"n{i}", f"n{(i - 1) // 2}") for i in range(1, 15)]


@pytest.fixture(scope="module")
def model() -> HierarchyEmbedding:
    return HierarchyEmbedding(**SMALL).fit(PAIRS)


def test_pairs_a_file_and_a_hierarchy_give_the_same(
    model: HierarchyEmbedding, tmp_path: Path
) -> None:
    path = binary_tree(tmp_path / "tree.tsv")
    hierarchy = load_hierarchy(path)
    assert isinstance(hierarchy, Hierarchy)
    for taxonomy in (path, str(path), hierarchy):
        other = HierarchyEmbedding(**SMALL).fit(taxonomy)
        assert other.labels_ == model.labels_
        assert torch.equal(other.points_, model.points_)


def test_a_tree_is_embedded_well(model: HierarchyEmbedding) -> None:
    assert model.map_ == 1.0
    assert model.manifold_ == Lorentz(1.0)
    assert {n.label for n in model.nearest("n14", 3)} == {"n0", "n2", "n6"}


def test_known_labels_are_transformed(model: HierarchyEmbedding) -> None:
    points = model.transform(["n3", "n0", "n3"])
    assert torch.equal(points, torch.stack([model.embedding_[n] for n in ("n3", "n0", "n3")]))
    assert torch.equal(HierarchyEmbedding(**SMALL).fit_transform(PAIRS), model.points_)
    with pytest.raises(ValueError, match="has no node labelled 'x'"):
        model.transform(["x"])
    with pytest.raises(TypeError, match="must be a list of labels"):
        model.transform("n3")


def test_the_rate_of_the_highest_map_stays() -> None:
    options = {**SMALL, "geometry": "euclidean", "epochs": 20}
    both = HierarchyEmbedding(**{**options, "learning_rates": (1e-6, 0.3)}).fit(PAIRS)
    assert both.learning_rate_ == 0.3
    assert both.manifold_ == Euclidean()
    assert both.map_ > HierarchyEmbedding(**{**options, "learning_rates": (1e-6,)}).fit(PAIRS).map_


def test_a_saved_model_comes_back(model: HierarchyEmbedding, tmp_path: Path) -> None:
    back = HierarchyEmbedding.load(model.save(tmp_path / "tree.safetensors"))
    assert back.get_params() == model.get_params()
    assert back.nearest("n14") == model.nearest("n14")
    for name in ("map_", "mean_rank_", "learning_rate_", "history_"):
        assert getattr(back, name) == getattr(model, name)
    plain = tmp_path / "plain.safetensors"
    Embedding(model.labels_, model.points_, model.manifold_).save(plain)
    with pytest.raises(ValueError, match=r"use Embedding\.load"):
        HierarchyEmbedding.load(plain)


def test_arguments_can_be_read_and_set() -> None:
    model = HierarchyEmbedding(dim=3).set_params(epochs=5)
    assert (model.get_params()["dim"], model.epochs) == (3, 5)
    with pytest.raises(ValueError, match="'depth' is not an argument"):
        model.set_params(depth=3)


@pytest.mark.parametrize(
    ("options", "taxonomy", "message"),
    [
        ({"dim": 1}, PAIRS, "^dim must be at least 2"),
        ({"learning_rates": ()}, PAIRS, "^learning_rates is empty"),
        ({"device": "tpu"}, PAIRS, "^device must be one of"),
        ({"geometry": "sarkar"}, PAIRS, "geometry must be one of"),
        ({"epochs": 0}, PAIRS, "^epochs must be at least 1"),
        ({}, [("a", "b")], "at least 4 are needed"),
        ({}, [("a", "b"), ("b", "a")], "pairs 1, 2: the parents form a cycle"),
        ({}, ["ab"], "must be"),
        ({}, "nosuch.csv", "neither a file nor"),
    ],
)
def test_bad_input_is_named(options: dict[str, Any], taxonomy: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HierarchyEmbedding(**options).fit(taxonomy)


def test_one_rate_may_diverge() -> None:
    options = {**SMALL, "geometry": "euclidean", "epochs": 5, "max_step": 1e300}
    model = HierarchyEmbedding(**{**options, "learning_rates": (1e308, 0.1)}).fit(PAIRS)
    assert model.learning_rate_ == 0.1
    with pytest.raises(ValueError, match="smaller learning rate"):
        HierarchyEmbedding(**{**options, "learning_rates": (1e308,)}).fit(PAIRS)


def test_what_is_not_a_taxonomy_is_named() -> None:
    with pytest.raises(TypeError, match=r"taxonomy must be a file, .* got int"):
        HierarchyEmbedding().fit(3)  # type: ignore[arg-type]


def test_points_before_fit_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="call fit"):
        HierarchyEmbedding().points_  # noqa: B018
