from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beltrami.analysis import depth_correlation, kendall_tau, radii, spearman
from beltrami.geometry import Euclidean, Lorentz, PoincareBall, lorentz

VECTORS = st.integers(2, 40).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(-3, 3), min_size=n, max_size=n),
        st.lists(st.floats(-2, 2, width=16), min_size=n, max_size=n),
    )
)


@settings(max_examples=50)
@given(VECTORS)
def test_correlations_are_those_of_scipy(vectors: tuple[list[int], list[float]]) -> None:
    a, b = vectors
    x, y = torch.tensor(a), torch.tensor(b, dtype=torch.float64)
    if len(set(a)) == 1 or len(set(b)) == 1:  # scipy warns there
        assert math.isnan(spearman(x, y))
        assert math.isnan(kendall_tau(x, y))
        return
    assert spearman(x, y) == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-12)
    tau = scipy.stats.kendalltau(a, b).statistic
    assert kendall_tau(x, y) == pytest.approx(tau, abs=1e-12)
    both = depth_correlation(x, y)
    assert both.as_dict() == {"spearman": spearman(x, y), "kendall": kendall_tau(x, y)}


@pytest.mark.parametrize("levels", [7, 5000])
def test_long_vectors(levels: int) -> None:
    x = torch.randint(levels, (5001,))
    y = x + levels * torch.randn(5001, dtype=torch.float64)
    tau = scipy.stats.kendalltau(x.numpy(), y.numpy()).statistic
    assert kendall_tau(x, y) == pytest.approx(tau, abs=1e-12)
    rho = scipy.stats.spearmanr(x.numpy(), y.numpy()).statistic
    assert spearman(x, y) == pytest.approx(rho, abs=1e-12)


def test_by_hand() -> None:
    # 6 pairs; one is tied in x; of the other five four agree and one does not
    x, y = torch.tensor([0, 1, 1, 2]), torch.tensor([1.0, 3.0, 2.0, 2.5])
    assert kendall_tau(x, y) == pytest.approx((4 - 1) / math.sqrt(5 * 6))
    assert kendall_tau(x, y) == kendall_tau(y, x)
    assert kendall_tau(x, -y) == -kendall_tau(x, y)
    assert spearman(x, x.double() ** 3) == pytest.approx(1)
    assert kendall_tau(x, x.double() ** 3) == 1


def test_radii_grow_with_depth() -> None:
    depth = torch.arange(5)
    ray = torch.zeros(5, 3)
    ray[:, 1] = 0.5 * depth
    for manifold in (Lorentz(2.0), PoincareBall(2.0), Euclidean()):
        points = manifold.exp0(ray)
        assert torch.allclose(radii(points, manifold), 0.5 * depth)
        assert torch.allclose(radii(points, manifold, root=4), 0.5 * (4 - depth))
        assert depth_correlation(depth, radii(points, manifold)).kendall == 1
        assert depth_correlation(depth, radii(points, manifold, root=4)).kendall == -1


def test_isometries_that_keep_the_origin_change_nothing() -> None:
    points = lorentz.exp0(torch.randn(30, 3, dtype=torch.float64), 1.0)
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    depth = torch.randint(4, (30,))
    before = depth_correlation(depth, radii(points, Lorentz(1.0)))
    assert depth_correlation(depth, radii(points @ turn, Lorentz(1.0))) == before
    order = torch.randperm(30)
    renamed = depth_correlation(depth[order], radii(points[order], Lorentz(1.0)))
    assert renamed.as_dict() == pytest.approx(before.as_dict(), abs=1e-14)


def test_single_nodes_have_no_correlation_and_bad_input_is_named() -> None:
    one = torch.tensor([1.0])
    assert math.isnan(spearman(one, one))
    assert math.isnan(kendall_tau(one, one))
    with pytest.raises(ValueError, match="x and y are empty"):
        spearman(torch.empty(0), torch.empty(0))
    with pytest.raises(ValueError, match="radius has 1 entries that are not finite"):
        depth_correlation(torch.tensor([0, 1]), torch.tensor([0.0, math.nan]))
    with pytest.raises(ValueError, match="depth and radius must have the same shape"):
        depth_correlation(torch.tensor([0, 1]), torch.tensor([0.0]))
    with pytest.raises(ValueError, match="root must be at most 1, got 2"):
        radii(torch.zeros(2, 2), Euclidean(), root=2)


@pytest.mark.gpu
def test_a_gpu_finds_the_same() -> None:
    x, y = torch.randint(5, (400,)), torch.randn(400)
    assert depth_correlation(x.cuda(), y.cuda()).as_dict() == pytest.approx(
        depth_correlation(x, y).as_dict(), abs=1e-12
    )
