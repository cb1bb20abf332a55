"""Cones are learned, the same ones every time."""

from __future__ import annotations

import pytest
import torch

from beltrami.geometry import Euclidean, Lorentz, Manifold, PoincareBall
from beltrami.losses import least_radius
from beltrami.models.hierarchy import ConeEmbedding, judge_cones, sarkar, split_closure
from beltrami.recipes.cones.training import ConesSettings, train_cones
from beltrami.recipes.recipe import Trial
from beltrami.train.session import Session
from tests.models.hierarchy.test_closure_split import binary_hierarchy

MANIFOLDS = [Lorentz(1.0), PoincareBall(0.5), Euclidean()]


def trial_of(epochs: int, batch: int, rate: float, seed: int = 0) -> Trial[ConesSettings]:
    settings = ConesSettings(
        share=0.5,
        dim=3,
        epochs=epochs,
        batch=batch,
        min_radius=0.1,
        margin=0.1,
        learning_rate=rate,
    )
    return Trial("cones", "", seed, settings)


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
def test_training_learns_a_tree(manifold: Manifold) -> None:
    """From a disturbed Sarkar layout, F1 on held-out pairs rises, far above calling all true."""
    hierarchy = binary_hierarchy(5)
    split = split_closure(hierarchy, share=0.5, seed=0, held_out=0.2)
    tree = hierarchy.spanning_tree()
    layout = sarkar(tree, edge_length=1.5, dim=3).tangent(torch.float32)
    place = [tree.labels.index(label) for label in hierarchy.labels]
    start = manifold.exp0(layout[place] + 0.5 * torch.randn(len(hierarchy), 3))
    table = ConeEmbedding(start, manifold=manifold)
    before = judge_cones(table, split)
    session = Session()
    train_cones(table, split, trial_of(epochs=60, batch=64, rate=0.0115), session)
    after = judge_cones(table, split)
    losses = [entry["loss"] for entry in session.history]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    assert after.f1 > before.f1 + 0.1
    assert after.f1 > 0.6
    assert bool((manifold.dist0(table.weight) >= least_radius(manifold)).all())


def test_training_repeats_itself() -> None:
    split = split_closure(binary_hierarchy(4), share=0.5, seed=0)
    start = torch.randn(31, 2)

    def trained() -> torch.Tensor:
        table = ConeEmbedding(start, manifold=Lorentz(1.0))
        train_cones(table, split, trial_of(epochs=2, batch=256, rate=0.01, seed=4))
        return table.weight.detach()

    assert torch.equal(trained(), trained())


def test_the_split_must_be_of_the_nodes() -> None:
    split = split_closure(binary_hierarchy(4), share=0.5, seed=0)
    table = ConeEmbedding(torch.randn(4, 3), manifold=Lorentz(1.0))
    with pytest.raises(ValueError, match="31 nodes"):
        train_cones(table, split, trial_of(epochs=1, batch=256, rate=0.1))
