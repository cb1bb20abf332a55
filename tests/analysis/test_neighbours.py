"""Nearest points, and dimension and hubs from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from beltrami.analysis import rows as blocks
from beltrami.analysis.hubness import hubness
from beltrami.analysis.intrinsic_dimension import intrinsic_dimension
from beltrami.analysis.neighbours import nearest_points


def rows(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("block", [1, 50, 1 << 22])
def test_nearest_points_by_sorting(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_SLICE_ELEMENTS", block)
    x = rows(23, 4).double()
    d = torch.cdist(x, x).fill_diagonal_(math.inf)
    distances, numbers = nearest_points(x, 5)
    expected, order = d.sort(1)
    torch.testing.assert_close(distances, expected[:, :5])
    assert torch.equal(numbers, order[:, :5])


def test_angles() -> None:
    x = rows(20, 3).double()
    unit = torch.nn.functional.normalize(x, dim=-1)
    angles = torch.acos((unit @ unit.mT).clamp(-1, 1)).fill_diagonal_(math.inf)
    distances, _ = nearest_points(3 * x, 4, metric="angle")
    torch.testing.assert_close(distances, angles.sort(1).values[:, :4])


@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_the_dimension_of_a_cube_in_more(dimensions: int) -> None:
    """Evenly filled and turned into twelve dimensions."""
    g = torch.Generator().manual_seed(0)
    cube = torch.rand(3000, dimensions, generator=g, dtype=torch.float64)
    turn, _ = torch.linalg.qr(torch.randn(12, 12, generator=g, dtype=torch.float64))
    found = intrinsic_dimension(torch.nn.functional.pad(cube, (0, 12 - dimensions)) @ turn)
    assert found.two_nearest == pytest.approx(dimensions, rel=0.1)
    # A point near the border has its neighbours on one side, as if there were fewer dimensions.
    assert found.likelihood == pytest.approx(dimensions, rel=0.15)
    assert abs(found.two_nearest - dimensions) < 5 * found.two_nearest_error + 0.05 * dimensions
    assert (found.used, found.points, found.k) == (3000, 3000, 20)


def test_the_error_of_a_dimension_leaves_out_the_bias_at_borders() -> None:
    """The docstring says 33 percent for a cube of five dimensions."""
    results = [intrinsic_dimension(torch.rand(1000, 5), k=3) for _ in range(30)]
    held = [abs(r.two_nearest - 5) < 1.96 * r.two_nearest_error for r in results]
    assert sum(held) < 0.7 * len(held)
    assert sum(r.two_nearest for r in results) / len(results) < 5


@pytest.mark.parametrize("k", [3, 5, 20])
def test_the_dimension_of_a_surface_without_a_border(k: int) -> None:
    """A torus, flat in four dimensions."""
    g = torch.Generator().manual_seed(0)
    around = 2 * math.pi * torch.rand(4000, 2, generator=g, dtype=torch.float64)
    found = intrinsic_dimension(torch.cat([around.cos(), around.sin()], 1), k=k)
    assert found.likelihood == pytest.approx(2, rel=0.04)
    assert found.two_nearest == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("metric", ["euclidean", "angle"])
@pytest.mark.parametrize(("dimensions", "dtype"), [(3, torch.float32), (64, torch.float64)])
def test_points_that_coincide_do_not_count(
    dimensions: int, dtype: torch.dtype, metric: Any
) -> None:
    x = rows(200, dimensions).to(dtype)
    found = intrinsic_dimension(torch.cat([x, x[:40]]), k=5, metric=metric)
    assert (found.used, found.points) == (160, 240)


def test_points_far_away_have_the_same_neighbours() -> None:
    x = rows(100, 5).double()
    here, there = nearest_points(x, 4), nearest_points(x + 1e6, 4)
    assert torch.equal(here[1], there[1])
    torch.testing.assert_close(here[0], there[0], rtol=1e-7, atol=1e-7)


def test_nothing_to_go_by() -> None:
    nothing = intrinsic_dimension(torch.ones(10, 3), k=4)
    assert nothing.used == 0
    assert math.isnan(nothing.two_nearest)
    assert math.isnan(nothing.likelihood)


def test_a_centre_is_a_hub() -> None:
    """A point in the middle of a sphere is nearer to all than they are to each other."""
    sphere = torch.nn.functional.normalize(rows(60, 40), dim=-1)
    found = hubness(torch.cat([sphere, torch.zeros(1, 40)]), k=1)
    assert (found.hub, found.largest) == (60, 60)
    assert found.skewness > 5
    assert found.never == pytest.approx(59 / 61)


def test_points_on_a_circle_have_no_hubs() -> None:
    around = torch.arange(30) * 2 * math.pi / 30
    found = hubness(torch.stack([around.cos(), around.sin()], 1).double(), k=2)
    assert found.counts.tolist() == [2] * 30
    assert math.isnan(found.skewness)
    assert found.never == 0


def test_hubs_grow_with_dimensions() -> None:
    few, many = (hubness(rows(500, d), k=5).skewness for d in (2, 100))
    assert few < 0.8 < 2 < many


@pytest.mark.parametrize("method", [intrinsic_dimension, hubness])
@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (torch.zeros(5), {}, r"of shape \(n, d\), got"),
        (torch.full((40, 2), math.nan), {}, "finite"),
        (torch.zeros(5, 2), {"k": 5}, "below the number of points, 5, got 5"),
        (torch.zeros(40, 2), {"k": 0}, "k must be at least"),
        (torch.zeros(40, 2), {"metric": "angle"}, "row 0 is 0 and has no direction"),
        (torch.ones(40, 2), {"metric": "hamming"}, "metric must be .* got 'hamming'"),
    ],
)
def test_bad_input(
    method: Callable[..., Any], x: Tensor, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        method(x, **options)


@pytest.mark.parametrize("metric", ["precomputed", "distances"])
@pytest.mark.parametrize("block", [1, 1 << 22])
def test_given_distances(metric: Any, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_SLICE_ELEMENTS", block)
    x = rows(30, 3).double()
    d = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    given = d.clone()
    distances, numbers = nearest_points(d, 4, metric=metric)
    expected, order = nearest_points(x, 4)
    torch.testing.assert_close(distances, expected)
    assert torch.equal(numbers, order)
    assert torch.equal(d, given)
    assert hubness(d, k=4, metric=metric).largest == hubness(x, k=4).largest
    found = intrinsic_dimension(d, k=4, metric=metric)
    assert found.likelihood == pytest.approx(intrinsic_dimension(x, k=4).likelihood)
    with pytest.raises(ValueError, match="distances must be symmetric"):
        nearest_points(d + torch.rand_like(d).fill_diagonal_(0), 4, metric=metric)
