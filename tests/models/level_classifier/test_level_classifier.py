"""Classification level by level: the loss, twins of equal size, and a taxonomy that is learned."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from beltrami.data.graph_splits import split_nodes
from beltrami.data.hierarchy import Hierarchy
from beltrami.data.levels import level_labels
from beltrami.data.text_features import hashed_ngrams
from beltrami.models.level_classifier import (
    LevelClassifier,
    LevelConfig,
    evaluate_levels,
    level_loss,
    level_step,
    matched_twin,
    predict_levels,
    tasks,
)
from beltrami.models.parameters import count_parameters
from beltrami.optim import create_optimizer

CONFIG = LevelConfig(features=11, classes=(3, 7))


def count(config: LevelConfig) -> int:
    return count_parameters(lambda: LevelClassifier(config))


def test_loss_is_the_sum_of_levels_over_known_classes() -> None:
    scores = [torch.randn(4, 3), torch.randn(4, 2), torch.randn(4, 2)]
    targets = torch.tensor([[0, 1, -1], [2, -1, -1], [1, 0, -1], [0, -1, -1]])
    expected = F.cross_entropy(scores[0], targets[:, 0])
    expected = expected + F.cross_entropy(scores[1][[0, 2]], targets[[0, 2], 1])
    torch.testing.assert_close(level_loss(scores, targets), expected)
    with pytest.raises(ValueError, match="a column for each of the 2 levels, got 3"):
        level_loss(scores[:2], targets)


@pytest.mark.parametrize("head", ["mlr", "distance"])
@pytest.mark.parametrize(("features", "widths"), [(11, (64, 16)), (256, (32, 32, 8))])
def test_twins_have_as_many_parameters(head: str, features: int, widths: tuple[int, ...]) -> None:
    config = replace(CONFIG, features=features, widths=widths, head=head)
    twin = matched_twin(config, count)
    assert twin.geometry == "euclidean"
    assert count(twin) == pytest.approx(count(config), rel=0.01)


def taxonomy() -> Hierarchy:
    """Words whose beginnings say their family and whose endings say their kind."""
    families = ("ruf", "mol", "tan")
    kinds = ("ix", "ora", "um", "esk")
    labels, edges = ["root"], []
    for family in families:
        labels.append(family)
        edges.append((len(labels) - 1, 0))
        top = len(labels) - 1
        for kind in kinds:
            labels.append(f"{family}-{kind}")
            edges.append((len(labels) - 1, top))
            middle = len(labels) - 1
            for i in range(12):
                labels.append(f"{family}{chr(97 + i)}{chr(110 + i)}{kind}")
                edges.append((len(labels) - 1, middle))
    return Hierarchy("words", tuple(labels), torch.tensor(edges))


@pytest.mark.parametrize("geometry", ["lorentz", "ball", "euclidean"])
def test_a_taxonomy_is_learned_from_names(geometry: str) -> None:
    words = taxonomy()
    labels = level_labels(words)
    assert labels.sizes == (3, 12)
    features = hashed_ngrams([words.labels[i] for i in labels.nodes.tolist()], 128)
    split = split_nodes(labels.targets[:, 1], seed=0, shares=(0.5, 0.0, 0.5))
    torch.manual_seed(0)
    config = LevelConfig(128, labels.sizes, widths=(24, 8), geometry=geometry)
    model = LevelClassifier(config)
    optimizer = create_optimizer(model, "adamw", lr=0.02)
    train = features[split.train], labels.targets[split.train]
    losses = [level_step(model, *train, optimizer) for _ in range(60)]
    assert losses[-1] < 0.4 * losses[0]
    scores = evaluate_levels(model, features[split.test], labels.targets[split.test])
    assert scores["accuracy_level_0"] > 0.8
    assert scores["accuracy_level_1"] > 0.5
    levels = (scores["accuracy_level_0"] + scores["accuracy_level_1"]) / 2
    assert scores["micro_f1"] == pytest.approx(levels)  # every sample has a class at both


def test_rows_are_predicted_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, features = LevelClassifier(replace(CONFIG, dropout=0.5)), torch.randn(10, 11)
    model.train()  # dropout has to be off all the same
    expected = predict_levels(model, features)
    assert expected.shape == (10, 2)
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    monkeypatch.setattr(tasks, "ROWS_AT_ONCE", 4)
    assert torch.equal(predict_levels(model, features), expected)
    assert sizes == [4, 4, 2]
    with torch.no_grad():
        scores = model(features)
    assert torch.equal(expected, torch.stack([level.argmax(-1) for level in scores], dim=1))


def test_classes_below_a_leaf_are_wrong() -> None:
    torch.manual_seed(0)
    model, features = LevelClassifier(CONFIG), torch.randn(6, 11)
    targets = predict_levels(model, features)
    assert evaluate_levels(model, features, targets)["micro_f1"] == 1
    targets[:3, 1] = -1
    found = evaluate_levels(model, features, targets)
    assert found["accuracy_level_1"] == found["micro_recall"] == 1
    assert found["micro_precision"] == pytest.approx(9 / 12)


def test_bad_config() -> None:
    for change, says in (
        ({"features": 0}, "features must be at least 1"),
        ({"classes": ()}, "classes must be positive"),
        ({"widths": (8, 0)}, "widths must be positive"),
        ({"geometry": "flat"}, "geometry must be one of lorentz, ball, euclidean; got 'flat'"),
        ({"head": "linear"}, "head must be one of mlr, distance; got 'linear'"),
    ):
        with pytest.raises(ValueError, match=says):
            replace(CONFIG, **change)
