from __future__ import annotations

import pytest
import torch
from torch import Tensor

from beltrami.geometry import lorentz
from beltrami.kernels.layers.residual import residual
from beltrami.kernels.pairs.gram_distances import gram_distances
from beltrami.kernels.pairs.pairwise import pairwise_dist
from tests.kernels.checks import saved_bytes
from tests.kernels.memory import LargestTensor

F64 = torch.float64


def points(*shape: int, dtype: torch.dtype = F64, radius: float = 3.0, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(*shape, dtype=F64, generator=g)
    v = v / v.norm(dim=-1, keepdim=True) * radius * torch.rand(*shape[:-1], 1, generator=g)
    return lorentz.exp0(v).to(dtype)


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, F64])


def compare(x, y, c, tile):
    """Values and gradients beside those of the whole matrix at once."""
    out, whole = pairwise_dist(x, y, c, tile=tile), lorentz.pairwise_dist(x, y, c)
    assert out.dtype == whole.dtype
    torch.testing.assert_close(out, whole)
    args = [t for t in (x, y, c) if isinstance(t, Tensor) and t.requires_grad]
    cotangent = torch.rand_like(whole)
    ours = torch.autograd.grad(out, args, cotangent)
    for a, b in zip(ours, torch.autograd.grad(whole, args, cotangent), strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b)


@DTYPES
@pytest.mark.parametrize("tile", [1, 3, 4, 100])
def test_equals_the_whole_matrix(dtype, tile):
    x = points(7, 5, dtype=dtype).requires_grad_()
    y = points(9, 5, dtype=dtype, seed=1).requires_grad_()
    c = torch.tensor([0.4], dtype=dtype, requires_grad=True)
    compare(x, y, c, tile)
    compare(x, y, 0.4, tile)


@DTYPES
def test_batches_of_sets_broadcast(dtype):
    x = points(2, 1, 5, 4, dtype=dtype).requires_grad_()
    y = points(3, 7, 4, dtype=dtype, seed=1).requires_grad_()
    shapes = [(1,), (3, 1, 1), (2, 1, 1, 1), (4, 1, 1, 1, 1)]
    for shape in shapes:
        c = torch.rand(shape, dtype=dtype).add(0.5).requires_grad_()
        compare(x, y, c, 3)


@DTYPES
def test_non_contiguous_and_empty(dtype):
    x = points(8, 6, dtype=dtype)[::2, 1::2].requires_grad_()
    y = points(3, 9, dtype=dtype, seed=1).T.requires_grad_()
    compare(x, y, 1.0, 3)
    for a, b in ((x[:0], y), (x, y[:0]), (x[:0], y[:0])):
        out = pairwise_dist(a, b, 1.0, tile=3)
        assert out.shape == (len(a), len(b))
        ga, gb = torch.autograd.grad(out.sum(), (a, b))
        assert ga.shape == a.shape
        assert not ga.any()
        assert not gb.any()


def test_half_precision():
    x, y = (points(7, 4, seed=s).bfloat16().requires_grad_() for s in (0, 1))
    compare(x, y, 1.0, 4)
    assert pairwise_dist(x, y, 1.0).dtype == torch.float32


def test_gradients():
    x, y = points(4, 3).requires_grad_(), points(5, 3, seed=1).requires_grad_()
    c = torch.tensor([0.7], dtype=F64, requires_grad=True)

    def tiled(*args: Tensor) -> Tensor:
        return pairwise_dist(*args, tile=3)

    assert torch.autograd.gradcheck(tiled, (x, y, c))
    assert torch.autograd.gradgradcheck(tiled, (x, y, c), atol=1e-4)


@DTYPES
def test_coincident_rows(dtype):
    x = points(10, 4, dtype=dtype, radius=4.0)
    x[:2] = 0.0
    x.requires_grad_()
    c = torch.ones(1, dtype=dtype, requires_grad=True)
    compare(x, x, c, 4)
    gradients = torch.autograd.grad(pairwise_dist(x, x, c, tile=4).sum(), (x, c))
    assert all(torch.isfinite(g).all() for g in gradients)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, F64])
@pytest.mark.parametrize("function", [pairwise_dist, lorentz.pairwise_dist])
def test_keeps_its_inputs_only(dtype, function):
    x, y = (points(n, 4, dtype=dtype).requires_grad_() for n in (60, 70))
    wide = torch.promote_types(dtype, torch.float32)
    c = torch.ones(1, dtype=wide, requires_grad=True)
    size = (60 + 70) * 4 * (dtype if function is pairwise_dist else wide).itemsize
    assert saved_bytes(lambda: function(x, y, c)) == size + c.itemsize


