from __future__ import annotations

import torch

from beltrami.train.seeding import epoch_order, mix_seeds, seeded
from beltrami.train.threads import one_thread


def test_seeded_draws_repeat_and_leave_the_state_alone() -> None:
    before = torch.get_rng_state()
    with seeded(7):
        first = torch.rand(3)
    with seeded(7):
        assert torch.equal(torch.rand(3), first)
    with seeded(8):
        assert not torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_orders_are_permutations_that_differ_by_seed_and_epoch() -> None:
    orders = [epoch_order(50, seed, epoch) for seed in range(3) for epoch in range(3)]
    for order in orders:
        assert torch.equal(order.sort().values, torch.arange(50))
    assert len({tuple(order.tolist()) for order in orders}) == len(orders)
    assert torch.equal(orders[4], epoch_order(50, 1, 1))
    assert len({mix_seeds(seed, step) for seed in range(5) for step in range(1000)}) == 5000


def test_one_thread_and_back() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
