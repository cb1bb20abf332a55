"""A relation as training needs it: the positives of a batch, the negatives of a pool."""

from __future__ import annotations

import torch
from torch import Tensor


class Relation:
    """Pairs (u, v) among `count` nodes, sorted by u; usually the closure of a hierarchy.

    Args:
        pairs: int64 (p, 2), each once.
        count: number of nodes.
    """

    def __init__(self, pairs: Tensor, count: int) -> None:
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs):
            raise ValueError(f"pairs must be of shape (p, 2), p > 0, got {tuple(pairs.shape)}")
        least, most = int(pairs.min()), int(pairs.max())
        if least < 0 or most >= count:
            raise ValueError(
                f"pairs must be of nodes 0 to {count - 1}, got {least if least < 0 else most}"
            )
        if len((pairs[:, 0] * count + pairs[:, 1]).unique()) < len(pairs):
            raise ValueError("pairs must be there once each, and some are there again")
        order = torch.argsort(pairs[:, 0], stable=True)
        self.pairs = pairs[order]
        self.count = count
        self._sizes = torch.bincount(self.pairs[:, 0], minlength=count)
        self._starts = self._sizes.cumsum(0) - self._sizes
        self._place = torch.full((count,), -1, dtype=torch.int64, device=pairs.device)

    @property
    def sources(self) -> Tensor:
        """Nodes with at least one positive."""
        return self._sizes.nonzero().squeeze(-1)

    @property
    def degree(self) -> Tensor:
        """How many pairs each node takes part in, on either side; float64."""
        return torch.bincount(self.pairs.flatten(), minlength=self.count).double()

    def positives(self, nodes: Tensor, most: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """All positives of nodes (b,): the row each belongs to, itself, and whether it is real.

        Args:
            nodes: of −1 there are none.
            most: give as many as this, those at the end not real. So their number depends on
                nothing that a GPU would have to be asked for. It must be enough: see `most_in`.
        """
        if not len(nodes):
            return nodes, nodes, nodes.bool()
        sizes = torch.where(nodes < 0, 0, self._sizes[nodes])
        ends = sizes.cumsum(0)
        if most is None:
            most = int(ends[-1])
        place = torch.arange(most, device=nodes.device)
        rows = torch.searchsorted(ends, place, right=True)
        real = rows < len(nodes)
        # Those that are not real are spread: many gradients of one row are added one by one.
        rows = torch.where(real, rows, place % len(nodes))
        within = place - (ends - sizes)[rows]
        of_pairs = torch.where(real, self._starts[nodes[rows]] + within, place % len(self.pairs))
        return rows, self.pairs[of_pairs, 1], real

    def most_in(self, nodes: int) -> int:
        """How many positives so many nodes can have at most."""
        return int(self._sizes.topk(min(nodes, self.count)).values.sum())

    def negatives(
        self, nodes: Tensor, rows: Tensor, positives: Tensor, real: Tensor, pool: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The pool's nodes, each at most once, that are neither u nor positive.

        As booleans (b, k), and how many they are, int64 (b,): counting the booleans would take
        longer than the whole rest. `rows`, `positives` and `real` are those of `nodes`.
        """
        size = len(pool)
        self._place[pool] = torch.arange(size, device=pool.device)
        all_rows = torch.cat([rows, torch.arange(len(nodes), device=nodes.device)])
        places = self._place[torch.cat([positives, nodes])]
        self._place.index_fill_(0, pool, -1)
        # One column more, for those that are not in the pool: picking out the others would wait
        # for the device, and so would the plain number False.
        here = places >= 0
        here[: len(rows)] &= real
        result = torch.ones(len(nodes), size + 1, dtype=torch.bool, device=nodes.device)
        places = torch.where(here, places, size)
        result.index_put_((all_rows, places), torch.zeros_like(here[:1]))
        here[: len(rows)] &= positives != nodes[rows]  # a node that is its own positive counts once
        known = torch.zeros(len(nodes), dtype=torch.int64, device=nodes.device)
        known.index_add_(0, all_rows, here.long())
        return result[:, :size], size - known
