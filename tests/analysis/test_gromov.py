"""Gromov's δ: against its definitions, of spaces whose δ is known, and bad input."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from beltrami.analysis.gromov import curvature_estimate, delta_hyperbolicity
from beltrami.analysis.null_models import hop_distances, tree_distances
from beltrami.data.load import load_hierarchy
from beltrami.geometry import Lorentz


def at_base(d: Tensor, base: int) -> float:
    """By the definition with Gromov products."""

    def product(i: int, j: int) -> float:
        return float(d[i, base] + d[j, base] - d[i, j]) / 2

    n = range(len(d))
    return max(
        min(product(i, k), product(k, j)) - product(i, j) for i, j, k in itertools.product(n, n, n)
    )


def of_quadruple(d: Tensor, four: tuple[int, ...]) -> float:
    w, x, y, z = four
    sums = sorted([d[w, x] + d[y, z], d[w, y] + d[x, z], d[w, z] + d[x, y]])
    return float(sums[2] - sums[1]) / 2


def points(n: int, dimensions: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, dimensions, generator=g, dtype=torch.float64)


def cycle(n: int) -> Tensor:
    apart = (torch.arange(n)[None] - torch.arange(n)[:, None]).abs()
    return torch.minimum(apart, n - apart)


@settings(max_examples=25, deadline=None)
@given(st.integers(4, 9), st.integers(1, 5), st.integers(0, 1000))
def test_against_both_definitions(n: int, dimensions: int, seed: int) -> None:
    x = points(n, dimensions, seed)
    d = torch.cdist(x, x)
    for base in (0, n - 1):
        found = delta_hyperbolicity(x, base=base)
        assert found.delta == pytest.approx(at_base(d, base), abs=1e-12)
        if found.quadruple:
            assert found.quadruple[0] == base
            assert of_quadruple(d, found.quadruple) == pytest.approx(found.delta, abs=1e-12)
    found = delta_hyperbolicity(d, "distances", base="all")
    largest = max(of_quadruple(d, four) for four in itertools.combinations(range(n), 4))
    assert found.delta == pytest.approx(largest, abs=1e-12)
    assert found.relative == pytest.approx(2 * largest / d.max().item(), abs=1e-12)


def test_precomputed_is_another_word_for_distances() -> None:
    d = tree_distances(30) ** 0.5
    for options in ({}, {"sample": 10}, {"base": "all"}):
        expected = delta_hyperbolicity(d, "distances", **options)
        assert delta_hyperbolicity(d, "precomputed", **options) == expected
    with pytest.raises(ValueError, match=r"x must be numbers of shape \(n, n\)"):
        delta_hyperbolicity(torch.randn(8, 3), "precomputed")


def test_trees_have_none() -> None:
    for base in (0, 17, "all"):
        found = delta_hyperbolicity(tree_distances(80), "distances", base=base)  # type: ignore[arg-type]
        assert (found.delta, found.relative, found.quadruple) == (0.0, 0.0, ())
    weights = torch.rand(1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scaled = delta_hyperbolicity(weights * tree_distances(80), "distances", base="all")
    assert scaled.relative == pytest.approx(0, abs=1e-14)


def test_a_taxonomy_is_a_tree() -> None:
    tree = load_hierarchy("carnivores").spanning_tree()
    joined = torch.zeros(len(tree.labels), len(tree.labels), dtype=torch.bool)
    for node, parent in enumerate(tree.parent):
        if parent >= 0:
            joined[node, parent] = joined[parent, node] = True
    hops = hop_distances(joined)
    assert delta_hyperbolicity(hops, "distances", base="all").delta == 0


@pytest.mark.parametrize(("n", "delta"), [(4, 1.0), (5, 0.5), (8, 2.0), (12, 3.0), (24, 6.0)])
def test_cycles(n: int, delta: float) -> None:
    """n/4 where 4 divides n; a pentagon has 1/2."""
    assert delta_hyperbolicity(cycle(n), "distances", base="all").delta == delta


def test_the_hyperbolic_plane_has_log_2() -> None:
    """Its δ of four points is log 2, which a large square nearly has; at c, log 2/√c."""
    far = 9.0
    plane = Lorentz(c=4.0)
    directions = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1]], dtype=torch.float64)
    corners = plane.exp0(far * directions)
    found = delta_hyperbolicity(corners, plane, base="all")
    assert found.delta == pytest.approx(math.log(2) / 2, rel=1e-6)
    cloud = plane.exp0(3 * points(60, 2))
    assert delta_hyperbolicity(cloud, plane, base="all").delta <= math.log(2) / 2


def test_a_flat_square_and_angles() -> None:
    square = torch.tensor([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    assert delta_hyperbolicity(square, base="all").delta == pytest.approx(math.sqrt(2) - 1)
    around = torch.arange(8) * math.pi / 4
    circle = torch.stack([around.cos(), around.sin()], 1) * torch.rand(8, 1).add(0.5)
    assert delta_hyperbolicity(circle, "angle", base="all").relative == pytest.approx(1, abs=1e-6)


def test_scale_does_not_matter_and_points_may_coincide() -> None:
    x = points(9, 2, seed=1)
    assert delta_hyperbolicity(7 * x).relative == pytest.approx(delta_hyperbolicity(x).relative)
    assert delta_hyperbolicity(torch.zeros(5, 3)).relative == 0
    assert delta_hyperbolicity(x.repeat(3, 1), base="all").delta == pytest.approx(
        delta_hyperbolicity(x, base="all").delta
    )


def test_one_base_point_gives_half_at_least() -> None:
    x = points(40, 3)
    whole = delta_hyperbolicity(x, base="all").delta
    for base in range(0, 40, 7):
        assert whole / 2 <= delta_hyperbolicity(x, base=base).delta <= whole


def test_samples_have_an_interval() -> None:
    x = points(300, 16)
    found = delta_hyperbolicity(x, sample=50, repeats=8, seed=3)
    assert (found.points, found.compared) == (300, 50)
    assert found.low < found.relative < found.high
    assert found == delta_hyperbolicity(x, sample=50, repeats=8, seed=3)
    assert found != delta_hyperbolicity(x, sample=50, repeats=8, seed=4)
    d = torch.cdist(x, x)
    other = delta_hyperbolicity(d, "distances", sample=50, repeats=8, seed=3)
    assert other.relative == pytest.approx(found.relative)
    assert delta_hyperbolicity(x, sample=300).quadruple  # all of them: exact


@pytest.mark.parametrize(("dimensions", "measured"), [(64, 0.28), (768, 0.107), (4096, 0.049)])
def test_noise_is_as_tree_like_as_measured(dimensions: int, measured: float) -> None:
    """Sixty Gaussian points at a base point, mean of several: our own first measurements."""
    found = [delta_hyperbolicity(points(60, dimensions, seed)).relative for seed in range(40)]
    assert sum(found) / len(found) == pytest.approx(measured, rel=0.05)


def test_float32_for_many_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also far away from the origin."""
    x = points(50, 8) + 1e4
    exact = delta_hyperbolicity(x).relative
    monkeypatch.setattr("beltrami.analysis.gromov.MOST_IN_FLOAT64", 10)
    assert delta_hyperbolicity(x).relative == pytest.approx(exact, rel=1e-5)


