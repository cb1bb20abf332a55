from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.analysis import accuracy_per_level, level_scores, set_scores


def f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def share(part: int, whole: int, other: int) -> float:
    return part / whole if whole else float(other == 0)


@settings(max_examples=50)
@given(st.integers(1, 5), st.integers(1, 4), st.data())
def test_sets_agree_with_counting(samples: int, elements: int, data: st.DataObject) -> None:
    bits = st.lists(st.booleans(), min_size=samples * elements, max_size=samples * elements)
    p, t = (torch.tensor(data.draw(bits)).view(samples, elements) for _ in range(2))
    sets = [
        ({i for i in range(elements) if a[i]}, {i for i in range(elements) if b[i]})
        for a, b in zip(p.tolist(), t.tolist(), strict=True)
    ]
    found = set_scores(p, t)
    precision = [share(len(a & b), len(a), len(b)) for a, b in sets]
    recall = [share(len(a & b), len(b), len(a)) for a, b in sets]
    assert found.precision == pytest.approx(sum(precision) / samples)
    assert found.recall == pytest.approx(sum(recall) / samples)
    assert found.f1 == pytest.approx(sum(map(f1, precision, recall)) / samples)
    jaccard = [share(len(a & b), len(a | b), len(b)) for a, b in sets]
    assert found.jaccard == pytest.approx(sum(jaccard) / samples)
    common, said, true = (
        sum(map(len, group))
        for group in ([a & b for a, b in sets], [a for a, _ in sets], [b for _, b in sets])
    )
    micro = share(common, said, true), share(common, true, said)
    assert (found.micro_precision, found.micro_recall) == pytest.approx(micro)
    assert found.micro_f1 == pytest.approx(f1(*micro))


def test_levels_by_hand() -> None:
    # order, family, genus; -1: the target has no genus, or the prediction stops before it; the 7 is
    # predicted below the target's depth
    predicted = torch.tensor([[0, 1, 2], [0, 1, 5], [0, 3, -1], [1, 0, 7]])
    target = torch.tensor([[0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1, -1]])
    found = level_scores(predicted, target)
    assert found.accuracy == pytest.approx((3 / 4, 2 / 4, 1 / 3))
    assert accuracy_per_level(predicted, target) == found.accuracy
    assert found.exact == pytest.approx(1 / 4)
    assert found.micro_precision == pytest.approx(6 / 11)
    assert found.micro_recall == pytest.approx(6 / 11)
    assert found.micro_f1 == pytest.approx(2 * 6 / 22)
    assert found.precision == pytest.approx((1 + 2 / 3 + 1 / 2 + 0) / 4)
    assert found.recall == pytest.approx((1 + 2 / 3 + 1 / 3 + 0) / 4)
    as_dict = found.as_dict()
    assert as_dict["accuracy_level_1"] == pytest.approx(2 / 4)
    assert all(type(value) is float for value in as_dict.values())


@settings(max_examples=50)
@given(st.integers(1, 5), st.integers(1, 4), st.data())
def test_levels_are_sets_of_levels_and_labels(n: int, levels: int, data: st.DataObject) -> None:
    labels = st.lists(st.integers(-1, 2), min_size=n * levels, max_size=n * levels)
    p, t = (torch.tensor(data.draw(labels)).view(n, levels) for _ in range(2))
    one_hot = [torch.nn.functional.one_hot(x + 1, 4)[..., 1:].flatten(1).bool() for x in (p, t)]
    found, sets = level_scores(p, t).as_dict(), set_scores(*one_hot).as_dict()
    assert {key: found[key] for key in sets} == pytest.approx(sets)


def test_predictions_below_the_true_depth_cost_precision() -> None:
    target = torch.tensor([[0, 1, 2], [0, -1, -1]])
    right = level_scores(target, target)
    deeper = level_scores(torch.tensor([[0, 1, 2], [0, 3, 4]]), target)
    assert right.micro_f1 == right.f1 == 1
    assert deeper.accuracy == right.accuracy
    assert deeper.exact == deeper.micro_recall == 1
    assert deeper.micro_precision == pytest.approx(4 / 6)
    assert deeper.micro_f1 == pytest.approx(8 / 10)
    assert deeper.jaccard == pytest.approx((1 + 1 / 3) / 2)


def test_one_level_is_plain_classification() -> None:
    p, t = torch.randint(3, (50, 1)), torch.randint(3, (50, 1))
    found = level_scores(p, t)
    accuracy = (p == t).double().mean().item()
    assert found.f1 == found.exact == accuracy
    assert found.micro_f1 == pytest.approx(accuracy)
    assert found.accuracy == (pytest.approx(accuracy),)


def test_a_level_without_labels_has_no_accuracy() -> None:
    accuracy = accuracy_per_level(torch.tensor([[0, 1]]), torch.tensor([[0, -1]]))
    assert accuracy[0] == 1
    assert math.isnan(accuracy[1])


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="predicted must be booleans"):
        set_scores(torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="must have the same shape"):
        level_scores(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(TypeError, match="target must be integers"):
        level_scores(torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="are empty"):
        level_scores(torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2, dtype=torch.int64))
