"""Curvatures that distances suggest: of spaces that have one, and of those that have none."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from beltrami.analysis.curvature_fit import _bent, _triangle_curvature, fit_curvature
from beltrami.analysis.hmds import hmds
from beltrami.analysis.null_models import sphere_distances, tree_distances
from beltrami.geometry import lorentz


def hyperbolic(n: int, c: float, reach: float = 4.0, dimensions: int = 2, seed: int = 0) -> Tensor:
    """Distances of points at evenly spread radii up to reach/√c."""
    g = torch.Generator().manual_seed(seed)
    directions = torch.randn(n, dimensions, generator=g, dtype=torch.float64)
    directions = torch.nn.functional.normalize(directions, dim=-1)
    radii = reach / math.sqrt(c) * torch.rand(n, 1, generator=g, dtype=torch.float64)
    x = lorentz.exp0(radii * directions, c)
    return lorentz.pairwise_dist(x, x, c)


@pytest.mark.parametrize("c", [0.25, 4.0])
def test_three_ways_agree_on_the_hyperbolic_plane(c: float) -> None:
    found = fit_curvature(hyperbolic(120, c))
    assert found.c == pytest.approx(c, rel=0.05)
    assert found.by_delta == pytest.approx(c, rel=0.1)
    assert found.by_triangles == pytest.approx(-c, rel=0.1)
    assert found.distortion < 0.005 < 0.1 < found.flat_distortion
    assert math.isnan(found.low)
    assert len(found.ladder) == 11
    step, distortion = min(found.ladder, key=lambda step: step[1])
    assert found.bend == pytest.approx(step, rel=0.4)
    assert found.distortion <= distortion


def test_a_fit_takes_no_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """Distortions decide; the variance of each embedding took more time than all the rest."""
    d = hyperbolic(40, 1.0)
    bend, distortion = fit_curvature(d).ladder[3]
    assert distortion == hmds(d, (bend / float(d.max())) ** 2).distortion

    def never(*arguments: object, **options: object) -> Tensor:
        raise AssertionError

    monkeypatch.setattr(lorentz, "frechet_mean", never)
    fit_curvature(d)


def test_flat_points_are_flat() -> None:
    x = torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = fit_curvature(torch.cdist(x, x))
    assert (found.c, found.bend) == (0, 0)
    assert found.flat_distortion < 1e-6
    assert abs(found.by_triangles) < 0.2


@pytest.mark.parametrize("dimensions", [3, 5])
def test_triangles_know_flat_space_of_more_dimensions(dimensions: int) -> None:
    """Where points lie beside sides rather than on them."""
    g = torch.Generator().manual_seed(0)
    x = torch.rand(400, dimensions, generator=g, dtype=torch.float64)
    curvature, count = _triangle_curvature(torch.cdist(x, x), g)
    assert count > 50
    assert abs(curvature) < 0.25


def test_triangles_know_a_sphere() -> None:
    curvature, count = _triangle_curvature(sphere_distances(400), torch.Generator().manual_seed(0))
    assert curvature == pytest.approx(1, abs=0.15)
    assert count > 1000


@pytest.mark.parametrize("curvature", [-9.0, -1.0, -0.01, 0.0, 0.01, 1.0])
def test_a_median_has_its_curvature(curvature: float) -> None:
    """Of a triangle made from its law of cosines."""
    side, angle = 0.8, 1.1
    if curvature == 0:
        half = side * math.sin(angle / 2)
        line = side * math.cos(angle / 2)
    else:
        root = math.sqrt(abs(curvature))
        s, c, back = (
            (math.sinh, math.cosh, math.asinh) if curvature < 0 else (math.sin, math.cos, math.asin)
        )
        half = back(s(side * root) * math.sin(angle / 2)) / root
        ratio = c(side * root) / c(half * root)
        line = (math.acosh(ratio) if curvature < 0 else math.acos(ratio)) / root
    numbers = (torch.tensor([v], dtype=torch.float64) for v in (side, side, half, half, line))
    assert float(_bent(*numbers)) == pytest.approx(curvature, abs=1e-6)


def test_trees_bend_as_far_as_one_looks() -> None:
    found = fit_curvature(tree_distances(120))
    assert found.by_delta == math.inf
    assert found.bend >= 16
    assert found.by_triangles < -1
    assert found.distortion < found.flat_distortion


def test_noise_in_many_dimensions_has_points_between_none() -> None:
    x = torch.randn(150, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = fit_curvature(torch.cdist(x, x))
    assert found.triangles == 0
    assert math.isnan(found.by_triangles)


def test_samples_have_an_interval_and_a_seed_repeats() -> None:
    d, told = hyperbolic(200, 1.0), []  # type: Tensor, list[float]
    found = fit_curvature(d, sample=60, repeats=3, tick=told.append)
    assert (found.points, found.compared, found.samples) == (200, 60, 3)
    assert found.low <= found.bend <= found.high
    assert found.c == pytest.approx(1, rel=0.5)
    assert found == fit_curvature(d, sample=60, repeats=3)
    assert told[-1] == 1


def test_one_sample_is_one_of_that_size() -> None:
    found = fit_curvature(hyperbolic(60, 1.0), sample=20, repeats=1)
    assert (found.points, found.compared, found.samples) == (60, 20, 1)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_a_unit_of_length_scales_the_curvature() -> None:
    d = hyperbolic(60, 1.0)
    once, thrice = fit_curvature(d), fit_curvature(3 * d)
    assert thrice.c == pytest.approx(once.c / 9)
    assert thrice.by_delta == pytest.approx(once.by_delta / 9)
    assert thrice.by_triangles == pytest.approx(once.by_triangles / 9, rel=1e-6)
    assert thrice.bend == once.bend


@pytest.mark.parametrize(
    ("d", "options", "message"),
    [
        (torch.zeros(3, 3), {}, "takes 4 points, and there are 3"),
        (torch.zeros(400, 200), {}, r"\(n, n\), got .* \(400, 200\)"),
        (torch.zeros(5, 5), {}, "all points coincide"),
        (tree_distances(5), {"dimensions": 5}, "4 dimensions at most, got 5"),
        (tree_distances(5), {"dimensions": 0}, "dimensions must be at least 1"),
        (tree_distances(5), {"sample": 2}, "sample must be at least 4"),
        (tree_distances(5).triu(), {}, "symmetric"),
    ],
)
def test_bad_input(d: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_curvature(d, **options)
