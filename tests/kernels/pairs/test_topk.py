from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from beltrami.geometry import lorentz
from beltrami.kernels.pairs import topk
from beltrami.kernels.pairs.topk import nearest
from tests.kernels.memory import LargestTensor

F64 = torch.float64
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, F64])


def points(*shape: int, dtype: torch.dtype = F64, radius: float = 3.0, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(*shape, dtype=F64, generator=g)
    v = v / v.norm(dim=-1, keepdim=True) * radius * torch.rand(*shape[:-1], 1, generator=g)
    return lorentz.exp0(v).to(dtype)


def plain(x: Tensor, y: Tensor, k: int, c: float) -> tuple[Tensor, Tensor]:
    """All distances, sorted with the first of equal ones first."""
    d, i = lorentz.dist(x[:, None], y, c).sort(dim=1, stable=True)
    return d[:, :k], i[:, :k]


@DTYPES
@pytest.mark.parametrize("tile", [1, 4, 7, 100])
@pytest.mark.parametrize("k", [1, 5, 23])
def test_equals_a_full_sort(dtype, tile, k):
    x, y = points(11, 4, dtype=dtype), points(23, 4, dtype=dtype, seed=1)
    d, i = nearest(x, y, k, 0.6, tile=tile)
    expected = plain(x.double(), y.double(), k, 0.6)
    assert i.dtype == torch.int64
    assert d.dtype == dtype
    assert torch.equal(i, expected[1])
    torch.testing.assert_close(d, expected[0].to(dtype))


@pytest.mark.parametrize("radius", [1e-3, 1.0, 6.0])
def test_finds_near_points(radius):
    """Each point's own neighbour, a thousandth away, in float32."""
    x = points(50, 8, radius=radius)
    step = torch.randn(50, 8, dtype=F64) * 1e-3 * min(radius, 1.0) / 8**0.5
    y = lorentz.exp(x, lorentz.transport_from0(x, step))
    d, i = nearest(x.float(), y.float(), 1)
    assert torch.equal(i[:, 0], torch.arange(50))
    exact = lorentz.dist(x.float().double(), y.float().double())
    torch.testing.assert_close(d[:, 0].double(), exact, rtol=1e-4, atol=0)


@DTYPES
@pytest.mark.parametrize("radius", [40.0, 1e-6])
def test_far_out_and_close_to_the_origin(dtype, radius):
    x, y = (points(9, 4, dtype=F64, radius=radius, seed=s) * 10 for s in (0, 1))
    x, y = x.to(dtype), y.to(dtype)
    d, i = nearest(x, y, 4, 0.01, tile=4)
    expected = plain(x.double(), y.double(), 4, 0.01)
    assert torch.equal(i, expected[1])
    torch.testing.assert_close(d, expected[0].to(dtype))


@DTYPES
def test_equal_rows_come_by_index(dtype):
    y = points(6, 3, dtype=dtype).repeat(4, 1)  # rows i, i + 6, i + 12, i + 18 are equal
    for k in (1, 2, 3, 4, 5):
        for tile in (1, 5, 24):
            d, i = nearest(y[:6], y, k, tile=tile)
            assert torch.equal(i[:, :4], (torch.arange(6)[:, None] + torch.arange(0, 24, 6))[:, :k])
            assert not d[:, :4].any()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 12), st.integers(1, 30))
def test_any_ties(values, tile, k):
    """Points on a line at whole distances: many ties, in float64 exact ones."""
    y = lorentz.exp0(torch.tensor(values, dtype=F64)[:, None])
    x = lorentz.exp0(torch.tensor([[0.0], [1.0], [2.5]], dtype=F64))
    k = min(k, len(values))
    d, i = nearest(x, y, k, tile=tile)
    expected = plain(x, y, k, 1.0)
    assert torch.equal(d, expected[0])
    assert torch.equal(i, expected[1])


@DTYPES
def test_distances_are_sorted_and_their_own(dtype):
    x, y = points(30, 3, dtype=dtype, radius=0.1), points(200, 3, dtype=dtype, radius=0.1, seed=1)
    d, i = nearest(x, y, 50, tile=64)
    assert (d.diff(dim=1) >= 0).all()
    assert torch.equal(d, lorentz.dist(x[:, None], y[i]))
    assert all(len(set(row.tolist())) == 50 for row in i)


