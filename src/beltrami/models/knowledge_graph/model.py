r"""Link prediction in a space of negative curvature: RotH, RefH, AttH and their Euclidean twins.

After Chami et al. (2020), arXiv 2005.00545. Entities are tangent vectors v at the origin; relation
r has a turn, a translation ρ_r and, in the hyperbolic variants, a curvature c_r:

    query(h, r) = exp0(turn_r(v_h)) ⊕ exp0(ρ_r)          turn_r(v_h) + ρ_r in Euclidean space
    score(h, r, t) = −d(query(h, r), exp0(v_t))² + b_h + b_t

The turn is a rotation or a reflection of each pair of coordinates, or a weighted mean of both
(attention), in the tangent space at the origin; exp0 is radial, so there it is the same as turning
the point. ⊕ is a boost in the Lorentz model, which is where everything is computed. As all maps at
the origin are isometries on rays, |v| is the entity's distance from the origin for every c_r; the
published vectors are half as long.

Each relation r has a reciprocal, r + R, so that heads are asked for as tails of reciprocals.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.geometry import Curvature, lorentz
from beltrami.geometry.checks import no_autocast
from beltrami.models.knowledge_graph import scoring
from beltrami.models.knowledge_graph.config import KnowledgeGraphConfig


class KnowledgeGraphModel(nn.Module):
    """Scores triples by how far the query (head, relation) lands from the tail.

    Trained by any optimiser: no parameter lives on a manifold.

    >>> model = KnowledgeGraphModel(KnowledgeGraphConfig(entities=5, relations=2, variant="AttH"))
    >>> model(triples)                          # (m,) scores of (head, relation, tail)
    >>> model.scores(heads, relations)          # (m, entities)
    """

    def __init__(self, config: KnowledgeGraphConfig) -> None:
        super().__init__()
        self.config = config
        both, d = 2 * config.relations, config.dim
        self.entity = nn.Parameter(torch.empty(config.entities, d))
        self.bias = nn.Parameter(torch.empty(config.entities))
        self.translation = nn.Parameter(torch.empty(both, d))
        if config.pre_translation:
            self.pre_translation = nn.Parameter(torch.empty(both, d))
        if config.turn in ("rotation", "attention"):
            self.rotation = nn.Parameter(torch.empty(both, d // 2))
        if config.turn in ("reflection", "attention"):
            self.reflection = nn.Parameter(torch.empty(both, d // 2))
        if config.turn == "attention":
            self.context = nn.Parameter(torch.empty(both, d))
        self.curvature: Curvature | None = None
        if config.geometry == "hyperbolic":
            self.curvature = Curvature(
                config.curvature,
                size=both,
                bounds=config.curvature_bounds,
                learnable=config.learn_curvature,
            )
        self.dropout = nn.Dropout(config.dropout)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Small entities and translations, no bias, turns all over the circle."""
        nn.init.zeros_(self.bias)
        for name, parameter in self.named_parameters():
            if name in ("entity", "translation", "pre_translation", "context"):
                nn.init.normal_(parameter, std=self.config.init_scale)
            elif name in ("rotation", "reflection"):
                nn.init.uniform_(parameter, -math.pi, math.pi)
        if self.curvature is not None:
            self.curvature.reset_parameters()

    # --- queries ---------------------------------------------------------------------------------

    def queries(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Where a relation takes its heads, (b, d): the space part of a Lorentz point, or a vector.

        Args:
            heads: int64 (b,).
            relations: int64 (b,), below 2·relations.
        """
        v, translation = F.embedding(heads, self.entity), self._of(relations, "translation")
        if self.curvature is None:
            if self.config.pre_translation:
                v = v + self._of(relations, "pre_translation")
            turned: Tensor = self.dropout(self._turn(v, relations))
            return turned + translation
        c = F.embedding(relations, self.curvature.value)  # (b, 1)
        if self.config.pre_translation:
            before = self._of(relations, "pre_translation")
            v = lorentz.log0(self._add(lorentz.exp0(v, c), lorentz.exp0(before, c), c), c)
        turned = self.dropout(self._turn(v, relations))
        return self._add(lorentz.exp0(turned, c), lorentz.exp0(translation, c), c)

    def _of(self, relations: Tensor, name: str) -> Tensor:
        return F.embedding(relations, getattr(self, name))

    def _add(self, head: Tensor, translation: Tensor, c: Tensor) -> Tensor:
        """Möbius addition; `boost(x, p)` is p ⊕ x."""
        if self.config.order == "head":
            return lorentz.boost(translation, head, c)
        return lorentz.boost(head, translation, c)

    def _turn(self, v: Tensor, relations: Tensor) -> Tensor:
        if self.config.turn == "rotation":
            return rotate_pairs(v, self._of(relations, "rotation"))
        if self.config.turn == "reflection":
            return reflect_pairs(v, self._of(relations, "reflection"))
        rotated = rotate_pairs(v, self._of(relations, "rotation"))
        reflected = reflect_pairs(v, self._of(relations, "reflection"))
        # The softmax of two logits is the sigmoid of their difference.
        context = self._of(relations, "context") / math.sqrt(self.config.dim)
        weight = torch.sigmoid((context * (rotated - reflected)).sum(-1, keepdim=True))
        return torch.lerp(reflected, rotated, weight)

    # --- scores ----------------------------------------------------------------------------------

    def triple_scores(self, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
        """Scores of some tails for each query, (b, k), pair by pair to the last digits.

        Args:
            heads, relations: int64 (b,).
            tails: int64 (b, k).
        """
        query = self.queries(heads, relations).unsqueeze(1)  # (b, 1, d)
        v = F.embedding(tails, self.entity)  # (b, k, d)
        if self.curvature is None:
            distance_sq = (query - v).square().sum(-1)
        else:
            c = F.embedding(relations, self.curvature.value).unsqueeze(1)  # (b, 1, 1)
            distance_sq = lorentz.dist_sq(query, lorentz.exp0(v, c), c)
        return self._bias_of(heads).unsqueeze(1) + self._bias_of(tails) - distance_sq

    def forward(self, triples: Tensor) -> Tensor:
        """Scores of triples (m, 3): shape (m,)."""
        heads, relations, tails = triples.unbind(-1)
        return self.triple_scores(heads, relations, tails.unsqueeze(-1)).squeeze(-1)

    def scores(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Scores of every entity as the tail of each query, (b, entities).

        One matrix product; `scoring` has the error bound.
        """
        query, bias = self.queries(heads, relations), self._bias_of(heads).unsqueeze(1)
        if self.curvature is None:
            return bias - query.square().sum(-1, keepdim=True) + self._logits(query)
        with no_autocast(query):
            return bias + scoring.all_scores(*self._terms(query, relations))

    def softmax_loss(self, triples: Tensor, *, smoothing: float = 0.0) -> Tensor:
        """Mean cross-entropy of the tails of triples (m, 3) among all entities.

        Elementwise work on (m, entities) tables, for the most part: on a GPU
        `torch.compile(model.softmax_loss)` is worth its minute.

        Args:
            triples: int64 (m, 3), reciprocals among them.
            smoothing: the share of probability that is spread over all entities.
        """
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing must lie in [0, 1), got {smoothing}")
        heads, relations, tails = triples.unbind(-1)
        query = self.queries(heads, relations)
        if self.curvature is None:  # what all scores of a row share drops out of a softmax
            return F.cross_entropy(self._logits(query), tails, label_smoothing=smoothing)
        with no_autocast(query):
            terms, rows = self._terms(query, relations)
            return scoring.softmax_loss(terms, rows, tails, smoothing=smoothing)

    def _logits(self, query: Tensor) -> Tensor:
        """`b_v − |q − v|² + |q|²` of all entities, Euclidean."""
        with no_autocast(query):
            return F.linear(2 * query, self.entity, self.bias - self.entity.square().sum(-1))

    def _terms(self, query: Tensor, relations: Tensor) -> tuple[scoring.ScoreTerms, Tensor | None]:
        assert self.curvature is not None
        return scoring.score_terms(query, self.curvature.value, relations, self.entity, self.bias)

    def _bias_of(self, entities: Tensor) -> Tensor:
        return F.embedding(entities, self.bias.unsqueeze(-1)).squeeze(-1)


def rotate_pairs(v: Tensor, angle: Tensor) -> Tensor:
    """Rotate each pair of coordinates of v (..., d) by its angle (..., d/2)."""
    x, y = v.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.stack([cos * x - sin * y, sin * x + cos * y], -1).flatten(-2)


def reflect_pairs(v: Tensor, angle: Tensor) -> Tensor:
    """Reflect each pair of coordinates of v (..., d) in the line at half its angle (..., d/2)."""
    x, y = v.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.stack([cos * x + sin * y, sin * x - cos * y], -1).flatten(-2)
