"""How well distances reconstruct a relation: mean rank and mean average precision.

The protocol of Nickel and Kiela (2017). A relation is a set of pairs (u, v), for instance of words
and their hypernyms. For each u all other nodes are ordered by their distance from u. Nodes that are
related to u are its positives, the others are its negatives, and

    rank(u, v)  = 1 + number of negatives at most as far from u as v
    AP(u)       = mean over k of k / (k + negatives at most as far as the k-th nearest positive)
    mean rank   = mean of rank(u, v) over all pairs
    MAP         = mean of AP(u) over all u that have positives

Ties count against the embedding: a negative at the same distance comes first. Without ties AP is
the usual area under precision over recall.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from beltrami.analysis.checks import check_range, integers
from beltrami.analysis.results import Result
from beltrami.analysis.rows import (
    Distances,
    check_rows_finite,
    checked_rows,
    point_order,
    rows_at_once,
)
from beltrami.checks import check_integer
from beltrami.geometry.manifold import Manifold

# From so many positives in a row on, sorting it is quicker than counting once for each of them.
_SORT_FROM = 64


@dataclass(frozen=True, eq=False)
class Reconstruction(Result):
    """How well distances reconstruct a relation.

    Args:
        map: mean average precision, 1 is perfect.
        mean_rank: mean rank of the pairs, 1 is perfect.
        ranks: rank of each of `pairs`, int64.
        average_precision: average precision of each of `nodes`, float64.
        pairs: the pairs that were ranked, in the order they were given, int64 of shape (p, 2).
        nodes: the nodes that have positives, ascending, int64.
    """

    map: float
    mean_rank: float
    ranks: Tensor
    average_precision: Tensor
    pairs: Tensor
    nodes: Tensor


def reconstruction(
    distance: Distances,
    pairs: Tensor,
    count: int,
    *,
    known: Tensor | None = None,
    sample: int | None = None,
    seed: int = 0,
    chunk: int | None = None,
) -> Reconstruction:
    """Mean rank and mean average precision of a relation; see the head of this file.

    Args:
        distance: distance(rows) gives the distances from nodes `rows`, int64 of shape (b,) on the
            device of `pairs`, to all nodes, (b, count). Any numbers that order nodes alike will do.
            What it says of a node and itself is ignored.
        pairs: the relation, integers of shape (p, 2): u and its positive v, each pair once, in any
            order. On a GPU everything is counted there, without waiting for it on the way.
        count: the number of nodes.
        known: further pairs, (q, 2), that count neither as positives nor as negatives: in link
            prediction, the pairs seen in training while `pairs` are those held out.
        sample: rank only the positives of this many nodes u, drawn at random with `seed`.
        seed: of the sample.
        chunk: nodes u worked on at a time. By default as many as give a block of distances that
            suits the device.
    """
    check_integer("count", count)
    pairs = _checked_pairs("pairs", pairs, count)
    if len(pairs) == 0:
        raise ValueError("pairs is empty: there is nothing to rank")
    if sample is not None:
        nodes = pairs[:, 0].unique()
        g = torch.Generator().manual_seed(seed)
        drawn = torch.randperm(len(nodes), generator=g)[: check_integer("sample", sample)]
        pairs = pairs[torch.isin(pairs[:, 0], nodes[drawn.to(nodes.device)])]
    if known is not None:
        known = _checked_pairs("known", known, count, unique=False)
        if known.device != pairs.device:
            raise ValueError(
                f"known is on {known.device} but pairs is on {pairs.device}: move one of them"
            )
    table = _by_node(pairs)
    with torch.no_grad():
        negatives = _negatives(distance, table, _left_out(table, known, count), count, chunk)
    return _result(pairs, table, negatives)


def reconstruct_points(
    points: Tensor,
    manifold: Manifold,
    pairs: Tensor,
    *,
    known: Tensor | None = None,
    sample: int | None = None,
    seed: int = 0,
    chunk: int | None = None,
) -> Reconstruction:
    """`reconstruction` of a relation among points (n, d) of a manifold.

    Points of hyperbolic and flat space are ranked by one matrix product, see `point_order`; others,
    and float64 points very far out, by their distances, pair by pair: more exact, and far slower.
    """
    order = point_order(points, manifold)
    pairs = integers("pairs", pairs, 2).to(points.device)
    known = None if known is None else integers("known", known, 2).to(points.device)
    return reconstruction(
        order, pairs, len(points), known=known, sample=sample, seed=seed, chunk=chunk
    )


def mean_average_precision(distance: Tensor, neighbour: Tensor) -> float:
    """Mean over nodes of the average precision of their neighbours in the order of distance.

    Args:
        distance: (n, n), finite off the diagonal.
        neighbour: (n, n) booleans; rows without one are left out.

    Ties count against the embedding: negatives come before neighbours at the same distance.
    """
    return reconstruction(lambda rows: distance[rows], neighbour.nonzero(), len(distance)).map


class _ByNode(NamedTuple):
    """Pairs sorted by their first node, where nodes with few positives come first.

    So a block of nodes has a contiguous run of pairs, and about as many of each node.
    """

    order: Tensor  # (p,) of the pairs as given
    second: Tensor  # (p,) v of each pair, sorted
    place: Tensor  # (p,) of its u among `nodes`
    slot: Tensor  # (p,) of it among the pairs of its u
    nodes: Tensor  # (m,) by number of positives
    sizes: Tensor  # (m,) number of positives


def _by_node(pairs: Tensor) -> _ByNode:
    ascending, which, sizes = pairs[:, 0].unique(return_inverse=True, return_counts=True)
    by_size = torch.argsort(sizes, stable=True)
    place_of = torch.empty_like(by_size)
    place_of[by_size] = torch.arange(len(by_size), device=pairs.device)
    place, order = torch.sort(place_of[which], stable=True)
    sizes = sizes[by_size]
    start = sizes.cumsum(0) - sizes
    slot = torch.arange(len(pairs), device=pairs.device) - start[place]
    return _ByNode(order, pairs[order, 1], place, slot, ascending[by_size], sizes)


def _left_out(table: _ByNode, known: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
    """What counts as no negative: places among the nodes, ascending, and the nodes left out there.

    Each node itself, its positives, and what it is known to be related to.
    """
    nodes = table.nodes
    first, second = [nodes, nodes[table.place]], [nodes, table.second]
    if known is not None:
        first.append(known[:, 0])
        second.append(known[:, 1])
    place_of = torch.full((count,), -1, dtype=torch.int64, device=nodes.device)
    place_of[nodes] = torch.arange(len(nodes), device=nodes.device)
    place, order = place_of[torch.cat(first)].sort(stable=True)
    ranked = place >= 0
    return place[ranked], torch.cat(second)[order[ranked]]


def _negatives(
    distance: Distances,
    table: _ByNode,
    left_out: tuple[Tensor, Tensor],
    count: int,
    chunk: int | None,
) -> Tensor:
    """The number of negatives at most as far as v, for each pair of the table."""
    device = table.nodes.device
    size = rows_at_once(count, device, chunk)
    first = list(range(0, len(table.nodes), size))
    edges = torch.tensor([*first, len(table.nodes)], device=device)
    most = table.sizes[edges[1:] - 1].tolist()
    cuts = torch.searchsorted(table.place, edges).tolist()
    cuts_out = torch.searchsorted(left_out[0], edges).tolist()
    result = torch.empty_like(table.second)
    doubtful = torch.empty(len(table.nodes), dtype=torch.bool, device=device)
    infinity = torch.tensor(torch.inf, device=device)
    for i, start in enumerate(first):
        rows = table.nodes[start : start + size]
        block = checked_rows(distance, rows, count)
        if block.device != device:
            raise ValueError(f"distance is on {block.device} but pairs is on {device}: move one")
        # A row with NaN or infinity has no finite sum. Looking closer would wait for the device.
        doubtful[start : start + size] = ~torch.isfinite(block.sum(1))
        run, out = slice(cuts[i], cuts[i + 1]), slice(cuts_out[i], cuts_out[i + 1])
        at, second, slot = table.place[run] - start, table.second[run], table.slot[run]
        limits = block.new_full((len(rows), most[i]), -torch.inf)
        limits[at, slot] = block[at, second]
        place_out = left_out[0][out] - start
        negatives = block.index_put((place_out, left_out[1][out]), infinity.to(block.dtype))
        result[run] = _count_within(negatives, limits)[at, slot]
    suspects = table.nodes[doubtful]
    for rows in suspects.split(size) if len(suspects) else ():
        check_rows_finite(checked_rows(distance, rows, count), rows)
    return result


def _count_within(row: Tensor, limits: Tensor) -> Tensor:
    """How many entries of each row, (b, n), are at most each of its limits, (b, k): (b, k)."""
    if limits.shape[1] >= _SORT_FROM:
        return torch.searchsorted(row.sort(1).values, limits, right=True)
    # Comparing straight into floats, whose sum is vectorised, is five times as fast on a CPU as
    # summing booleans; float32 counts exactly up to 2^24.
    dtype = torch.float32 if row.shape[1] <= 1 << 24 else torch.float64
    within = torch.empty_like(row, dtype=dtype)
    counts = [torch.le(row, limit, out=within).sum(1) for limit in limits.split(1, dim=1)]
    return torch.stack(counts, 1).to(torch.int64)


def _result(pairs: Tensor, table: _ByNode, negatives: Tensor) -> Reconstruction:
    ranks = torch.empty_like(negatives)
    ranks[table.order] = 1 + negatives
    # The k-th nearest positive of a node is the one with the k-th fewest negatives before it.
    by_rank = torch.argsort(negatives, stable=True)
    by_rank = by_rank[torch.argsort(table.place[by_rank], stable=True)]
    k = 1 + table.slot.to(torch.float64)
    precision = (k / (k + negatives[by_rank])).cpu()  # sums on a GPU differ from run to run
    total = torch.zeros(len(table.nodes), dtype=torch.float64)
    total.index_add_(0, table.place.cpu(), precision)
    ap = total.to(pairs.device) / table.sizes
    nodes, ascending = table.nodes.sort()
    return Reconstruction(
        map=ap.cpu().mean().item(),
        mean_rank=ranks.cpu().to(torch.float64).mean().item(),
        ranks=ranks,
        average_precision=ap[ascending],
        pairs=pairs,
        nodes=nodes,
    )


def _checked_pairs(name: str, pairs: Tensor, count: int, *, unique: bool = True) -> Tensor:
    pairs = integers(name, pairs, 2)
    if pairs.shape[1] != 2:
        raise ValueError(f"{name} must have the shape (p, 2), got {tuple(pairs.shape)}")
    check_range(name, pairs, count, "nodes")
    own = pairs[:, 0] == pairs[:, 1]
    if bool(own.any()):
        node = int(pairs[own][0, 0])
        raise ValueError(f"{name} relates node {node} to itself: leave such pairs out")
    key = (pairs[:, 0] * count + pairs[:, 1]).sort().values
    again = key[1:][key[1:] == key[:-1]]
    if unique and len(again):
        first, second = divmod(int(again[0]), count)
        raise ValueError(f"{name} has the pair ({first}, {second}) more than once")
    return pairs
