"""Embedding: where the rows start, and what an index may be."""

from __future__ import annotations

import pytest
import torch

from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold, PoincareBall
from beltrami.nn.embedding import Embedding

MANIFOLDS = [Lorentz(0.7), PoincareBall(0.7), Euclidean(), Lorentz(Curvature(2.0))]


@pytest.mark.parametrize("manifold", MANIFOLDS)
@pytest.mark.parametrize(("radius", "size"), [(1.0, 16), (0.05, 16), (3.0, 2)])
def test_radius_is_the_root_mean_square_distance(
    manifold: Manifold, radius: float, size: int
) -> None:
    table = Embedding(20000, size, manifold=manifold, radius=radius).weight.detach()
    distance = manifold.dist0(table).square().mean().sqrt()
    # 20000 rows of at least 2 coordinates: the standard error is 0.4 percent
    torch.testing.assert_close(distance, torch.tensor(radius), rtol=0.02, atol=0)
    direction = torch.nn.functional.normalize(table, dim=-1).mean(0)
    assert direction.norm() < 0.05


@pytest.mark.parametrize("manifold", MANIFOLDS)
def test_looks_up_rows(manifold: Manifold) -> None:
    layer = Embedding(11, 4, manifold=manifold)
    ids = torch.randint(11, (2, 3, 5))
    assert torch.equal(layer(ids), layer.weight[ids])
    assert layer(ids.int()).shape == (2, 3, 5, 4)
    assert layer.manifold_of == {"weight": manifold}
    assert layer.no_weight_decay() == {"weight"}


@pytest.mark.parametrize("padding", [3, -8])
def test_padding_is_the_origin_and_stays_there(padding: int) -> None:
    layer = Embedding(11, 4, manifold=Lorentz(), padding_idx=padding)
    assert layer.padding_idx == 3
    out = layer(torch.tensor([0, 3, 3, 5]))
    assert torch.equal(out[1:3], torch.zeros(2, 4))
    assert (out[[0, 3]] != 0).all()
    out.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad[3].abs().max() == 0
    assert layer.weight.grad[5].abs().min() > 0


def test_sparse_gradient() -> None:
    layer = Embedding(11, 4, manifold=Lorentz(), sparse=True)
    layer(torch.tensor([1, 7])).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.is_sparse
    assert layer.weight.grad.coalesce().indices().flatten().tolist() == [1, 7]


def test_starts_again_and_on_the_meta_device() -> None:
    layer = Embedding(5, 4, manifold=PoincareBall())
    before = layer.weight.detach().clone()
    layer.reset_parameters()
    assert (layer.weight != before).any()
    with torch.device("meta"):
        assert Embedding(5, 4, manifold=Lorentz(Curvature(1.0))).weight.is_meta


def test_errors_name_the_number() -> None:
    layer = Embedding(11, 4, manifold=Lorentz())
    with pytest.raises(IndexError, match=r"rows 0 to 10, got ids from 2 to 11"):
        layer(torch.tensor([2, 11]))
    with pytest.raises(IndexError, match=r"got ids from -1 to 2"):
        layer(torch.tensor([2, -1]))
    with pytest.raises(TypeError, match=r"int32 or int64, got torch.float32"):
        layer(torch.zeros(3))
    with pytest.raises(ValueError, match=r"padding_idx must lie between -11 and 10"):
        Embedding(11, 4, manifold=Lorentz(), padding_idx=11)
    with pytest.raises(ValueError, match=r"radius must be positive"):
        Embedding(11, 4, manifold=Lorentz(), radius=-1.0)
    with pytest.raises(ValueError, match=r"√c·radius < 15, got radius=10 with √c·radius=20"):
        Embedding(11, 4, manifold=PoincareBall(4.0), radius=10.0)
    with pytest.raises(ValueError, match=r"√c·radius < 44"):
        Embedding(11, 4, manifold=Lorentz(Curvature(4.0)), radius=30.0)
    assert Embedding(11, 4, manifold=Euclidean(), radius=1e3).radius == 1e3


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.uint8, torch.bool])
def test_other_integers_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=f"Embedding takes ids of .*int64, got {dtype}"):
        Embedding(4, 3, manifold=Lorentz())(torch.zeros(2, dtype=dtype))


def test_curvature_may_be_a_parameter() -> None:
    """Its number is read without a warning, and the table does not hang on it."""
    c = torch.nn.Parameter(torch.tensor([0.2]))
    table = Embedding(11, 256, manifold=Lorentz(c))
    assert table.radius == pytest.approx(Embedding(11, 256, manifold=Lorentz(0.2)).radius)
    assert table.weight.is_leaf


@pytest.mark.parametrize("manifold", [Lorentz(0.2), Lorentz(Curvature(3.0)), Euclidean()])
def test_default_radius_is_that_of_coordinates_of_variance_one(
    manifold: Lorentz | Euclidean,
) -> None:
    table = Embedding(2000, 256, manifold=manifold)
    assert table.weight.std().item() == pytest.approx(1.0, rel=0.1)
    ball = Embedding(2000, 256, manifold=PoincareBall(0.2))
    same = Embedding(2000, 256, manifold=Lorentz(0.2))
    assert ball.radius == same.radius
    rms = ball.manifold.dist0(ball.weight).square().mean().sqrt().item()
    assert rms == pytest.approx(ball.radius, rel=0.02)
