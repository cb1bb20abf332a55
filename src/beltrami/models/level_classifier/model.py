"""Features to a point, and from the point scores of the classes at each level."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

import beltrami.nn as bnn
from beltrami.models.level_classifier.config import LevelConfig
from beltrami.models.spaces import make_space

_HEADS = {"mlr": bnn.MLR, "distance": bnn.DistanceClassifier}


class LevelClassifier(nn.Module):
    """One embedding, one head a level: they share the point, so near classes share their ancestors.

    Features are taken as points first (as space parts, in the ball by exp0), then go through linear
    layers of the manifold with activations between them. The model owns the curvature.
    """

    def __init__(self, config: LevelConfig) -> None:
        super().__init__()
        self.config = config
        self.manifold, self.curvature = make_space(
            config.geometry, config.curvature, config.learn_curvature
        )
        form = "exp0" if config.geometry == "ball" else "space"
        layers: list[nn.Module] = [bnn.Lift(config.features, manifold=self.manifold, form=form)]
        sizes = (config.features, *config.widths)
        for i, (before, after) in enumerate(pairwise(sizes)):
            if i:
                layers.append(bnn.Activation(config.activation, manifold=self.manifold))
            layers.append(bnn.Dropout(config.dropout, manifold=self.manifold))
            layers.append(bnn.Linear(before, after, manifold=self.manifold))
        self.encoder = bnn.Sequential(*layers)
        self.heads = nn.ModuleList(
            _HEADS[config.head](config.widths[-1], classes, manifold=self.manifold)
            for classes in config.classes
        )
        bnn.check_model(self)

    def forward(self, features: Tensor) -> list[Tensor]:
        """Features (n, f) to scores of each level, (n, classes of the level)."""
        points = self.encoder(features)
        return [head(points) for head in self.heads]
