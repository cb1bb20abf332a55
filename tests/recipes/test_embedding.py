from __future__ import annotations

import math

import pytest
import torch

from beltrami.data import Tree, load_taxonomy
from beltrami.geometry import lorentz
from beltrami.recipes import embedding
from beltrami.recipes.embedding import (
    fit_tree,
    measure,
    radial_layout,
    relative_stress,
)


def path_of(n: int) -> Tree:
    return Tree("path", tuple(f"n{i}" for i in range(n)), (-1, *range(n - 1)))


def test_a_path_fits_both_planes_perfectly() -> None:
    # Points on a line: Euclidean, and along a geodesic through the origin.
    tree = path_of(6)
    line = torch.zeros(6, 2, dtype=torch.float64)
    line[:, 0] = 0.7 * torch.arange(6, dtype=torch.float64)
    for geometry, points in (("euclidean", line), ("hyperbolic", lorentz.exp0(line, 2.0))):
        quality = measure(tree, points, geometry, 2.0)
        assert quality.average_distortion == pytest.approx(0, abs=1e-12)
        assert quality.worst_distortion == pytest.approx(1)
        assert quality.map == 1


def test_stress_is_the_least_over_scales() -> None:
    ratio = torch.rand(50, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.1
    scales = torch.linspace(0.1, 8, 40001, dtype=torch.float64)[:, None]
    by_search = (scales * ratio - 1).square().mean(-1).min().item()
    assert relative_stress(ratio).item() == pytest.approx(by_search, abs=1e-6)


def test_coincident_points_are_infinitely_distorted() -> None:
    quality = measure(path_of(3), torch.zeros(3, 2, dtype=torch.float64), "euclidean", 1.0)
    assert quality.average_distortion == 1
    assert quality.worst_distortion == math.inf


def test_both_twins_start_equal_and_seeds_differ() -> None:
    tree = load_taxonomy("carnivores")
    start = radial_layout(tree, 0, 1.0)
    assert torch.equal(start, radial_layout(tree, 0, 1.0))
    other = radial_layout(tree, 1, 1.0)
    assert not torch.allclose(
        torch.cdist(start, start), torch.cdist(other, other)
    )  # more than turned


def test_deep_trees_start_within_range() -> None:
    for curvature in (0.01, 1.0, 100.0):
        v = radial_layout(path_of(2000), 0, curvature)
        assert math.sqrt(curvature) * v.norm(dim=-1).max() < 1.1 * embedding.MAX_START_RADIUS


def test_hyperbolic_plane_holds_the_taxonomy_better_after_few_steps() -> None:
    tree = load_taxonomy("carnivores")
    quality = {}
    for geometry in embedding.GEOMETRIES:
        fit = fit_tree(tree, geometry, seed=0, learning_rate=0.1, steps=150, curvature=1.0)
        quality[geometry] = measure(tree, fit.points, geometry, 1.0)
    assert quality["hyperbolic"].average_distortion < 0.1
    assert quality["euclidean"].average_distortion > 0.2
    assert quality["hyperbolic"].worst_distortion < quality["euclidean"].worst_distortion / 3
    assert quality["hyperbolic"].map > 2 * quality["euclidean"].map


@pytest.mark.parametrize("geometry", embedding.GEOMETRIES)
def test_steps_are_reported_and_threads_restored(geometry) -> None:
    told: list[int] = []
    before = torch.get_num_threads()
    fit_tree(path_of(5), geometry, seed=0, learning_rate=0.1, steps=23, curvature=1.0,
             on_steps=told.append)  # fmt: skip
    assert told == [10, 10, 3]
    assert torch.get_num_threads() == before


def test_large_trees_are_fitted_on_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "PAIRS_PER_STEP", 50)
    tree = Tree("ternary", tuple(map(str, range(40))), tuple((i - 1) // 3 for i in range(40)))
    fit = fit_tree(tree, "hyperbolic", seed=0, learning_rate=0.1, steps=200, curvature=1.0)
    before = measure(tree, lorentz.exp0(radial_layout(tree, 0, 1.0), 1.0), "hyperbolic", 1.0)
    after = measure(tree, fit.points, "hyperbolic", 1.0)
    assert after.average_distortion < before.average_distortion