@pytest.mark.slow
def test_hyperbolic_points_are_the_worst_case_and_still_exact() -> None:
    """Their δ is nearly reached nearly everywhere."""
    plane = Lorentz()
    x = plane.exp0(2 * points(60, 4))
    d = plane.pairwise_dist(x, x)
    found = delta_hyperbolicity(x, plane)
    assert found.delta == pytest.approx(at_base(d, 0), abs=1e-12)
    assert of_quadruple(d, found.quadruple) == pytest.approx(found.delta, abs=1e-12)


@pytest.mark.parametrize("options", [{}, {"base": "all"}, {"sample": 9, "repeats": 3}])
def test_progress_goes_to_the_end(options: dict[str, Any]) -> None:
    told: list[float] = []
    delta_hyperbolicity(points(20, 3), tick=told.append, **options)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)


def test_numbers_of_the_result() -> None:
    found = delta_hyperbolicity(points(20, 3)).as_dict()
    assert {"delta", "diameter", "relative", "low", "high", "points", "base"} <= found.keys()


def test_curvatures() -> None:
    assert curvature_estimate(0.144) == pytest.approx(1)
    assert curvature_estimate(0.288) == pytest.approx(0.25)
    assert curvature_estimate(0) == 10
    assert curvature_estimate(100) == 0.01
    for bad in (-math.inf, math.nan):
        with pytest.raises(ValueError, match="negative"):
            curvature_estimate(bad)
    with pytest.raises(ValueError, match="in order, got 5 and 1"):
        curvature_estimate(0.1, least=5, most=1)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (torch.zeros(3, 2), {}, "compares 4 points, and there are 3"),
        (torch.zeros(5), {}, r"x must be .* \(n, d\), got .* \(5,\)"),
        (torch.zeros(5, 4), {"metric": "distances"}, r"x must be .* \(n, n\), got .* \(5, 4\)"),
        (torch.full((5, 2), math.nan), {}, "finite"),
        (torch.zeros(5, 2), {"metric": "manhattan"}, "metric must be .* got 'manhattan'"),
        (torch.eye(5)[:, :4], {"metric": "angle"}, "row 4 is 0 and has no direction"),
        (torch.zeros(5, 2), {"base": 5}, "base must be .* got 5"),
        (torch.zeros(5, 2), {"base": -1}, "base must be at least 0, got -1"),
        (torch.zeros(5, 2), {"sample": 3}, "sample must be at least 4, got 3"),
        (torch.zeros(5, 2), {"sample": 4, "repeats": 1}, "repeats must be at least 2, got 1"),
        (-tree_distances(5), {"metric": "distances"}, "not be negative"),
        (tree_distances(5).triu(), {"metric": "distances"}, "symmetric"),
        (tree_distances(5) + torch.eye(5), {"metric": "distances"}, "0 on the diagonal"),
    ],
)
def test_bad_input(x: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        delta_hyperbolicity(x, **options)
    with pytest.raises(TypeError, match="real numbers"):
        delta_hyperbolicity(torch.zeros(5, 5, dtype=torch.bool))
    with pytest.raises(TypeError, match="Tensor"):
        delta_hyperbolicity([[0.0]])  # type: ignore[arg-type]
