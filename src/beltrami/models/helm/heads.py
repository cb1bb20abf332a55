"""Scores of words from points, and their cross-entropy."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from beltrami.geometry import Lorentz, Manifold
from beltrami.kernels.launch.dtypes import upcast
from beltrami.kernels.layers.chunked_cross_entropy import chunked_cross_entropy
from beltrami.kernels.layers.word_scores import (
    ScoreTerms,
    distance_terms,
    hyperplane_terms,
    linear_terms,
    word_products,
    word_scores,
)
from beltrami.models.helm.config import HelmConfig
from beltrami.models.helm.wrapped import (
    has_hooks,
    is_plain,
    is_whole,
    matrix_of,
    must_be_called,
)

IGNORED = -100

# Standard deviation of squared distances between a normalised point and the words' over √d. The
# temperature of "distance" starts where scores vary between words as those of "linear" do, by
# √d·initializer_range.
_VARIATION = 2.4


class WordScores(nn.Module):
    """What the scores of words have beside the matrix W of `lm_head`, by `config.logits`.

    - "linear": `w·x`, and with `time_columns="all"` `+ b·τ(x)`, b the `time`.
    - "mlr": `|w|·(signed distance of x to a hyperplane)`, with normal w at distance a from the
      origin, a the `offset`.
    - "distance": `−d(x, w)²/T`, T learned as its logarithm.
    """

    def __init__(self, config: HelmConfig, manifold: Manifold) -> None:
        super().__init__()
        self.kind = config.logits
        self.fused = config.fused_loss
        self.label_smoothing, self.z_loss = config.label_smoothing, config.z_loss
        self.start = math.log(_VARIATION / config.initializer_range)
        self.manifold = manifold
        words = config.vocab_size
        if self.kind != "linear" and not config.tie_word_embeddings:
            kappa = 1.0 if config.logit_curvature is None else config.logit_curvature
            self.curvature = config.new_curvature(config.hidden_size, kappa)
            self.manifold = Lorentz(self.curvature)
        with_time = self.kind == "linear" and config.time_columns == "all"
        self.time = nn.Parameter(torch.empty(words)) if with_time else None
        self.offset = nn.Parameter(torch.empty(words)) if self.kind == "mlr" else None
        self.log_temperature = nn.Parameter(torch.empty(1)) if self.kind == "distance" else None
        self.log_scales = {"log_temperature"} if self.kind == "distance" else set()

    @property
    def is_product(self) -> bool:
        """Whether scores are `lm_head(x)` and nothing else."""
        return self.kind == "linear" and self.time is None

    def reset_parameters(self) -> None:
        """Times and offsets 0."""
        for p in (self.time, self.offset):
            if p is not None:
                init.zeros_(p)
        if self.log_temperature is not None:
            init.constant_(self.log_temperature, self.start)

    def resize(self, words: int) -> None:
        """Times and offsets for another number of words; those of new words are the mean."""
        for name in ("time", "offset"):
            old = getattr(self, name)
            if old is None or len(old) == words:
                continue
            new = old.detach().mean().expand(words).clone()
            count = min(words, len(old))
            new[:count] = old.detach()[:count]
            setattr(self, name, nn.Parameter(new, requires_grad=old.requires_grad))

    def forward(self, x: Tensor, lm_head: nn.Module) -> Tensor:
        """Scores of points (..., d), (..., V)."""
        if self.is_product:
            scores: Tensor = lm_head(x)
            return scores
        weight = self._weight(lm_head, x.device)
        called = weight is None or must_be_called(lm_head)
        p = lm_head(x) if called else word_products(x, cast(Tensor, weight))
        return word_scores(p.to(x.device), self._terms(x, weight))

    def loss(
        self,
        x: Tensor,
        lm_head: nn.Module,
        labels: Tensor | None,
        scores: Tensor | None,
        *,
        shift_labels: Tensor | None = None,
        num_items_in_batch: float | Tensor | None = None,
        ignore_index: int = IGNORED,
    ) -> Tensor:
        """Cross-entropy of the labels of points (B, T, d), each with the token after it.

        Args:
            x: points. lm_head: the words.
            labels: (B, T), as the tokens stand.
            scores: of the points, or None to compute them by chunks and keep none.
            shift_labels: labels that are shifted already, in the place of labels.
            num_items_in_batch: what the sum is divided by; the mean if None.
            ignore_index: the label of tokens that do not count.
        """
        if shift_labels is None:
            assert labels is not None
            shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
        targets = shift_labels.to(x.device)
        options: dict[str, Any] = {
            "ignore_index": ignore_index, "label_smoothing": self.label_smoothing,
        }  # fmt: skip
        weight = self._weight(lm_head, x.device)
        if weight is None and is_plain(lm_head):
            weight = cast(Tensor, lm_head.weight)
        chunked = is_whole(weight) and not must_be_called(lm_head) and not has_hooks(self)
        if scores is None and weight is not None and chunked:
            return chunked_cross_entropy(
                x,
                weight,
                targets,
                self._terms(x, weight),
                num_items_in_batch=num_items_in_batch,
                z_loss=self.z_loss,
                **options,
            )
        scores = self(x, lm_head=lm_head) if scores is None else scores
        flat, words = upcast(scores.flatten(0, -2)), targets.to(scores.device).flatten()
        total = F.cross_entropy(flat, words, reduction="sum", **options)
        counted = words != ignore_index
        if self.z_loss:
            log_sums = flat.logsumexp(-1)
            total = total + self.z_loss * (log_sums.square() * counted).sum()
        return total / (counted.sum() if num_items_in_batch is None else num_items_in_batch)

    def radius(self, x: Tensor) -> Any:
        """R = 1/√c of the scores."""
        return self.manifold.radius_like(x)

    def _weight(self, lm_head: nn.Module, device: torch.device) -> Tensor | None:
        """The words' normals or points; None where scores need nothing but `lm_head(x)`."""
        if self.kind == "linear":
            return None
        return matrix_of(lm_head, f'logits="{self.kind}"').to(device)

    def _terms(self, x: Tensor, weight: Tensor | None) -> ScoreTerms:
        if self.is_product:
            return ScoreTerms("linear")
        radius = self.radius(x)
        if self.time is not None:
            return linear_terms(x, self.time, radius)
        assert weight is not None
        if self.offset is not None:
            return hyperplane_terms(x, weight, self.offset, radius)
        assert self.log_temperature is not None
        return distance_terms(x, weight, self.log_temperature.exp(), radius)
