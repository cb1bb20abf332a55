from __future__ import annotations

import importlib
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from beltrami.analysis import (
    average_distortion,
    distortion,
    distortion_of_points,
    worst_distortion,
)
from beltrami.data.hierarchy import Hierarchy
from beltrami.geometry import Euclidean, Lorentz, lorentz

module = importlib.import_module("beltrami.analysis.distortion")  # the package has the function


def path(n: int) -> Hierarchy:
    edges = torch.tensor([[i + 1, i] for i in range(n - 1)])
    return Hierarchy("path", tuple(f"n{i}" for i in range(n)), edges)


def test_best_scale_is_found_exactly() -> None:
    ratio = torch.rand(101, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    scales = torch.linspace(0.2, 8, 40001, dtype=torch.float64)[:, None]
    by_search = (scales * ratio - 1).abs().mean(-1).min().item()
    assert average_distortion(ratio) <= by_search + 1e-12
    assert average_distortion(ratio) == pytest.approx(by_search, abs=1e-4)
    assert average_distortion(7 * ratio) == pytest.approx(average_distortion(ratio))


def test_points_on_a_line_hold_a_path_perfectly() -> None:
    tree = path(6)
    line = torch.zeros(6, 2, dtype=torch.float64)
    line[:, 0] = 0.5 * torch.arange(6, dtype=torch.float64)
    for manifold, points in ((Euclidean(), line), (Lorentz(2.0), lorentz.exp0(line, 2.0))):
        found = distortion_of_points(points, manifold, tree.hops)
        assert found.average == pytest.approx(0, abs=1e-12)
        assert found.worst == pytest.approx(1)
        assert found.scale == pytest.approx(2)
        assert found.unscaled == pytest.approx(0.5)
        assert found.pairs == 15
    assert set(found.as_dict()) == {"average", "unscaled", "worst", "scale", "pairs"}


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Distances and hops, symmetric, some pairs without a path."""
    n = draw(st.integers(2, 7))
    size = n * (n - 1) // 2
    hops, distance = torch.zeros(n, n, dtype=torch.int32), torch.zeros(n, n, dtype=torch.float64)
    i, j = torch.triu_indices(n, n, offset=1)
    steps = st.lists(st.sampled_from([-1, 1, 2, 3]), min_size=size, max_size=size)
    hops[i, j] = hops[j, i] = torch.tensor(draw(steps), dtype=torch.int32)
    lengths = st.lists(st.floats(0.1, 5), min_size=size, max_size=size)
    distance[i, j] = distance[j, i] = torch.tensor(draw(lengths), dtype=torch.float64)
    return distance, hops


@settings(max_examples=50)
@given(graphs(), st.sampled_from([1, 2, None]))
def test_all_pairs_agree_with_a_loop(case: tuple[Tensor, Tensor], chunk: int | None) -> None:
    distance, hops = case
    n = len(distance)
    ratios = [
        distance[i, j].item() / hops[i, j].item()
        for i in range(n)
        for j in range(i)
        if hops[i, j] > 0
    ]
    arguments = (lambda rows: distance[rows], lambda rows: hops[rows], n)
    if not ratios:
        with pytest.raises(ValueError, match="hops joins no two"):
            distortion(*arguments, chunk=chunk)
        return
    found = distortion(*arguments, chunk=chunk)
    assert found.pairs == len(ratios)
    assert found.unscaled == pytest.approx(sum(abs(r - 1) for r in ratios) / len(ratios))
    assert found.worst == pytest.approx(max(ratios) / min(ratios))
    # a convex function of s with its corners at 1/r: the least is at one of them
    least = min(sum(abs(r / q - 1) for r in ratios) / len(ratios) for q in ratios)
    assert found.average == pytest.approx(least, abs=1e-12)
    # from every source each pair is met twice, which changes no mean
    twice = distortion(*arguments, sources=torch.arange(n), chunk=chunk)
    assert twice.pairs == 2 * found.pairs
    assert twice.average == pytest.approx(found.average, abs=1e-12)


def test_a_draw_of_sources() -> None:
    tree = path(30)
    points = torch.randn(30, 3, dtype=torch.float64)
    drawn = distortion_of_points(points, Euclidean(), tree.hops, sources=5, seed=1)
    assert drawn.pairs == 5 * 29
    again = distortion_of_points(points, Euclidean(), tree.hops, sources=5, seed=1, chunk=2)
    assert again.as_dict() == pytest.approx(drawn.as_dict())
    assert drawn != distortion_of_points(points, Euclidean(), tree.hops, sources=5, seed=2)
    named = distortion_of_points(points, Euclidean(), tree.hops, sources=torch.tensor([3]))
    others = torch.arange(30) != 3
    ratio = ((points - points[3]).norm(dim=1) / (torch.arange(30) - 3).abs())[others]
    assert named.worst == pytest.approx((ratio.max() / ratio.min()).item())


def test_isometries_change_nothing() -> None:
    tree = path(12)
    points = lorentz.exp0(torch.randn(12, 3, dtype=torch.float64), 1.0)
    to = torch.tensor([0.4, 0.1, -0.7], dtype=torch.float64)
    moved = lorentz.boost(points, to, 1.0)
    before = distortion_of_points(points, Lorentz(1.0), tree.hops)
    after = distortion_of_points(moved, Lorentz(1.0), tree.hops)
    assert after.as_dict() == pytest.approx(before.as_dict(), rel=1e-10)


def test_coincident_points_are_infinitely_distorted() -> None:
    found = distortion_of_points(torch.zeros(3, 2), Euclidean(), path(3).hops)
    assert (found.average, found.unscaled, found.worst) == (1, 1, math.inf)
    assert math.isnan(found.scale)
    assert worst_distortion(torch.tensor([0.0, 1.0])) == math.inf
    # a pair at one point adds 1, the others none
    assert average_distortion(torch.tensor([0.0, 2.0, 2.0, 2.0])) == pytest.approx(1 / 4)


def test_bad_input_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, points = path(4), torch.rand(4, 2)
    bad = torch.rand(4, 4)
    bad[1, 3] = math.nan
    with pytest.raises(ValueError, match="nan between nodes 1 and 3"):
        distortion(lambda rows: bad[rows], tree.hops, 4)
    with pytest.raises(ValueError, match="points has 1 entries"):
        distortion_of_points(torch.tensor([[math.inf], [0.0]]), Euclidean(), path(2).hops)
    with pytest.raises(ValueError, match=r"hops must return shape \(4, 4\)"):
        distortion(lambda rows: bad[rows], lambda rows: bad[rows, :3], 4)
    with pytest.raises(ValueError, match="sources must number nodes from 0 to 3, got 4"):
        distortion_of_points(points, Euclidean(), tree.hops, sources=torch.tensor([4]))
    with pytest.raises(ValueError, match="sources is empty"):
        distortion_of_points(
            points, Euclidean(), tree.hops, sources=torch.tensor([], dtype=torch.int64)
        )
    with pytest.raises(ValueError, match="hops joins no two"):
        distortion_of_points(points[:1], Euclidean(), lambda rows: torch.zeros(1, 1))
    with pytest.raises(ValueError, match="ratio is empty"):
        average_distortion(torch.empty(0))
    with pytest.raises(ValueError, match="ratio has 1 entries"):
        average_distortion(torch.tensor([math.nan]))
    monkeypatch.setattr(module, "MAX_RATIOS", 5)
    with pytest.raises(ValueError, match=r"6 pairs of nodes are too many.*sources=1"):
        distortion_of_points(points, Euclidean(), tree.hops)
    assert distortion_of_points(points, Euclidean(), tree.hops, sources=1).pairs == 3


@pytest.mark.gpu
def test_a_gpu_finds_the_same() -> None:
    tree, points = path(20), torch.randn(20, 3)
    on_cpu = distortion_of_points(points, Lorentz(1.0), tree.hops)
    on_gpu = distortion_of_points(points.cuda(), Lorentz(1.0), tree.hops)
    assert on_gpu.as_dict() == pytest.approx(on_cpu.as_dict(), rel=1e-5)
