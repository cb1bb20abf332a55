"""The parts of the training: rates, steps, pools; that it learns, and goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from beltrami import analysis as measures
from beltrami.data import load_hierarchy
from beltrami.geometry import (
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Sphere,
    Stereographic,
)
from beltrami.models.hierarchy.relation import Relation
from beltrami.models.hierarchy.table import PointTable
from beltrami.optim import RiemannianSGD
from beltrami.recipes.hierarchy.config import HierarchyConfig
from beltrami.recipes.hierarchy.training import (
    _batches,
    _pool,
    _total_loss,
    rate_share,
    shorten_gradient,
    train_table,
)
from beltrami.train.checkpoint import load_checkpoint, save_checkpoint
from beltrami.train.processes import Processes
from beltrami.train.progress import ProgressListener
from beltrami.train.seeding import epoch_order

from .small import binary_tree, session, small_config, trial

F64 = torch.float64


# --- rates ----------------------------------------------------------------------------------------


def test_the_rate_burns_in_and_falls() -> None:
    assert [rate_share(p, 0.3) for p in (0.0, 0.299)] == [0.01, 0.01]
    assert [rate_share(p, 0.3) for p in (0.3, 0.5, 0.9)] == pytest.approx([0.7, 0.5, 0.1])
    assert rate_share(0.999, 0.3) == 0.01  # and never less
    assert rate_share(0.0, 0.0) == 1.0


# --- steps ----------------------------------------------------------------------------------------

X = torch.tensor([[0.3, -0.2, 0.1], [0.0, 0.0, 0.0], [0.1, 0.5, -0.4]], dtype=F64)
G = torch.tensor([[3.0, 1.0, -2.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=F64)


def lorentz_length(x: Tensor, g: Tensor, c: float) -> Tensor:
    """gᵀ(I + c·xxᵀ)g, the inverse of the metric in space coordinates."""
    return (g.square().sum(-1) + c * (x * g).sum(-1).square()).sqrt()


def ball_length(x: Tensor, g: Tensor, kappa: float) -> Tensor:
    return (1 + kappa * x.square().sum(-1)) / 2 * g.norm(dim=-1)


def both_length(x: Tensor, g: Tensor) -> Tensor:
    first = lorentz_length(x[:, :2], g[:, :2], 1.0)
    return torch.hypot(first, lorentz_length(x[:, 2:], g[:, 2:], 2.0))


BY_HAND = {
    Lorentz(1.0): lambda x, g: lorentz_length(x, g, 1.0),
    Lorentz(0.4): lambda x, g: lorentz_length(x, g, 0.4),
    PoincareBall(1.0): lambda x, g: ball_length(x, g, -1.0),
    PoincareBall(2.0): lambda x, g: ball_length(x, g, -2.0),
    Stereographic(0.5): lambda x, g: ball_length(x, g, 0.5),
    Product([(Lorentz(1.0), 2), (Lorentz(2.0), 1)]): both_length,
    Euclidean(): lambda x, g: g.norm(dim=-1),
    Sphere(1.0): lambda x, g: (g - (x * g).sum(-1, keepdim=True) * x).norm(dim=-1),
}


@pytest.mark.parametrize("manifold", BY_HAND, ids=repr)
def test_gradients_are_shortened_to_a_riemannian_length(manifold: Manifold) -> None:
    x = manifold.project(X + 0.1 if isinstance(manifold, Sphere) else X)
    lengths = BY_HAND[manifold](x, G)
    longest = 0.4 * lengths[0].item()  # shortens the first row, and the second in some
    points = torch.nn.Parameter(x.clone())
    points.grad = G.clone()
    shorten_gradient(points, manifold, longest)
    assert torch.equal(points.detach(), x)
    share = (longest / lengths).clamp(max=1.0).nan_to_num(1.0)
    torch.testing.assert_close(points.grad, share[:, None] * G)
    assert torch.equal(points.grad[2], torch.zeros(3, dtype=F64))  # no gradient, no NaN
    assert BY_HAND[manifold](x, points.grad).max().item() == pytest.approx(longest, rel=1e-12)


@pytest.mark.parametrize(
    "manifold", [m for m in BY_HAND if not isinstance(m, Sphere | Stereographic)], ids=repr
)
def test_no_point_moves_farther_than_the_longest_step(manifold: Manifold) -> None:
    points = torch.nn.Parameter(X.clone())
    points.grad = 100 * G.clone()
    before, rate, longest = X.clone(), 0.3, 0.2
    shorten_gradient(points, manifold, longest / rate)
    RiemannianSGD([points], lr=rate, manifold=manifold).step()
    moved = manifold.dist(points.detach(), before)
    torch.testing.assert_close(moved, torch.tensor([longest, longest, 0.0], dtype=F64))


def test_without_a_gradient_there_is_nothing_to_shorten() -> None:
    points = torch.nn.Parameter(X.clone())
    shorten_gradient(points, Lorentz(1.0), 1.0)
    assert points.grad is None


# --- pools and orders -----------------------------------------------------------------------------

STAR = Relation(torch.tensor([[i, 0] for i in range(1, 11)]), 40)  # 29 nodes are in no pair


@pytest.mark.parametrize("size", [1, 7, 39])
@pytest.mark.parametrize("by_degree", [False, True])
def test_a_pool_has_different_nodes(size: int, by_degree: bool) -> None:
    draws = torch.Generator().manual_seed(0)
    for _ in range(20):
        pool = _pool(STAR, size, STAR.degree if by_degree else None, draws)
        assert pool.dtype == torch.int64
        assert len(set(pool.tolist())) == size
        assert int(pool.min()) >= 0
        assert int(pool.max()) < 40


@pytest.mark.parametrize("size", [40, 41])
def test_a_large_pool_is_everybody(size: int) -> None:
    draws = torch.Generator().manual_seed(0)
    for weights in (None, STAR.degree):
        assert _pool(STAR, size, weights, draws).tolist() == list(range(40))


def test_a_pool_by_degree_prefers_nodes_in_many_pairs() -> None:
    draws = torch.Generator().manual_seed(0)
    drawn = torch.cat([_pool(STAR, 1, STAR.degree, draws) for _ in range(400)])
    assert (drawn == 0).double().mean().item() == pytest.approx(0.5, abs=0.1)  # 10 of 20 ends
    assert int(drawn.max()) <= 10
    even = torch.cat([_pool(STAR, 1, None, draws) for _ in range(400)])
    assert (even <= 10).double().mean().item() == pytest.approx(11 / 40, abs=0.1)


def test_an_order_is_that_of_its_seed_and_epoch() -> None:
    first = epoch_order(50, 1, 2)
    assert sorted(first.tolist()) == list(range(50))
    assert torch.equal(first, epoch_order(50, 1, 2))
    for seed, epoch in ((1, 3), (2, 2), (0, 2)):
        assert not torch.equal(first, epoch_order(50, seed, epoch))


@pytest.mark.parametrize(("count", "size"), [(1, 14), (3, 5), (4, 4), (14, 1)])
def test_batches_are_of_one_size(count: int, size: int) -> None:
    nodes = torch.arange(20, 34)
    batches = _batches(nodes, count, 0, 0)
    assert batches.shape == (count, size)
    assert sorted(batches[batches >= 0].tolist()) == nodes.tolist()
    assert int((batches[:-1] < 0).sum()) == 0  # only the last one may be short


# --- the whole ------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Relation:
    hierarchy = load_hierarchy(binary_tree(tmp_path / "tree.tsv"))
    return Relation(hierarchy.closure(), len(hierarchy))


def train(
    relation: Relation, config: HierarchyConfig, folder: Path, manifold: Manifold, **options: object
) -> PointTable:
    found = session(folder, trial("any"), **options)
    table = PointTable(relation.count, 2, manifold, seed=0).to(found.device)
    train_table(table, relation, config, learning_rate=0.3, seed=0, session=found)
    return table


@pytest.mark.parametrize("manifold", [Lorentz(1.0), PoincareBall(1.0)], ids=repr)
def test_a_small_tree_is_embedded_without_a_fault(
    tree: Relation, tmp_path: Path, manifold: Manifold
) -> None:
    table = train(tree, small_config(Path(), epochs=100), tmp_path, manifold)
    found = measures.reconstruct_points(table.weight.detach(), manifold, tree.pairs)
    assert found.map == 1.0
    assert found.mean_rank == 1.0


def test_ball_and_hyperboloid_take_the_same_way(tree: Relation, tmp_path: Path) -> None:
    """The same space in other coordinates: the same start, losses and steps."""
    config = small_config(Path(), epochs=5, burn_in=0.0)
    first, second = (
        train(tree, config, tmp_path / str(i), m)
        for i, m in enumerate((Lorentz(1.0), PoincareBall(1.0)))
    )
    moved = first.manifold.log0(first.weight)
    assert moved.norm(dim=-1).max() > 0.1
    torch.testing.assert_close(second.manifold.log0(second.weight), moved)


def test_every_node_of_an_epoch_is_seen_once(
    tree: Relation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    plain = Relation.positives

    def watched(self: Relation, nodes: Tensor, most: int | None) -> tuple[Tensor, Tensor, Tensor]:
        seen.extend(node for node in nodes.tolist() if node >= 0)
        return plain(self, nodes, most)

    monkeypatch.setattr(Relation, "positives", watched)
    train(tree, small_config(Path(), epochs=2, batch=4), tmp_path, Lorentz(1.0))
    assert len(tree.sources) == 14  # the root has no ancestor
    assert sorted(seen[:14]) == sorted(seen[14:]) == tree.sources.tolist()
    assert seen[:14] != seen[14:]


class Killed(ProgressListener):
    """Stops a training at a step."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_end(self, done: int) -> None:
        if done == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", [1, 9, 20, 39])
