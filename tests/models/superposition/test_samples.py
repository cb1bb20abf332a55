"""Sparse samples: their moments, their independence, and that a step is a step whenever asked."""

from __future__ import annotations

import pytest
import torch

from beltrami.models.superposition import FeatureSamples, denser, power_law
from beltrami.models.superposition.samples import Batch, Room, padded


def dense(data: FeatureSamples, steps: int) -> torch.Tensor:
    return torch.cat([data.batch(i).dense(len(data)) for i in range(steps)]).double()


@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_moments(share: float) -> None:
    """⟨x⟩ = p and ⟨x²⟩ = 4p/3; features are independent. Bounds are 5 standard errors."""
    p = denser(power_law(12, 1.0), share)
    x = dense(FeatureSamples(p, 500, seed=3), 80)
    count = len(x)
    there = (x > 0).double()
    error = (p * (1 - p) / count).sqrt()
    assert bool(((there.mean(0) - p).abs() <= 5 * error + 1e-12).all())
    assert bool(((x.mean(0) - p).abs() <= 5 * (4 / 3 * p / count).sqrt()).all())
    squares = x.square().mean(0)
    assert bool(((squares - 4 / 3 * p).abs() <= 5 * (16 / 5 * p / count).sqrt()).all())
    assert float(x.max()) < 2
    assert float(x.max()) > 1.95
    both = there.mT @ there / count
    expected = torch.outer(p, p)
    spread = (expected * (1 - expected) / count).sqrt()
    pairs = ~torch.eye(12, dtype=torch.bool)
    assert bool(((both - expected).abs() <= 5 * spread + 1e-12)[pairs].all())


def test_a_step_is_the_same_whenever_it_is_asked_for() -> None:
    p = power_law(30, 1.0)
    one, other = FeatureSamples(p, 20, seed=1, chunk=4), FeatureSamples(p, 20, seed=1, chunk=4)
    forward = [one.batch(i).dense(30) for i in range(9)]
    backward = [other.batch(i).dense(30) for i in reversed(range(9))]
    assert all(map(torch.equal, forward, reversed(backward)))
    assert not torch.equal(forward[0], forward[4])
    assert not torch.equal(forward[0], FeatureSamples(p, 20, seed=2, chunk=4).batch(0).dense(30))


def test_rows_are_those_that_have_features() -> None:
    data = FeatureSamples(power_law(30, 1.0), 200)
    for step in range(3):
        batch = data.batch(step)
        assert batch.rows.unique().tolist() == list(range(batch.count))
        pairs = batch.rows * 30 + batch.features
        assert len(pairs.unique()) == len(pairs)
        assert 0.4 * 200 < batch.count < 0.9 * 200


def test_batches_without_anything() -> None:
    data = FeatureSamples(torch.tensor([1e-6, 1e-7]), 3, chunk=5)
    for step in range(5):
        assert (data.batch(step).count, len(data.batch(step).rows)) == (0, 0)
        assert data.batch(step).dense(2).tolist() == [[0.0, 0.0]] * 3


def test_padding_changes_nothing() -> None:
    data = FeatureSamples(denser(power_law(30, 1.0), 0.3), 50)
    room = data.room()
    for step in range(20):
        batch = data.batch(step)
        full = padded(batch, room)
        assert (len(full.rows), full.count) == (room.entries, room.rows)
        x = full.values.new_zeros(room.rows, 30)
        x.index_put_((full.rows, full.features), full.values, accumulate=True)
        assert torch.equal(x[: batch.count], batch.dense(30)[: batch.count])
        assert not bool(x[batch.count :].any())


@pytest.mark.parametrize("samples", [0, -3, 2.5])
def test_bad_numbers_of_samples(samples: int) -> None:
    with pytest.raises((ValueError, TypeError), match="samples must be"):
        FeatureSamples(torch.tensor([0.5]), samples)


def test_what_does_not_fit_is_refused() -> None:
    batch = Batch(torch.tensor([0, 1]), torch.tensor([0, 0]), torch.ones(2), 2, 5)
    with pytest.raises(ValueError, match="2 rows with 2 entries do not fit into 2"):
        padded(batch, Room(2, 4))
    with pytest.raises(ValueError, match="do not fit"):
        padded(batch, Room(3, 1))
    for p in ([0.0, 0.5], [0.5, 1.5]):
        with pytest.raises(ValueError, match="probabilities"):
            FeatureSamples(torch.tensor(p), 3)