def test_neighbours_that_all_but_tie_are_in_order():
    """On a sphere about x, where the choice and `dist` may round to different orders."""
    v = torch.randn(500, 3)
    y = v / v.norm(dim=1, keepdim=True) * 0.5
    d, i = nearest(torch.zeros(1, 3), y, 400, tile=64)
    assert (d.diff(dim=1) >= 0).all()
    ties = d.diff(dim=1) == 0
    assert ties.sum() > 100
    assert (i.diff(dim=1)[ties] > 0).all()


def test_gradients():
    x, y = points(4, 3).requires_grad_(), points(6, 3, seed=1).requires_grad_()
    c = torch.tensor([0.7], dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *a: nearest(*a[:2], 2, a[2], tile=4)[0], (x, y, c))
    d, i = nearest(x, y, 2, c)
    assert not i.requires_grad
    (gy,) = torch.autograd.grad(d.sum(), y)
    chosen = torch.zeros(6, dtype=torch.bool)
    chosen[i] = True
    assert torch.equal(gy.abs().sum(1) > 0, chosen)


def test_half_precision_and_autocast():
    x, y = (points(9, 4, seed=s).bfloat16() for s in (0, 1))
    d, i = nearest(x, y, 3)
    assert d.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        again = nearest(x, y, 3)
    for a, b in zip((d, i), again, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(i, plain(x.double(), y.double(), 3, 1.0)[1])


@DTYPES
def test_never_makes_the_matrix(dtype, monkeypatch):
    monkeypatch.setattr(topk, "_BLOCK_ELEMENTS", 100)
    n, m, d, k, tile = 60, 70, 3, 4, 8
    x, y = points(n, d, dtype=dtype), points(m, d, dtype=dtype)
    with LargestTensor() as largest:
        nearest(x, y, k, tile=tile)
    assert largest.elements <= max(100, tile * (tile + k), n * k * d)
    assert largest.elements < n * m / 4


def test_empty_and_odd_rows():
    y = points(5, 3)
    d, i = nearest(y[:0], y, 2)
    assert d.shape == i.shape == (0, 2)
    x = y.clone()
    x[1, 0] = torch.nan
    for dtype in (torch.float32, F64):
        d, i = nearest(x.to(dtype), y.to(dtype), 2, tile=2)
        assert d[1].isnan().all()
        assert ((i >= 0) & (i < 5)).all()
        assert torch.equal(i[[0, 2, 3, 4]], nearest(y.to(dtype), y.to(dtype), 2)[1][[0, 2, 3, 4]])
        # a row of y that is NaN is nobody's neighbour
        assert not (nearest(y.to(dtype), x.to(dtype), 4, tile=2)[1] == 1).any()


@DTYPES
def test_compiles_in_one_graph(dtype):
    x = points(5, 3, dtype=dtype).requires_grad_()
    y = points(7, 3, dtype=dtype, seed=1).requires_grad_()
    torch._dynamo.reset()
    compiled = torch.compile(nearest, fullgraph=True, backend="aot_eager")
    d, i = compiled(x, y, 3, 1.0, tile=4)
    expected, index = nearest(x, y, 3, 1.0, tile=4)
    assert torch.equal(i, index)
    torch.testing.assert_close(d, expected)
    ours = torch.autograd.grad(d.sum(), (x, y))
    for a, b in zip(ours, torch.autograd.grad(expected.sum(), (x, y)), strict=True):
        torch.testing.assert_close(a, b)


X = torch.zeros(4, 3)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nearest(X, X, 5), ValueError, "at most the number of rows of y, 4, got 5"),
        (lambda: nearest(X, X[:0], 1), ValueError, "at most the number of rows of y, 0, got 1"),
        (lambda: nearest(X, X, 0), ValueError, "k must be at least 1, got 0"),
        (lambda: nearest(X, X, 1.0), TypeError, "k must be an integer, got float"),
        (lambda: nearest(X, X, 1, tile=0), ValueError, "tile must be at least 1, got 0"),
        (lambda: nearest(X[0], X, 1), ValueError, "rows of points"),
        (lambda: nearest(X[None], X, 1), ValueError, "rows of points"),
        (lambda: nearest(X, X[:, :2], 1), ValueError, "same last dimension"),
        (lambda: nearest(X, X, 1, torch.ones(4, 1)), ValueError, "one curvature"),
        (lambda: nearest(X, X, 1, -1.0), ValueError, "c must be a positive"),
        (lambda: nearest(X.long(), X, 1), TypeError, "floating point"),
    ],
)
def test_errors_name_what_is_wrong(call, error, text):
    with pytest.raises(error, match=text):
        call()
