"""Reference geometries: that they are what they say."""

from __future__ import annotations

import math

import pytest
import torch

from beltrami.analysis.gromov import delta_hyperbolicity
from beltrami.analysis.intervals import mean_interval
from beltrami.analysis.null_models import (
    gaussian_at_radii,
    gaussian_like,
    hop_distances,
    random_graph_distances,
    sphere_distances,
    tree_distances,
)


def test_a_tree() -> None:
    d = tree_distances(60)
    edges = (d == 1).sum() // 2
    assert edges == 59
    assert torch.equal(d, hop_distances(d == 1))
    assert delta_hyperbolicity(d, "distances", base="all").delta == 0
    assert not torch.equal(d, tree_distances(60, seed=1))


def test_a_sphere_is_as_round_as_can_be() -> None:
    """Four points a quarter apart on a great circle have δ = π/2 of a diameter of π."""
    found = delta_hyperbolicity(sphere_distances(300), "distances", base="all")
    assert 0.95 < found.relative <= 1
    d = sphere_distances(50, dimensions=9)
    assert torch.equal(d, d.mT)
    assert d.max() <= math.pi


def test_a_random_graph() -> None:
    d = random_graph_distances(200)
    assert torch.isfinite(d).all()
    assert 150 < len(d) <= 200
    assert torch.equal(d, hop_distances(d == 1))
    assert 3 < (d == 1).sum(1).double().mean() < 5


def test_noise_with_the_covariance_of_data() -> None:
    g = torch.Generator().manual_seed(0)
    mix = torch.randn(5, 5, generator=g, dtype=torch.float64)
    data = torch.rand(4000, 5, generator=g, dtype=torch.float64) @ mix + 3
    noise = gaussian_like(data)
    torch.testing.assert_close(noise.mean(0), data.mean(0))
    torch.testing.assert_close(noise.T.cov(), data.T.cov())
    assert not torch.equal(noise, gaussian_like(data, seed=1))


def test_noise_of_fewer_rows_than_columns_stays_in_their_span() -> None:
    data = torch.randn(6, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = gaussian_like(data)
    torch.testing.assert_close(noise.T.cov(), data.T.cov())
    both = torch.cat([data, noise])
    assert torch.linalg.matrix_rank(both - data.mean(0), rtol=1e-6) == 5


@pytest.mark.parametrize(("n", "d"), [(60, 400), (120, 120), (200, 20)])
def test_noise_is_as_tree_like_as_its_noise(n: int, d: int) -> None:
    """Also where there are fewer points than dimensions, whose covariance is a poor estimate."""
    gaps = []
    for seed in range(8):
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(n, d, generator=g, dtype=torch.float64)
        null = gaussian_like(x, seed=seed)
        gaps.append(delta_hyperbolicity(x).relative - delta_hyperbolicity(null).relative)
    mean = mean_interval(gaps)
    assert mean.half_width is not None
    assert abs(mean.mean) < max(0.02, 1.5 * mean.half_width)


def test_noise_with_the_radii_of_data() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(300, 8, generator=g, dtype=torch.float64) * torch.linspace(0.2, 3, 8)
    x[0] *= 40
    noise = gaussian_at_radii(x, seed=3)
    mean = x.mean(0)
    radii = [(y - mean).norm(dim=1).sort().values for y in (x, noise)]
    torch.testing.assert_close(radii[1], radii[0])
    # Its directions spread as the data's do, not as the longest row's.
    rays = [(y - mean) / (y - mean).norm(dim=1, keepdim=True) for y in (x, noise)]
    spread = [(y.mT @ y).diagonal() / len(y) for y in rays]
    torch.testing.assert_close(spread[1], spread[0], rtol=0.3, atol=0.02)
    same = torch.ones(5, 3)
    torch.testing.assert_close(gaussian_at_radii(same), same.double())


def test_one_point_far_out_is_no_tree() -> None:
    """Beside plain noise it looks like one: all others are near each other on that scale."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(200, 32, generator=g, dtype=torch.float64)
    x[-1] *= 30  # the first is the base point
    data, plain, fair = (
        delta_hyperbolicity(y).relative for y in (x, gaussian_like(x), gaussian_at_radii(x))
    )
    assert data < 0.3 * plain
    assert data == pytest.approx(fair, rel=0.3)


@pytest.mark.parametrize("kind", ["three rows far out", "ten rows far out", "heavy tails"])
def test_noise_of_unequal_lengths_is_as_tree_like_as_its_noise(kind: str) -> None:
    apart = []
    for seed in range(8):
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(150, 64, generator=g, dtype=torch.float64)
        if kind == "heavy tails":
            x *= torch.rand(150, 1, generator=g, dtype=torch.float64) ** -0.5
        else:
            x[-3 if kind == "three rows far out" else -10 :] *= 10  # the first is the base point
        noise = delta_hyperbolicity(gaussian_at_radii(x, seed=seed)).relative
        apart.append(delta_hyperbolicity(x).relative / noise - 1)
    found = mean_interval(apart)
    assert abs(found.mean) < 0.15


def test_what_the_literature_says_of_spheres_and_random_graphs() -> None:
    """0.99 and 0.62: over all quadruples, and for some size and degree."""
    sphere = delta_hyperbolicity(sphere_distances(150, seed=1), "distances", base="all")
    assert 0.97 < sphere.relative <= 1
    found = [
        delta_hyperbolicity(random_graph_distances(300, degree=k, seed=0), "distances").relative
        for k in (3, 4, 6, 10)
    ]
    assert min(found) < 0.62 < max(found)


def test_hops_of_a_graph_in_two_parts() -> None:
    joined = torch.zeros(5, 5, dtype=torch.bool)
    for i, j in ((0, 1), (1, 2), (3, 4)):
        joined[i, j] = joined[j, i] = True
    d = hop_distances(joined)
    assert d[0].tolist() == [0, 1, 2, math.inf, math.inf]
    assert d[4].tolist() == [math.inf, math.inf, math.inf, 1, 0]


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="n must be at least 1"):
        tree_distances(0)
    with pytest.raises(ValueError, match=r"degree must be above 1 .* got 0\.5"):
        random_graph_distances(10, degree=0.5)
    with pytest.raises(
        ValueError, match=r"booleans of shape \(n, n\), got torch.bool of shape \(3, 2\)"
    ):
        hop_distances(torch.zeros(3, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="symmetric"):
        hop_distances(torch.ones(3, 3, dtype=torch.bool).triu())
    with pytest.raises(ValueError, match="2 rows at least, got"):
        gaussian_like(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="finite"):
        gaussian_like(torch.full((3, 3), math.nan))
