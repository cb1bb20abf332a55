from __future__ import annotations

import itertools
import math

import pytest
import torch

from beltrami.analysis import gromov
from beltrami.analysis.gromov import curvature_estimate, relative_delta
from beltrami.data.load import load_hierarchy


def literal(d: torch.Tensor, base: int) -> float:
    def product(i: int, j: int) -> float:
        return float(d[i, base] + d[j, base] - d[i, j]) / 2

    n = range(len(d))
    largest = max(
        min(product(i, k), product(k, j)) - product(i, j) for i, j, k in itertools.product(n, n, n)
    )
    return 2 * largest / float(d.max())


def test_against_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    points = torch.randn(11, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    d = torch.cdist(points, points)
    for base in (0, 4):
        assert relative_delta(d, base=base) == pytest.approx(literal(d, base), abs=1e-12)
    whole = relative_delta(d)
    monkeypatch.setattr(gromov, "MOST_NUMBERS", 1)  # a row at a time
    assert relative_delta(d) == whole


def test_trees_have_none_and_cycles_have_much() -> None:
    tree = load_hierarchy("carnivores").spanning_tree()
    hops = torch.zeros(len(tree.labels), len(tree.labels))
    for i, j in itertools.combinations(range(len(tree.labels)), 2):
        ways = []
        for node in (i, j):
            way = [node]
            while tree.parent[way[-1]] >= 0:
                way.append(tree.parent[way[-1]])
            ways.append(way)
        shared = len(set(ways[0]) & set(ways[1]))
        hops[i, j] = hops[j, i] = len(ways[0]) + len(ways[1]) - 2 * shared
    assert relative_delta(hops) == 0
    n = 24
    around = torch.arange(n)
    apart = (around.unsqueeze(0) - around.unsqueeze(1)).abs()
    assert relative_delta(torch.minimum(apart, n - apart)) == pytest.approx(1.0)


def test_scale_does_not_matter_and_points_may_coincide() -> None:
    points = torch.randn(9, 2, generator=torch.Generator().manual_seed(1))
    d = torch.cdist(points.double(), points.double())
    assert relative_delta(7 * d) == pytest.approx(relative_delta(d))
    assert relative_delta(torch.zeros(3, 3)) == 0


def test_curvatures() -> None:
    assert curvature_estimate(0.144) == pytest.approx(1)
    assert curvature_estimate(0.288) == pytest.approx(0.25)
    assert curvature_estimate(0) == 10
    assert curvature_estimate(100) == 0.01


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"\(n, n\)"):
        relative_delta(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="finite"):
        relative_delta(torch.full((3, 3), math.nan))
    with pytest.raises(ValueError, match="base"):
        relative_delta(torch.zeros(3, 3), base=3)
    with pytest.raises(ValueError, match="negative"):
        curvature_estimate(-math.inf)
