r"""All distances of Sarkar's construction in float64, however far out the points are.

The coordinates of far points need hundreds of bits, but a distance depends only on the turns of a
path, and those are ordinary numbers. For a source u keep, at each node v, the distance D to u and
the direction n in which u is seen, in v's own frame. Walking one edge of length τ from v to w in
the direction s, the law of cosines gives both at w; with σ = sin²(γ/2) = |n − s|²/4:

    D' = D + τ + 2·log[(√q + √(q + 4e^{−D−τ}))/2],
         q = (e^{−τ} − e^{−D})² + (1 − e^{−2D})(1 − e^{−2τ})·σ
    n' ∝ −[e^{−2D} − e^{−2τ} + (1 − e^{−2D})(1 + e^{−2τ})·σ]·s + (1 − e^{−2D})·e^{−τ}·(n − (n·s)·s)

Nothing overflows and nothing cancels, and an error in n shrinks with every edge (by sin β/sin γ,
see `sarkar_bound`). What is summed up is how much D falls short of τ times the number of edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_ELEMENTS = 1 << 23  # of the directions of one level, for as many sources as are done together


class _Seen(NamedTuple):
    """How sources are seen from nodes."""

    edges: Tensor  # (...)
    short: Tensor  # (...), by how much the distance is less than edges·τ
    toward: Tensor  # (..., d), unit vectors; 0 where the source is the node itself


def path_distances(parent: Sequence[int], headings: Tensor, edge: float, sources: Tensor) -> Tensor:
    """Distances from each source to every node, float64 (s, n), in units of the curvature radius.

    Args:
        parent: of each node, earlier than the node; -1 for the root, node 0.
        headings: (n, d) float64, the direction of each node in the frame of its parent.
        edge: τ.
        sources: int64 (s,).
    """
    n, dim = headings.shape
    above = torch.tensor(parent, dtype=torch.int64)
    hops = [0] * n  # a list: reading tensors one number at a time takes a second for 80,000 nodes
    for node in range(1, n):
        hops[node] = hops[parent[node]] + 1
    depth = torch.tensor(hops, dtype=torch.int64)
    order = depth.argsort(stable=True)
    levels = list(order.split(depth.bincount().tolist()))
    out = torch.empty(len(sources), n, dtype=torch.float64)
    rows = max(1, _ELEMENTS // (dim * max(len(level) for level in levels)))
    for start in range(0, len(sources), rows):
        part = slice(start, start + rows)
        out[part] = _from(sources[part], above, depth, levels, headings, edge)
    return out


def _from(
    sources: Tensor,
    above: Tensor,
    depth: Tensor,
    levels: list[Tensor],
    headings: Tensor,
    edge: float,
) -> Tensor:
    ancestors = _up(sources, above, depth, len(levels), headings, edge)
    out = torch.empty(len(sources), len(above), dtype=torch.float64)
    place = torch.empty_like(above)  # of a node within its level
    seen: _Seen | None = None
    for level, nodes in enumerate(levels):
        which, at, known = ancestors[level]
        if seen is None:  # the root is above every source
            seen = _Seen(*(part.unsqueeze(1).clone() for part in known))
        else:
            from_parent = _Seen(*(part[:, place[above[nodes]]] for part in seen))
            seen = _step(from_parent, headings[nodes], edge)
        place[nodes] = torch.arange(len(nodes))
        for part, true in zip(seen, known, strict=True):
            part[which, place[at]] = true
        out[:, nodes] = seen.edges * edge - seen.short
    return out


def _up(
    sources: Tensor, above: Tensor, depth: Tensor, height: int, headings: Tensor, edge: float
) -> list[tuple[Tensor, Tensor, _Seen]]:
    """At each level: the sources at or below it, their ancestors there, how these see them."""
    zero = headings.new_zeros(len(sources))
    seen = _Seen(zero, zero.clone(), headings.new_zeros(len(sources), headings.shape[1]))
    at = sources.clone()
    levels = []
    for level in range(height - 1, -1, -1):
        below = depth[sources] > level
        step = below.nonzero().squeeze(-1)
        # frames are transported along edges, so the way up from a node is minus its heading
        moved = _step(_Seen(*(part[step] for part in seen)), -headings[at[step]], edge)
        for part, new in zip(seen, moved, strict=True):
            part[step] = new
        at[step] = above[at[step]]
        which = (depth[sources] >= level).nonzero().squeeze(-1)
        levels.append((which, at[which], _Seen(*(part[which] for part in seen))))
    return levels[::-1]


def _step(seen: _Seen, s: Tensor, edge: float) -> _Seen:
    """How sources are seen one edge further, in the direction s of shape (..., d)."""
    length = seen.edges * edge - seen.short
    tau = torch.tensor(edge, dtype=torch.float64)
    far, near = torch.exp(-length), torch.exp(-tau)
    wide, narrow = -torch.expm1(-2 * length), -torch.expm1(-2 * tau)
    half_sine = (seen.toward - s).square().sum(-1) / 4
    q = (near - far).square() + wide * narrow * half_sine
    gain = 2 * torch.log((q.sqrt() + (q + 4 * far * near).sqrt()) / 2)
    along = far.square() - near.square() + wide * (1 + near.square()) * half_sine
    across = (wide * near).unsqueeze(-1) * (
        seen.toward - (seen.toward * s).sum(-1, keepdim=True) * s
    )
    toward = across - along.unsqueeze(-1) * s
    toward = toward / torch.linalg.vector_norm(toward, dim=-1, keepdim=True)
    return _Seen(seen.edges + 1, seen.short - gain, toward)
