"""Entailment cones for hierarchies: a table of points, its training, and the score it is judged by.

A node's cone should hold its descendants (Ganea, Bécigneul and Hofmann 2018). Pairs are
(descendant, ancestor), as everywhere in beltrami; the ancestor is the apex of the cone.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.analysis.edges import EdgeScores, classify_edges
from beltrami.geometry import Manifold
from beltrami.losses.entailment import (
    MARGIN,
    MIN_RADIUS,
    entailment_energy,
    entailment_loss,
    keep_outside,
    least_radius,
)
from beltrami.models.hierarchy.closure_split import CORRUPTIONS, ClosureSplit, corrupt_pairs
from beltrami.nn import Layer

_EPOCHS_APART = 1_000_003  # keeps the epochs of two seeds apart


class ConeEmbedding(Layer):
    """A table of points, one a node, each the apex of an entailment cone.

    Cones need some distance from the origin (`losses.least_radius`). The given points are moved out
    along their rays by that distance, which keeps their order, so that an embedding learned by
    distances, with its root near the origin, is a good start.

    Args:
        points: the start, (n, d), points of the manifold.
        manifold: `Lorentz`, `PoincareBall`, or `Euclidean` for the twin.
        min_radius: K, see `losses.entailment`.
    """

    def __init__(
        self, points: Tensor, *, manifold: Manifold, min_radius: float = MIN_RADIUS
    ) -> None:
        super().__init__(manifold)
        if points.ndim != 2 or not points.is_floating_point():
            raise ValueError(
                f"points must be floating point of shape (n, d), got {points.dtype} of shape "
                f"{tuple(points.shape)}"
            )
        self.min_radius = min_radius
        self.weight = nn.Parameter(self._outside(points.detach()))
        self.manifold_of["weight"] = manifold

    def forward(self, ids: Tensor) -> Tensor:
        """The points of nodes: integers (...) to (..., d)."""
        return F.embedding(ids, self.weight)

    def cone_energy(self, pairs: Tensor) -> Tensor:
        """How far each descendant is outside the cone of its ancestor: (..., 2) to (...)."""
        descendant, ancestor = pairs.unbind(-1)
        return entailment_energy(
            self(ancestor), self(descendant), self.manifold, min_radius=self.min_radius
        )

    @torch.no_grad()
    def keep_outside(self) -> None:
        """Move points back to where cones exist; to be called after each step."""
        self.weight.copy_(keep_outside(self.weight, self.manifold, self.min_radius))

    def no_weight_decay(self) -> set[str]:
        """The points: decay would pull them to the origin, where there are no cones."""
        return {"weight"}

    def extra_repr(self) -> str:
        """Sizes, manifold and min_radius."""
        n, d = self.weight.shape
        return f"{n}, {d}, manifold={self.manifold!r}, min_radius={self.min_radius:g}"

    def _outside(self, points: Tensor) -> Tensor:
        v = self.manifold.log0(points)
        length = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
        further = 1 + least_radius(self.manifold, self.min_radius) / torch.where(
            length > 0, length, 1.0
        )
        moved = self.manifold.project(self.manifold.exp0(further * v))
        return keep_outside(moved, self.manifold, self.min_radius)  # the origin has no ray


def cone_loss(
    embedding: ConeEmbedding, true: Tensor, false: Tensor, *, margin: float = MARGIN
) -> Tensor:
    """The sum of `losses.entailment_loss` over true pairs (b, 2) and their false ones (b, k, 2)."""
    return entailment_loss(embedding.cone_energy(true), embedding.cone_energy(false), margin=margin)


def epoch_pairs(
    split: ClosureSplit, *, seed: int, epoch: int, corruptions: int = CORRUPTIONS
) -> tuple[Tensor, Tensor]:
    """The true pairs of a split in the order of an epoch, (p, 2), and fresh false ones, (p, k, 2).

    A function of seed and epoch alone, so that a training can be taken up at any of them. False
    pairs avoid the *shown* true ones only: to avoid the whole closure, as for the false pairs of
    validation and test, would tell the model what it is asked for.

    Args:
        split: its `train` pairs are used and no others.
        seed, epoch: of the order and the false pairs.
        corruptions: false pairs for each true one and each of its two ends, k/2.
    """
    generator = torch.Generator().manual_seed(seed * _EPOCHS_APART + epoch)
    true = split.train[torch.randperm(len(split.train), generator=generator)]
    false = corrupt_pairs(true, split.train, split.nodes, count=corruptions, generator=generator)
    return true, false


def check_split(embedding: ConeEmbedding, split: ClosureSplit) -> None:
    """Raise a `ValueError` where a split is not of the embedding's nodes."""
    if split.nodes != len(embedding.weight):
        raise ValueError(
            f"the split is of {split.nodes} nodes, the embedding has {len(embedding.weight)} points"
        )


@torch.no_grad()
def judge_cones(
    embedding: ConeEmbedding, split: ClosureSplit, part: Literal["test", "valid"] = "test"
) -> EdgeScores:
    """How well energies tell true pairs of a part from false ones: F1 and its relatives.

    A pair is called true if its energy is at most a threshold, the one of best F1 on the validation
    pairs; those of "valid" itself are for choosing between models.
    """

    def scores(true: Tensor, false: Tensor) -> tuple[Tensor, Tensor]:
        pairs = torch.cat([true, false]).to(embedding.weight.device)
        return -embedding.cone_energy(pairs), torch.arange(len(pairs)) < len(true)

    if part not in ("test", "valid"):
        raise ValueError(f'part must be "test" or "valid", got {part!r}')
    validation = scores(split.valid, split.valid_false)
    scored = validation if part == "valid" else scores(split.test, split.test_false)
    return classify_edges(*validation, *scored)
