"""Reconstruction against the published protocol, written as plainly as it is described."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from beltrami.analysis import (
    Reconstruction,
    mean_average_precision,
    point_distances,
    ranking,
    reconstruct_points,
    reconstruction,
    rows,
)
from beltrami.geometry import (
    Euclidean,
    Lorentz,
    Manifold,
    PoincareBall,
    Product,
    Sphere,
    Stereographic,
    lorentz,
    poincare,
)


def published(
    distance: Tensor, pairs: list[tuple[int, int]], known: set[tuple[int, int]] = frozenset()
) -> tuple[float, float, dict[tuple[int, int], int], dict[int, float]]:
    """MAP, mean rank, ranks and average precisions by sorting each row, strangers first in ties."""
    ranks, precisions = {}, {}
    for u in sorted({u for u, _ in pairs}):
        positives = {v for w, v in pairs if w == u}
        others = [v for v in range(len(distance)) if v != u and (u, v) not in known - set(pairs)]
        others.sort(key=lambda v: (distance[u, v].item(), v in positives))
        strangers = found = 0
        precision = []
        for v in others:
            if v in positives:
                found += 1
                precision.append(found / (found + strangers))
                ranks[u, v] = 1 + strangers
            else:
                strangers += 1
        precisions[u] = sum(precision) / len(precision)
    return (
        sum(precisions.values()) / len(precisions),
        sum(ranks.values()) / len(ranks),
        ranks,
        precisions,
    )


def check_against_published(
    result: Reconstruction, distance: Tensor, pairs: list[tuple[int, int]], known=frozenset()
) -> None:
    map_, mean_rank, ranks, precisions = published(distance, pairs, known)
    assert result.map == pytest.approx(map_, abs=1e-12)
    assert result.mean_rank == pytest.approx(mean_rank, abs=1e-12)
    assert result.ranks.tolist() == [ranks[u, v] for u, v in result.pairs.tolist()]
    assert result.nodes.tolist() == list(precisions)
    assert result.average_precision.tolist() == pytest.approx(list(precisions.values()), abs=1e-12)
    assert result.as_dict() == {"map": result.map, "mean_rank": result.mean_rank}


@st.composite
def relations(draw: st.DrawFn) -> tuple[Tensor, list[tuple[int, int]], set[tuple[int, int]]]:
    """Distances with many ties, pairs in any order, and known pairs, some of them the same."""
    n = draw(st.integers(2, 9))
    entries = draw(st.lists(st.integers(0, 4), min_size=n * n, max_size=n * n))
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] != p[1])
    pairs = draw(st.lists(pair, min_size=1, max_size=3 * n, unique=True))
    known = draw(st.lists(pair, max_size=2 * n))
    return torch.tensor(entries, dtype=torch.float32).view(n, n), pairs, set(known)


@given(relations(), st.sampled_from([1, 2, 100, None]), st.sampled_from([1, 64]))
def test_ranks_are_those_of_the_published_protocol(case, chunk: int | None, sort_from: int) -> None:
    distance, pairs, known = case
    before = distance.clone()
    arguments = (lambda rows: distance[rows], torch.tensor(pairs), len(distance))
    ranking_sort_from, ranking._SORT_FROM = ranking._SORT_FROM, sort_from
    try:
        result = reconstruction(*arguments, chunk=chunk)
        filtered = reconstruction(
            *arguments,
            known=torch.tensor(sorted(known), dtype=torch.int64).reshape(-1, 2),
            chunk=chunk,
        )
    finally:
        ranking._SORT_FROM = ranking_sort_from
    check_against_published(result, distance, pairs)
    check_against_published(filtered, distance, pairs, known)
    assert torch.equal(distance, before)  # not written to
    assert result.pairs.tolist() == [list(p) for p in pairs]


def test_the_callers_matrix_is_not_written_to() -> None:
    distance = torch.rand(4, 4)
    before = distance.clone()
    assert (
        reconstruction(lambda rows: distance, torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0]]), 4).map
        > 0
    )
    assert torch.equal(distance, before)


def test_map_by_hand() -> None:
    # Node 0 has neighbours 1 and 3 at ranks 1 and 3: (1/1 + 2/3)/2. The others are perfect.
    distance = torch.tensor(
        [[0.0, 1, 2, 3], [1, 0, 9, 9], [2, 9, 0, 9], [3, 9, 9, 0]], dtype=torch.float64
    )
    neighbour = torch.zeros(4, 4, dtype=torch.bool)
    neighbour[0, [1, 3]] = neighbour[1, 0] = neighbour[2, 0] = neighbour[3, 0] = True
    assert mean_average_precision(distance, neighbour) == pytest.approx((5 / 6 + 3) / 4)


def test_ties_count_against_the_embedding() -> None:
    neighbour = torch.eye(4, dtype=torch.bool).roll(1, dims=1)
    everywhere_equal = torch.ones(4, 4, dtype=torch.float64)
    assert mean_average_precision(everywhere_equal, neighbour) == pytest.approx(1 / 3)


# --- points ---------------------------------------------------------------------------------------

N = 150


def relation_of_points(seed: int = 0) -> tuple[Tensor, Tensor]:
    """float32 Lorentz points, some of them far out, and pairs (u, v) with v < u."""
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(N, 4, generator=g)
    v *= 6 * torch.rand(N, 1, generator=g) / v.norm(dim=1, keepdim=True)
    u = torch.arange(1, N).repeat_interleave(3)
    w = (u * torch.rand(len(u), generator=g)).long()
    return lorentz.exp0(v, 0.5), torch.stack([u, w], 1).unique(dim=0)


@pytest.mark.parametrize("model", ["lorentz", "poincare", "euclidean"])
def test_matrix_product_ranks_as_the_distances_do(model: str) -> None:
    points, pairs = relation_of_points()
    manifold = {"lorentz": Lorentz(0.5), "poincare": PoincareBall(0.5), "euclidean": Euclidean()}[
        model
    ]
    if model == "poincare":
        points = poincare.from_lorentz(points, 0.5)
    fast = reconstruct_points(points, manifold, pairs)
    exact = reconstruct_points(points.double(), manifold, pairs)
    check_against_published(
        exact, manifold.pairwise_dist(points.double(), points.double()),
        [(u, v) for u, v in pairs.tolist()],
    )  # fmt: skip
    assert torch.equal(fast.ranks, exact.ranks)
    assert fast.map == exact.map


@pytest.mark.parametrize(
    "manifold", [Sphere(2.0), Stereographic(-0.5), Product([(Lorentz(1.0), 2), (Euclidean(), 2)])]
)
def test_other_manifolds_are_ranked_by_their_distances(manifold: Manifold) -> None:
    points = manifold.random(30, 4 if isinstance(manifold, Product) else 3)
    pairs = torch.stack([torch.arange(30), torch.arange(30).roll(1)], 1)
    check_against_published(
        reconstruct_points(points, manifold, pairs, chunk=7),
        manifold.pairwise_dist(points, points), [(u, v) for u, v in pairs.tolist()],
    )  # fmt: skip


def test_isometries_and_names_change_nothing() -> None:
    points, pairs = relation_of_points(1)
    points = points.double()
    result = reconstruct_points(points, Lorentz(0.5), pairs)
    turn = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    to = torch.tensor([0.3, -0.2, 0.5, 0.1], dtype=torch.float64)
    moved = lorentz.boost(points @ turn, to, 0.5)
    assert (moved - points).abs().max() > 0.1
    assert torch.equal(reconstruct_points(moved, Lorentz(0.5), pairs).ranks, result.ranks)
    name = torch.randperm(N)
    renamed = torch.empty_like(points)
    renamed[name] = points
    again = reconstruct_points(renamed, Lorentz(0.5), name[pairs])
    assert torch.equal(again.ranks, result.ranks)
    assert again.map == pytest.approx(result.map, abs=1e-14)


@pytest.mark.parametrize("radius", [0.0, 1.0, 12.0])
def test_a_collapsed_embedding_has_the_worst_rank(radius: float) -> None:
    # Equal rows: what is left of the product is rounding, and must not be taken for an order.
    v = torch.randn(5)
    points = lorentz.exp0((radius * v / v.norm()).expand(40, 5), 1.0)
    pairs = torch.stack([torch.arange(40), (torch.arange(40) + 1) % 40], 1)
    assert reconstruct_points(points, Lorentz(1.0), pairs).mean_rank == 39


def test_points_far_out_do_not_overflow() -> None:
    v = torch.tensor([[40.0, 0], [-40.0, 0], [0, 40.0], [39.0, 0]])
    result = reconstruct_points(lorentz.exp0(10 * v, 0.01), Lorentz(0.01), torch.tensor([[0, 3]]))
    assert result.map == 1


def test_learnable_curvature_and_gradients_are_left_alone() -> None:
    points, pairs = relation_of_points()
    c = torch.tensor([0.5], requires_grad=True)
    result = reconstruct_points(points.requires_grad_(), Lorentz(c), pairs)
    assert torch.equal(result.ranks, reconstruct_points(points.detach(), Lorentz(0.5), pairs).ranks)
    assert not result.average_precision.requires_grad


def test_a_sample_is_part_of_the_whole() -> None:
    points, pairs = relation_of_points()
    whole = reconstruct_points(points, Lorentz(0.5), pairs)
    part = reconstruct_points(points, Lorentz(0.5), pairs, sample=20, seed=3)
    assert len(part.nodes) == 20
    inside = torch.isin(pairs[:, 0], part.nodes)
    assert torch.equal(part.pairs, pairs[inside])
    assert torch.equal(part.ranks, whole.ranks[inside])
    assert part.map == pytest.approx(part.average_precision.mean().item())
    assert torch.equal(
        part.nodes, reconstruct_points(points, Lorentz(0.5), pairs, sample=20, seed=3).nodes
    )
    other = reconstruct_points(points, Lorentz(0.5), pairs, sample=20, seed=4)
    assert not torch.equal(part.nodes, other.nodes)
    assert reconstruct_points(points, Lorentz(0.5), pairs, sample=N).map == whole.map


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (torch.zeros(0, 2, dtype=torch.int64), "pairs is empty"),
        (torch.tensor([[0, 4]]), "from 0 to 3, got 4"),
        (torch.tensor([[-1, 2]]), "got -1"),
        (torch.tensor([[1, 2], [3, 3]]), "relates node 3 to itself"),
        (torch.tensor([[1, 2], [0, 1], [1, 2]]), r"the pair \(1, 2\) more than once"),
        (torch.tensor([[0, 1, 2]]), "shape"),
        (torch.tensor([0, 1]), "2 dimension"),
    ],
)
def test_bad_pairs_are_named(pairs: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reconstruction(lambda rows: torch.rand(len(rows), 4), pairs, 4)


def test_a_single_node_has_nothing_to_rank() -> None:
    with pytest.raises(ValueError, match="pairs is empty"):
        reconstruct_points(torch.zeros(1, 2), Euclidean(), torch.zeros(0, 2, dtype=torch.int64))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_distances_that_are_not_finite_are_named(value: float) -> None:
    distance = torch.rand(5, 5)
    pairs = torch.tensor([[0, 1], [3, 1], [4, 0]])
    distance.fill_diagonal_(value)  # of a node to itself it may be anything
    fine = reconstruction(lambda rows: distance[rows], pairs, 5)
    assert fine.ranks.min() >= 1
    distance[3, 2] = value
    with pytest.raises(ValueError, match=rf"{value} between nodes 3 and 2"):
        reconstruction(lambda rows: distance[rows], pairs, 5)


def test_large_finite_distances_are_fine() -> None:
    distance = 3e38 * torch.tensor([[0, 1.0, 0.9, 0.95]]).expand(4, 4)  # their sum is infinite
    assert reconstruction(lambda rows: distance[rows], torch.tensor([[0, 3]]), 4).mean_rank == 2


def test_bad_functions_and_options_are_named() -> None:
    pairs = torch.tensor([[0, 1]])
    with pytest.raises(ValueError, match="a row of 3 numbers"):
        reconstruction(lambda rows: torch.rand(len(rows), 2), pairs, 3)
    with pytest.raises(TypeError, match="float32 or float64"):
        reconstruction(lambda rows: torch.rand(len(rows), 3).half(), pairs, 3)
    with pytest.raises(TypeError, match="integers"):
        reconstruction(lambda rows: torch.rand(len(rows), 3), pairs.float(), 3)
    for option in ("chunk", "sample"):
        with pytest.raises(ValueError, match=f"{option} must be at least 1"):
            reconstruction(lambda rows: torch.rand(len(rows), 3), pairs, 3, **{option: 0})
    with pytest.raises(ValueError, match="points has 1 entries that are not finite"):
        reconstruct_points(torch.tensor([[0.0], [math.nan]]), Euclidean(), pairs)


@pytest.mark.gpu
def test_a_gpu_finds_the_same_and_is_not_waited_for() -> None:
    points, pairs = relation_of_points()
    matrix = Lorentz(0.5).pairwise_dist(points, points).cuda()
    left = len(pairs[:, 0].unique())

    def watched(rows: Tensor) -> Tensor:
        nonlocal left
        left -= len(rows)
        # from the first call to the last
        torch.cuda.set_sync_debug_mode("error" if left else "default")
        return matrix[rows]

    result = reconstruction(watched, pairs.cuda(), N, known=pairs[:5].cuda(), chunk=7)
    assert left == 0
    expected = reconstruction(lambda rows: matrix.cpu()[rows], pairs, N, known=pairs[:5])
    assert torch.equal(result.ranks.cpu(), expected.ranks)
    assert result.map == expected.map
    for dtype in (torch.float32, torch.float64):
        on_gpu = reconstruct_points(points.to("cuda", dtype), Lorentz(0.5), pairs)
        assert on_gpu.ranks.is_cuda
        on_cpu = reconstruct_points(points.to(dtype), Lorentz(0.5), pairs)
        assert torch.equal(on_gpu.ranks.cpu(), on_cpu.ranks)


# --- float64 points -------------------------------------------------------------------------------


@pytest.mark.parametrize("manifold", [Lorentz(1.0), Lorentz(0.4), PoincareBall(1.0)], ids=repr)
def test_float64_points_are_ranked_as_their_distances(
    manifold: Manifold, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = torch.Generator().manual_seed(2)
    points = manifold.random(60, 4, std=2.0, dtype=torch.float64, generator=g)
    pairs = torch.randint(60, (300, 2), generator=g).unique(dim=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    by_distance = reconstruction(point_distances(points, manifold), pairs, 60)
    monkeypatch.delattr(rows, "point_distances")  # which would be called otherwise
    assert torch.equal(reconstruct_points(points, manifold, pairs).ranks, by_distance.ranks)


def test_float64_points_that_are_one_are_tied() -> None:
    """Rounding must not put one of them before the other."""
    g = torch.Generator().manual_seed(3)
    points = lorentz.exp0(torch.randn(1, 5, generator=g, dtype=torch.float64)).repeat(20, 1)
    points = lorentz.exp0(8 * points / points.norm(dim=-1, keepdim=True))
    pairs = torch.tensor([[0, 1], [0, 2]])
    assert reconstruct_points(points, Lorentz(), pairs).ranks.tolist() == [18, 18]


@pytest.mark.parametrize("count", [403, 1180])
@pytest.mark.parametrize("manifold", [Lorentz(1.0), PoincareBall(1.0)], ids=repr)
def test_float64_points_that_are_one_are_tied_from_afar(manifold: Manifold, count: int) -> None:
    """A product may round equal columns differently: a collapsed table would look better."""
    g = torch.Generator().manual_seed(4)
    points = manifold.random(count, 5, std=1.0, dtype=torch.float64, generator=g)
    points[40:] = points[40]
    pairs = torch.tensor([[i, count - 1] for i in range(40)])
    expected = reconstruction(point_distances(points, manifold), pairs, count).ranks
    assert torch.equal(reconstruct_points(points, manifold, pairs).ranks, expected)
    assert int(expected.min()) >= count - 41


def test_float64_points_very_far_out_are_ranked_by_distance() -> None:
    """Neighbours at radius 17, where a product would be made of rounding."""
    x = lorentz.exp0(torch.tensor([[17.0, 0.0]], dtype=torch.float64))
    steps = torch.tensor([[0.0, 0.1], [0.0, 0.2], [0.0, 0.3], [0.0, -0.15]], dtype=torch.float64)
    points = torch.cat([x, lorentz.exp(x, steps)])
    for positive, rank in ((1, 1), (4, 2), (2, 3), (3, 4)):
        found = reconstruct_points(points, Lorentz(), torch.tensor([[0, positive]]))
        assert found.ranks.tolist() == [rank]
