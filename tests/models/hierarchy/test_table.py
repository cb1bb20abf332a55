"""A table of points: where it starts, what it looks up, what trains it."""

from __future__ import annotations

import math

import pytest
import torch

from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, Product
from beltrami.models.hierarchy.table import PointTable
from beltrami.optim import RiemannianSGD, param_groups

MANIFOLDS = [
    Lorentz(1.0),
    Lorentz(0.3),
    PoincareBall(1.0),
    Product([(Lorentz(1.0), 3), (Lorentz(2.0), 2)]),
    Euclidean(),
]
EVERYWHERE = pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)


@EVERYWHERE
def test_starts_at_a_radius_about_the_origin(manifold: Manifold) -> None:
    table = PointTable(4000, 5, manifold, radius=0.5)
    assert table.weight.shape == (4000, 5)
    assert table.weight.dtype == torch.float64
    square = manifold.dist0(table.weight).square().mean().item()
    assert math.sqrt(square) == pytest.approx(0.5, rel=0.03)


@EVERYWHERE
def test_starts_at_the_same_tangent_vectors_in_every_geometry(manifold: Manifold) -> None:
    table, flat = (PointTable(20, 5, m, radius=0.5, seed=3) for m in (manifold, Euclidean()))
    torch.testing.assert_close(manifold.log0(table.weight), flat.weight.detach())
    other = PointTable(20, 5, manifold, radius=0.5, seed=4)
    assert not torch.equal(other.weight, table.weight)
    again = PointTable(20, 5, manifold, radius=0.5, seed=3)
    assert torch.equal(again.weight, table.weight)


@EVERYWHERE
def test_looks_rows_up(manifold: Manifold) -> None:
    table = PointTable(6, 5, manifold, radius=1.0)
    nodes = torch.tensor([4, 0, 4])
    assert torch.equal(table(nodes), table.weight[nodes])
    weights = torch.randn(3, 5, dtype=torch.float64)
    (found,) = torch.autograd.grad((table(nodes) * weights).sum(), table.weight)
    expected = torch.zeros(6, 5, dtype=torch.float64).index_add(0, nodes, weights)
    torch.testing.assert_close(found, expected)
    assert table(torch.empty(0, dtype=torch.int64)).shape == (0, 5)


@EVERYWHERE
def test_an_optimiser_knows_its_manifold(manifold: Manifold) -> None:
    table = PointTable(6, 5, manifold, radius=1.0)
    assert [group["manifold"] for group in param_groups(table)] == [manifold]
    optimizer = RiemannianSGD(table, lr=0.1)
    before = table.weight.detach().clone()
    goal = manifold.origin(6, 5, dtype=torch.float64)
    manifold.dist_sq(table.weight, goal).sum().backward()
    optimizer.step()
    # A step of 0.1 against the gradient 2·d of d² leaves 0.8 of the way, along the geodesic.
    torch.testing.assert_close(manifold.log0(table.weight), 0.8 * manifold.log0(before))