@DTYPES
def test_working_memory_is_a_tile(dtype):
    n, m, d, tile = 40, 50, 3, 8
    x, y = points(n, d, dtype=dtype).requires_grad_(), points(m, d, dtype=dtype).requires_grad_()
    with LargestTensor() as largest:
        pairwise_dist(x, y, 1.0, tile=tile)
    assert largest.elements == n * m  # the result, and nothing else of its size
    with LargestTensor() as largest:
        pairwise_dist(x[:tile], y[:tile], 1.0, tile=tile)
    assert largest.elements <= tile * tile * d
    g = torch.ones(n, m, dtype=dtype)
    out = pairwise_dist(x, y, 1.0, tile=tile)
    with LargestTensor() as largest:
        torch.autograd.grad(out, (x, y), g)
    assert largest.elements <= max(tile * tile * d, m * d)


def test_ignores_autocast():
    x = points(20, 5, dtype=torch.float32).requires_grad_()
    exact = pairwise_dist(x, x, tile=7)
    with torch.autocast("cpu", torch.bfloat16):
        out = pairwise_dist(x, x, tile=7)
        (g,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(out, exact)
    assert torch.equal(g, torch.autograd.grad(exact.sum(), x)[0])


@DTYPES
def test_compiles_in_one_graph(dtype):
    x = points(5, 3, dtype=dtype).requires_grad_()
    y = points(4, 3, dtype=dtype, seed=1).requires_grad_()
    c = torch.ones(1, dtype=dtype, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(pairwise_dist, fullgraph=True, backend="aot_eager")
    out, expected = compiled(x, y, c, tile=4), pairwise_dist(x, y, c, tile=4)
    torch.testing.assert_close(out, expected)
    ours = torch.autograd.grad(out.sum(), (x, y, c))
    for a, b in zip(ours, torch.autograd.grad(expected.sum(), (x, y, c)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("function", [pairwise_dist, gram_distances, residual])
def test_compiles_when_a_tensor_is_given_twice(function):
    x = points(5, 3, dtype=torch.float32).requires_grad_()
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    out, expected = compiled(x, x), function(x, x)
    torch.testing.assert_close(out, expected)
    w = torch.randn_like(out)
    torch.testing.assert_close(torch.autograd.grad(out, x, w), torch.autograd.grad(expected, x, w))


@DTYPES
def test_maps_over_sets(dtype):
    """Each way the mapped dimension can meet those of the sets themselves."""
    x, y = points(5, 6, 3, dtype=dtype), points(2, 5, 7, 3, dtype=dtype, seed=1)
    c = torch.linspace(0.5, 1.5, 5, dtype=dtype).unsqueeze(-1)

    def loss(a: Tensor, b: Tensor, k: Tensor) -> Tensor:
        return pairwise_dist(a, b, k, tile=4).square().sum()

    cases = [
        ((x, y, c), (0, 1, 0)),
        ((x, y[:, 0], c[0]), (0, None, None)),
        ((x[0], y, c[0]), (None, 1, None)),
        ((x[0], y[:, 0], c), (None, None, 0)),
        ((x.movedim(0, 2), y, c[:, None, None]), (2, 1, 0)),
        ((x, y[0, 0], c[:, :, None].expand(5, 1, 1)), (0, None, 0)),
    ]
    for args, dims in cases:
        each = [
            [t if dim is None else t.select(dim, i) for t, dim in zip(args, dims, strict=True)]
            for i in range(5)
        ]
        torch.testing.assert_close(
            torch.vmap(lambda a, b, k: pairwise_dist(a, b, k, tile=4), dims)(*args),
            torch.stack([lorentz.pairwise_dist(*one) for one in each]),
        )
        gradient = torch.func.grad(loss, argnums=(0, 1, 2))
        mapped = torch.vmap(gradient, dims)(*args)
        single = [gradient(*one) for one in each]
        for i in range(3):
            torch.testing.assert_close(mapped[i], torch.stack([g[i] for g in single]))


def test_errors_name_what_is_wrong():
    x = torch.zeros(4, 3)
    with pytest.raises(ValueError, match="tile must be at least 1, got 0"):
        pairwise_dist(x, x, tile=0)
    with pytest.raises(TypeError, match="tile must be an integer, got float"):
        pairwise_dist(x, x, tile=2.0)
    with pytest.raises(ValueError, match="rows of points"):
        pairwise_dist(x[0], x)
    with pytest.raises(ValueError, match="one curvature a set"):
        pairwise_dist(x, x, torch.ones(4, 1))
    with pytest.raises(ValueError, match="same last dimension"):
        pairwise_dist(x, x[:, :2])
