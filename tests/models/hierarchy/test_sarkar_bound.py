"""The length of edges: the lemma, the bound on worst paths, and its sharpness."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from beltrami.models.hierarchy import distortion_bound, edge_length_for
from beltrami.models.hierarchy.sarkar_bound import deficit
from beltrami.models.hierarchy.sarkar_paths import path_distances

angles = st.floats(0.05, 3.1) | st.just(math.pi)


@given(st.floats(0.01, 50), st.floats(0.01, 50), angles)
def test_a_corner_costs_at_most_the_lemma(a: float, b: float, angle: float) -> None:
    with mpmath.workdps(80):
        cosine = mpmath.cos(angle)
        cosh = mpmath.cosh(a) * mpmath.cosh(b)
        third = mpmath.acosh(cosh - mpmath.sinh(a) * mpmath.sinh(b) * cosine)
        assert third > a + mpmath.log(mpmath.cosh(b) - mpmath.sinh(b) * cosine)


def turning_path(angle: float, edge: float, edges: int) -> torch.Tensor:
    """Distances from the first node of a path that turns the same way by π − angle everywhere."""
    at = [0.0]
    for _ in range(edges - 1):
        at.append(at[-1] + math.pi - angle)
    rows = [[0.0, 0.0]] + [[math.cos(a), math.sin(a)] for a in at]
    direction = torch.tensor(rows, dtype=torch.float64)
    return path_distances([-1, *range(edges)], direction, edge, torch.tensor([0]))[0]


@pytest.mark.parametrize("angle", [0.1, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("longer", [1.001, 1.3, 4.0])
def test_the_path_that_always_turns_the_same_way_is_the_worst(angle: float, longer: float) -> None:
    edge = longer * 2 * math.atanh(math.cos(angle / 2))  # below, it closes
    lost = deficit(angle, edge)
    hops = torch.arange(0, 301, dtype=torch.float64)
    d = turning_path(angle, edge, 300)
    assert bool((d >= hops * edge - (hops - 1) * lost - 1e-9)[1:].all())
    assert bool((d <= hops * edge + 1e-9).all())
    step = (d[-1] - d[-2]).item()
    if longer > 1.01:  # the bound is sharp: what an edge adds in the long run
        assert step == pytest.approx(edge - lost, rel=1e-9)


def test_beyond_the_condition_there_is_no_bound() -> None:
    edge = 0.9 * 2 * math.atanh(math.cos(0.5))
    assert deficit(1.0, edge) == math.inf
    assert distortion_bound(1.0, edge, 10) == math.inf


@given(angles, st.floats(0.001, 20), st.integers(2, 1000))
def test_edges_are_just_long_enough(angle: float, epsilon: float, diameter: int) -> None:
    edge = edge_length_for(angle, epsilon, diameter)
    if angle == math.pi:
        return
    assert distortion_bound(angle, edge, diameter) <= (1 + epsilon) * (1 + 1e-9)
    assert edge >= deficit(angle, edge) * (1 - 1e-9)  # every edge of a path adds to its span
    assert distortion_bound(angle, 0.999 * edge, diameter) > 1 + epsilon


def test_a_path_is_exact_at_any_length() -> None:
    assert edge_length_for(math.pi, 0.1, 20) == 1.0
    assert distortion_bound(math.pi, 0.01, 20) == 1.0
    assert distortion_bound(0.1, 0.01, 1) == 1.0  # one edge has no corner
