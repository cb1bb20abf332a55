from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.analysis import (
    average_precision,
    best_threshold,
    classify_edges,
    edge_scores,
    roc_auc,
)

SAMPLES = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=25).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


def f1_at(rows: list[tuple[float, bool]], threshold: float) -> float:
    hits = sum(label for score, label in rows if score >= threshold)
    called = sum(score >= threshold for score, _ in rows)
    edges = sum(label for _, label in rows)
    return 2 * hits / (called + edges)


@settings(max_examples=50)
@given(SAMPLES)
def test_measures_agree_with_their_definitions(rows: list[tuple[int, bool]]) -> None:
    scores = torch.tensor([score / 2 for score, _ in rows])
    labels = torch.tensor([label for _, label in rows])
    rows = list(zip(scores.tolist(), labels.tolist(), strict=True))
    edges = [score for score, label in rows if label]
    others = [score for score, label in rows if not label]
    wins = sum((a > b) + (a == b) / 2 for a in edges for b in others)
    assert roc_auc(scores, labels) == pytest.approx(wins / len(edges) / len(others))
    u = scipy.stats.mannwhitneyu(edges, others, method="asymptotic").statistic
    assert roc_auc(scores, labels) == pytest.approx(u / len(edges) / len(others))
    area = recall = 0.0
    for threshold in sorted({score for score, _ in rows}, reverse=True):
        called = [label for score, label in rows if score >= threshold]
        reached = sum(called) / len(edges)
        area += (reached - recall) * sum(called) / len(called)
        recall = reached
    assert average_precision(scores, labels) == pytest.approx(area)
    candidates = {score for score, _ in rows}
    threshold = best_threshold(scores, labels)
    best = max(f1_at(rows, t) for t in candidates)
    assert f1_at(rows, threshold) == pytest.approx(best)
    assert threshold == max(t for t in candidates if f1_at(rows, t) >= best - 1e-12)
    found = edge_scores(scores, labels, threshold)
    assert found.f1 == pytest.approx(best)
    right = sum((score >= threshold) == label for score, label in rows)
    assert found.accuracy == pytest.approx(right / len(rows))


def test_by_hand() -> None:
    scores = torch.tensor([4.0, 3.0, 2.0, 1.0])
    labels = torch.tensor([1, 0, 1, 0])
    assert average_precision(scores, labels) == pytest.approx((1 + 2 / 3) / 2)
    assert roc_auc(scores, labels) == pytest.approx(3 / 4)
    assert best_threshold(scores, labels) == 2
    assert roc_auc(-scores, labels) == pytest.approx(1 / 4)
    assert roc_auc(torch.zeros(4), labels) == pytest.approx(1 / 2)
    assert average_precision(torch.zeros(4), labels) == pytest.approx(1 / 2)


def test_the_threshold_is_chosen_on_validation_pairs() -> None:
    validation = torch.tensor([3.0, 2.0, 0.0]), torch.tensor([True, True, False])
    test = torch.tensor([5.0, 1.0, 2.5, -1.0]), torch.tensor([True, True, False, False])
    found = classify_edges(*validation, *test)
    assert found.threshold == 2
    assert (found.precision, found.recall, found.f1, found.accuracy) == (0.5, 0.5, 0.5, 0.5)
    assert found.roc_auc == pytest.approx(3 / 4)
    assert len(found.as_dict()) == 7
    nothing = edge_scores(*test, threshold=9.0)
    assert (nothing.precision, nothing.recall, nothing.f1) == (0, 0, 0)


def test_bad_input_is_named() -> None:
    scores = torch.tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="labels has nothing but edges"):
        roc_auc(scores, torch.tensor([1, 1]))
    with pytest.raises(ValueError, match="labels has no edge"):
        average_precision(scores, torch.tensor([False, False]))
    with pytest.raises(ValueError, match="labels must be booleans, or 0 and 1"):
        best_threshold(scores, torch.tensor([0, 2]))
    with pytest.raises(ValueError, match="scores has 1 entries that are not finite"):
        roc_auc(torch.tensor([1.0, math.nan]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="same shape"):
        roc_auc(scores, torch.tensor([0, 1, 1]))
