"""The search for the largest gap against all triples, and that it tries few."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from beltrami.analysis import gromov_search
from beltrami.analysis.gromov_search import largest_gap


def literal(a: Tensor) -> float:
    """Over all triples of different points."""
    a = a.clone().fill_diagonal_(-torch.inf)
    gaps = torch.minimum(a[:, :, None], a[None]).amax(1) - a
    return float(torch.where(torch.isfinite(gaps), gaps, -torch.inf).max())


def symmetric(n: int, kind: str, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    if kind == "numbers":
        a = torch.randn(n, n, generator=g, dtype=torch.float64)
    elif kind == "few numbers":
        a = torch.randint(3, (n, n), generator=g).double()
    else:  # an ultrametric, nearly
        points = torch.rand(n, generator=g, dtype=torch.float64)
        a = torch.minimum(points[:, None], points[None])
        a = a + 1e-3 * torch.rand(n, n, generator=g, dtype=torch.float64)
    return torch.maximum(a, a.mT)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3, 14),
    st.sampled_from(["numbers", "few numbers", "ultrametric"]),
    st.integers(0, 1000),
)
def test_against_all_triples(n: int, kind: str, seed: int) -> None:
    a = symmetric(n, kind, seed)
    expected, found = literal(a), largest_gap(a.clone())
    if expected <= 0:
        assert found is None
        return
    assert found is not None
    assert found.size == expected
    i, j, k = found.triple
    assert len({i, j, k}) == 3
    assert min(a[i, k], a[k, j]) - a[i, j] == found.size


@pytest.mark.parametrize("many", [0.0, 1.0], ids=["with the second bound", "without"])
@pytest.mark.parametrize("dense", [0.0, 1.0], ids=["all pairs of a block", "some"])
@pytest.mark.parametrize("largest", [1, 3, 64])
@pytest.mark.parametrize("block", [1, 100, 1 << 22])
def test_every_way(
    block: int, largest: int, dense: float, many: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is computed at once, by pairs or by blocks, with one bound or two."""
    for name, value in (
        ("BLOCK", block),
        ("LARGEST", largest),
        ("DENSE", dense),
        ("MANY", many),
    ):
        monkeypatch.setattr(gromov_search, name, value)
    for kind in ("numbers", "few numbers", "ultrametric"):
        a = symmetric(23, kind)
        found = largest_gap(a.clone())
        assert found is not None
        assert found.size == literal(a)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["numbers", "few numbers", "ultrametric"])
@pytest.mark.parametrize("dense", [0.0, gromov_search.DENSE_ON_GPU, 1.0])
def test_a_gpu_finds_the_same(kind: str, dense: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gromov_search, "DENSE_ON_GPU", dense)
    a = symmetric(300, kind)
    ours, theirs = largest_gap(a.cuda()), largest_gap(a.clone())
    assert ours is not None
    assert theirs is not None
    assert ours.size == theirs.size
    i, j, k = ours.triple
    assert min(a[i, k], a[k, j]) - a[i, j] == ours.size


def test_only_what_exceeds_a_bound() -> None:
    a = symmetric(12, "numbers")
    size = literal(a)
    assert largest_gap(a.clone(), above=size) is None
    found = largest_gap(a.clone(), above=size - 1e-9)
    assert found is not None
    assert found.size == size


def test_bottlenecks_are_the_widest_ways() -> None:
    """Against repeated (max, min) products, which end there."""
    a = symmetric(9, "numbers")
    widest = a.clone().fill_diagonal_(torch.inf)
    for _ in range(4):
        widest = torch.minimum(widest[:, :, None], widest[None]).amax(1)
    found = gromov_search._bottlenecks(a.clone().fill_diagonal_(-torch.inf))
    off = ~torch.eye(9, dtype=torch.bool)
    assert torch.equal(found[off], widest[off])


@pytest.mark.parametrize("dimensions", [2, 64])
def test_few_pairs_are_tried(dimensions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 400 Gaussian points, or it would not be fast."""
    tried = 0
    take = gromov_search._Search._take

    def counted(self: gromov_search._Search, gaps: Tensor, *where: Tensor) -> None:
        nonlocal tried
        tried += len(gaps)
        take(self, gaps, *where)

    monkeypatch.setattr(gromov_search._Search, "_take", counted)
    points = torch.randn(400, dimensions, generator=torch.Generator().manual_seed(0)).double()
    d = torch.cdist(points, points)
    largest_gap((d[0][None] + d[0][:, None] - d) / 2)
    assert tried < 0.2 * 400 * 399 / 2


def test_two_points_have_no_gap_and_all_rows_are_told() -> None:
    told: list[int] = []
    assert largest_gap(torch.zeros(2, 2), tick=told.append) is None
    largest_gap(symmetric(10, "numbers"), tick=told.append)
    assert sum(told) == 12
