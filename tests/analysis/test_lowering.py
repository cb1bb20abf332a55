"""Maps into fewer hyperbolic dimensions: what they keep exactly, what they cost, bad input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from beltrami.analysis import rows
from beltrami.analysis.hmds import hmds
from beltrami.analysis.horopca import horopca
from beltrami.analysis.lowering import Lowered, mean_distortion
from beltrami.analysis.null_models import tree_distances
from beltrami.analysis.tangent_pca import tangent_pca
from beltrami.geometry import lorentz

C = 0.7
BOTH = pytest.mark.parametrize("method", [tangent_pca, horopca], ids=["tangent PCA", "HoroPCA"])


def distances(x: Tensor, c: float = C) -> Tensor:
    return lorentz.pairwise_dist(x, x, c)


def cloud(n: int, dimensions: int, size: float = 1.0, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return lorentz.exp0(size * torch.randn(n, dimensions, generator=g, dtype=torch.float64), C)


def plane_in_space(n: int) -> Tensor:
    """Points of a geodesic plane of six-dimensional space that passes somewhere off the origin."""
    g = torch.Generator().manual_seed(5)
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, generator=g, dtype=torch.float64))
    flat = torch.nn.functional.pad(cloud(n, 2), (0, 4))
    away = lorentz.exp0(torch.randn(6, generator=g, dtype=torch.float64), C)
    return lorentz.boost(flat @ rotation, away, C)


def tree_points(n: int = 40, dimensions: int = 10) -> Tensor:
    return hmds(tree_distances(n), C, components=dimensions).points


@pytest.mark.parametrize("dimensions", [2, 3])
def test_scaling_recovers_points_from_their_distances(dimensions: int) -> None:
    d = distances(cloud(30, dimensions))
    found = hmds(d, C, components=dimensions)
    assert found.points.shape == (30, dimensions)
    torch.testing.assert_close(distances(found.points), d, rtol=1e-6, atol=1e-6)
    assert found.distortion < 1e-6
    assert math.isnan(found.explained)


def test_scaling_knows_its_curvature() -> None:
    """Distances of curvature −4c are half of those of −c."""
    d = distances(cloud(20, 2))
    twice, once = hmds(d / 2, 4 * C), hmds(d, C)
    torch.testing.assert_close(distances(twice.points, 4 * C), distances(once.points) / 2)


def test_the_tangent_map_keeps_a_plane_with_its_distances_from_the_mean() -> None:
    x = plane_in_space(30)
    found = tangent_pca(x, C)
    torch.testing.assert_close(distances(found.points), distances(x), rtol=1e-8, atol=1e-8)
    assert found.explained == pytest.approx(1)
    assert found.distortion < 1e-8


def test_horopca_keeps_most_of_a_plane() -> None:
    """Not all: points beyond the geodesic between the ideal points are folded to this side."""
    x = plane_in_space(30)
    found = horopca(x, C, components=2, steps=60, starts=1)
    assert found.points.shape == (30, 2)
    assert found.explained > 0.8


@BOTH
def test_all_dimensions_are_enough(method: Callable[..., Lowered]) -> None:
    """For the tangent map exactly; for the other, but for folded points."""
    x = cloud(20, 3)
    found = method(x, C, components=3)
    assert found.explained <= 1 + 1e-9
    assert found.explained > (0.999999 if method is tangent_pca else 0.8)


def test_the_image_does_not_depend_on_where_the_points_lie() -> None:
    x = tree_points()
    moved = lorentz.boost(x, lorentz.exp0(torch.full((10,), 0.3, dtype=torch.float64), C), C)
    here, there = tangent_pca(x, C), tangent_pca(moved, C)
    torch.testing.assert_close(
        distances(here.points), distances(there.points), rtol=1e-6, atol=1e-6
    )
    assert here.variance == pytest.approx(there.variance)


@pytest.mark.parametrize("seed", range(3))
def test_horopca_beats_tangent_pca_on_trees(seed: int) -> None:
    x = hmds(tree_distances(40, seed=seed), 1.0, components=10).points
    tangent, horo = tangent_pca(x), horopca(x, steps=100, starts=1)
    assert horo.distortion < tangent.distortion
    assert horo.variance > tangent.variance


def test_more_starts_are_no_worse_and_a_seed_repeats() -> None:
    x = tree_points()
    one, two = horopca(x, C, steps=20, starts=1), horopca(x, C, steps=20, starts=2)
    image = [distances(found.points).square().mean() for found in (one, two)]
    assert image[1] >= image[0]
    again = horopca(x, C, steps=20, starts=2)
    assert torch.equal(again.points, two.points)


def test_horopca_in_inference_mode() -> None:
    x = tree_points()
    with torch.inference_mode():
        found = horopca(x, C, steps=5, starts=1)
    torch.testing.assert_close(found.points, horopca(x, C, steps=5, starts=1).points)


def test_a_sample_stands_for_many_points() -> None:
    x = tree_points(60)
    told: list[float] = []
    found = horopca(x, C, steps=30, starts=2, sample=20, tick=told.append)
    assert found.points.shape == (60, 2)
    assert found.variance > 0.9 * horopca(x, C, steps=30, starts=2).variance
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)


def test_components_are_ordered_and_signs_settled() -> None:
    x = cloud(50, 4) * torch.tensor([0.2, 3.0, 1.0, 0.1], dtype=torch.float64)
    found = tangent_pca(x, C, components=3).points
    spread = lorentz.log0(found, C).square().mean(0)
    assert spread.tolist() == sorted(spread.tolist(), reverse=True)
    torch.testing.assert_close(found, tangent_pca(x.flip(0), C, components=3).points.flip(0))


def test_distortion_by_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    old = torch.tensor([[0.0, 1, 2], [1, 0, 4], [2, 4, 0]])
    new = torch.tensor([[0.0, 2, 1], [2, 0, 4], [1, 4, 0]])
    expected = (1 + 0.5 + 0) / 3
    for block in (1, 1 << 22):
        monkeypatch.setattr(rows, "_SLICE_ELEMENTS", block)
        assert mean_distortion(old.__getitem__, new.__getitem__, 3) == pytest.approx(expected)
    assert math.isnan(mean_distortion(torch.zeros(2, 2).__getitem__, old[:2, :2].__getitem__, 2))


def test_numbers_of_the_result() -> None:
    found = tangent_pca(cloud(20, 3), C).as_dict()
    assert found.keys() == {"c", "distortion", "variance", "explained"}


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (torch.zeros(1, 3), {}, "x must be 2 rows at least, got 1"),
        (torch.zeros(4, 3, dtype=torch.int64), {}, "x must be floating point of shape"),
        (torch.full((4, 3), math.nan), {}, "finite"),
        (torch.zeros(4, 3), {"components": 4}, "components must be at most 3, got 4"),
        (torch.zeros(4, 3), {"components": 0}, "components must be at least 1, got 0"),
        (torch.zeros(4, 3), {"c": -1.0}, "c must be positive and finite, got -1"),
    ],
)
@BOTH
def test_bad_points(
    method: Callable[..., Lowered], x: Tensor, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        method(x, **options)


@pytest.mark.parametrize(
    ("d", "options", "message"),
    [
        (torch.zeros(3, 2), {}, r"\(n, n\), got .* \(3, 2\)"),
        (-tree_distances(4), {}, "not be negative"),
        (tree_distances(4).triu(), {}, "symmetric"),
        (tree_distances(4), {"components": 4}, "3 dimensions at most, got components=4"),
        (tree_distances(4), {"c": 0.0}, "c must be positive and finite"),
        (1000 * tree_distances(4), {}, "at most 50, got"),
        (torch.full((4, 4), math.inf), {}, "finite"),
    ],
)
def test_bad_distances(d: Tensor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hmds(d, **options)