def test_a_broken_off_training_goes_on(tree: Relation, tmp_path: Path, at: int) -> None:
    """To the last bit, in the middle of an epoch, of the burn-in, and after it."""
    config = small_config(Path(), epochs=10, pool=6)  # 40 steps
    whole = train(tree, config, tmp_path / "whole", Lorentz(1.0))
    every = {"checkpoint_seconds": 0.0}
    with pytest.raises(KeyboardInterrupt):
        train(tree, config, tmp_path / "half", Lorentz(1.0), listener=Killed(at), **every)
    again = train(tree, config, tmp_path / "half", Lorentz(1.0), **every)
    assert torch.equal(again.weight, whole.weight)


def test_the_rate_is_no_matter_of_the_checkpoint(tree: Relation, tmp_path: Path) -> None:
    """It once was: such a checkpoint must not slow down what follows it."""
    config = small_config(Path(), epochs=10, pool=6)
    whole = train(tree, config, tmp_path / "whole", Lorentz(1.0))
    every = {"checkpoint_seconds": 0.0}
    with pytest.raises(KeyboardInterrupt):
        train(tree, config, tmp_path / "half", Lorentz(1.0), listener=Killed(20), **every)
    path = tmp_path / "half/checkpoint.safetensors"
    table = PointTable(tree.count, 2, Lorentz(1.0), seed=0)
    old = RiemannianSGD(table, lr=1.0)
    draws = torch.Generator()
    parts = {"model": table, "optimizer": old, "draws": draws}
    facts = load_checkpoint(path, {**parts, "torch cpu": torch.Generator()}, lambda facts: True)
    assert facts is not None
    old.param_groups[0]["lr"] = 0.05
    save_checkpoint(path, {**parts, "torch cpu": torch.default_generator}, facts)
    again = train(tree, config, tmp_path / "half", Lorentz(1.0), **every)
    assert torch.equal(again.weight, whole.weight)


