"""Entailment cones of hierarchies: the table, its start, and that training helps."""

from __future__ import annotations

import pytest
import torch

from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall, Sphere
from beltrami.losses import entailment_energy, least_radius
from beltrami.models.hierarchy import (
    ConeEmbedding,
    epoch_pairs,
    judge_cones,
    split_closure,
)
from beltrami.models.hierarchy.cones import check_split
from tests.models.hierarchy.test_closure_split import binary_hierarchy

MANIFOLDS = [Lorentz(1.0), PoincareBall(0.5), Euclidean()]


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
def test_the_start_is_moved_out_and_keeps_its_order(manifold: Manifold) -> None:
    points = manifold.random(50, 3, std=0.5, dtype=torch.float64)
    points[0] = 0
    table = ConeEmbedding(points, manifold=manifold, min_radius=0.3)
    least = least_radius(manifold, 0.3)
    before, after = manifold.dist0(points), manifold.dist0(table.weight.detach())
    torch.testing.assert_close(after[1:], before[1:] + least, rtol=1e-5, atol=1e-5)
    assert after[0] >= least
    cosine = torch.cosine_similarity(points[1:], table.weight[1:], dim=-1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))
    assert table.manifold_of == {"weight": manifold}


def test_energy_has_the_ancestor_as_apex() -> None:
    table = ConeEmbedding(torch.randn(6, 3), manifold=Lorentz(1.0), min_radius=0.2)
    pairs = torch.tensor([[1, 4], [2, 0]])
    x = table.weight.detach()
    expected = entailment_energy(x[[4, 0]], x[[1, 2]], Lorentz(1.0), min_radius=0.2)
    assert torch.equal(table.cone_energy(pairs), expected)
    assert table.cone_energy(pairs.view(1, 2, 1, 2)).shape == (1, 2, 1)


def test_keep_outside_moves_only_what_is_inside() -> None:
    table = ConeEmbedding(torch.randn(6, 3), manifold=Lorentz(1.0))
    before = table.weight.detach().clone()
    with torch.no_grad():
        table.weight[2] = torch.tensor([0.0, 0.01, 0.0])
    table.keep_outside()
    assert Lorentz(1.0).dist0(table.weight[2]) >= least_radius(Lorentz(1.0))
    kept = [0, 1, 3, 4, 5]
    assert torch.equal(table.weight[kept], before[kept])


def test_epoch_pairs_depend_on_seed_and_epoch_alone() -> None:
    split = split_closure(binary_hierarchy(4), share=0.5, seed=0)
    shown = set(map(tuple, split.train.tolist()))
    true, false = epoch_pairs(split, seed=3, epoch=7, corruptions=2)
    assert set(map(tuple, true.tolist())) == shown
    assert false.shape == (len(true), 4, 2)
    assert not shown & set(map(tuple, false.flatten(0, 1).tolist()))
    again = epoch_pairs(split, seed=3, epoch=7, corruptions=2)
    assert torch.equal(true, again[0])
    assert torch.equal(false, again[1])
    for seed, epoch in ((3, 8), (4, 7)):
        assert not torch.equal(true, epoch_pairs(split, seed=seed, epoch=epoch)[0])


def test_the_threshold_is_best_on_the_validation_pairs() -> None:
    split = split_closure(binary_hierarchy(5), share=0.5, seed=0)
    table = ConeEmbedding(torch.randn(63, 3), manifold=Lorentz(1.0))
    valid, test = judge_cones(table, split, "valid"), judge_cones(table, split)
    assert valid.threshold == test.threshold
    pairs = torch.cat([split.valid, split.valid_false])
    truth = torch.arange(len(pairs)) < len(split.valid)
    energy = table.cone_energy(pairs).detach()
    for threshold in energy.unique().tolist():
        called = energy <= threshold
        f1 = 2 * (called & truth).sum() / (called.sum() + truth.sum())
        assert f1 <= valid.f1 + 1e-6


def test_bad_input() -> None:
    with pytest.raises(TypeError, match="Lorentz"):
        ConeEmbedding(torch.randn(4, 3), manifold=Sphere(1.0))
    with pytest.raises(ValueError, match="points"):
        ConeEmbedding(torch.randn(4), manifold=Lorentz(1.0))
    table = ConeEmbedding(torch.randn(4, 3), manifold=Lorentz(1.0))
    split = split_closure(binary_hierarchy(4), share=0.5, seed=0)
    with pytest.raises(ValueError, match="31 nodes"):
        check_split(table, split)
    with pytest.raises(ValueError, match="part must be"):
        judge_cones(table, split, "train")  # type: ignore[arg-type]
