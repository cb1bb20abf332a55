"""Scores of words from points, and their cross-entropy."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from beltrami.geometry import Curvature, Euclidean, Lorentz, Manifold
from beltrami.models.helm.config import HelmConfig


class WordScores(nn.Module):
    """What scores of words have beside the matrix of `lm_head`."""

    def __init__(self, config: HelmConfig, manifold: Manifold) -> None:
        super().__init__()
        self.config, self.kind = config, config.logits
        if self.kind == "mlr":
            kappa = config.logit_curvature or 1.0
            low, high = config.curvature_range
            self.curvature = Curvature.natural(config.hidden_size, kappa, bounds=(min(low, kappa), max(high, kappa)), learnable=config.learn_curvature != "no")
            self.offset = nn.Parameter(torch.empty(config.vocab_size))

    def reset_parameters(self) -> None:
        if self.kind == "mlr":
            nn.init.zeros_(self.offset)

    def numbers(self, h, lm_head):
        c = self.curvature.value
        z = lm_head.weight.float()
        length = (z * z).sum(-1).sqrt()
        root = c.sqrt()
        t = torch.sqrt(1 + c * h.float().square().sum(-1, keepdim=True))
        return t, root * torch.cosh(root * self.offset) / length, torch.sinh(root * self.offset), length / root

    def forward(self, h: Tensor, lm_head: nn.Linear) -> Tensor:
        p = lm_head(h).float()
        if self.kind == "linear":
            return p
        t, a, b, g = self.numbers(h, lm_head)
        return g * torch.asinh(a * p - b * t)

    def loss(self, h: Tensor, lm_head: nn.Linear, labels: Tensor, **kwargs: Any) -> Tensor:
        scores = self(h, lm_head)
        targets = F.pad(labels, (0, 1), value=-100)[:, 1:]
        return F.cross_entropy(scores.flatten(0, 1), targets.flatten())