def test_the_losses_of_shares_add_up(tree: Relation) -> None:
    """As processes need it that share a batch; of two nodes, the third process gets none."""
    config = small_config(Path())
    table = PointTable(tree.count, 2, Lorentz(1.0), radius=1.0)
    pool, batch = torch.arange(tree.count), tree.sources[:2]

    def gradient(nodes: Tensor) -> Tensor:
        total, _ = _total_loss(table, tree, nodes, pool, config)
        return torch.autograd.grad(total, table.weight)[0]

    shares = [gradient(Processes(torch.device("cpu"), rank, 3).shard(batch)) for rank in range(3)]
    assert not shares[2].any()
    torch.testing.assert_close(sum(shares), gradient(batch))


def test_room_for_more_pairs_changes_nothing(tree: Relation) -> None:
    """Nor does a place in the batch without a node; that is what lets a GPU record a step."""
    config = small_config(Path())
    table = PointTable(tree.count, 2, Lorentz(1.0), radius=1.0)
    pool, nodes = torch.arange(0, tree.count, 2), tree.sources[:5]
    padded = torch.cat([nodes, nodes.new_full((2,), -1)])
    plain, pairs = _total_loss(table, tree, nodes, pool, config)
    roomy, same = _total_loss(table, tree, padded, pool, config, tree.most_in(7) + 3)
    assert same == pairs == len(tree.positives(nodes)[0])
    torch.testing.assert_close(roomy, plain)
    (a,), (b,) = (torch.autograd.grad(total, [table.weight]) for total in (roomy, plain))
    torch.testing.assert_close(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "manifold",
    [Lorentz(1.0), PoincareBall(1.0), Euclidean(), Product([(Lorentz(1.0), 1), (Lorentz(1.0), 1)])],
    ids=repr,
)
def test_recorded_steps_do_what_steps_do(
    tree: Relation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifold: Manifold
) -> None:
    config = small_config(Path(), epochs=6, pool=6)
    recorded = train(tree, config, tmp_path / "a", manifold, device="cuda")
    monkeypatch.setattr("beltrami.train.graph_capture.WARMUP_STEPS", 10**9)
    eager = train(tree, config, tmp_path / "b", manifold, device="cuda")
    assert recorded.weight.std() > 0.01
    torch.testing.assert_close(recorded.weight, eager.weight, rtol=1e-6, atol=1e-8)
