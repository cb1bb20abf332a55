"""A hyperbolic classifier head on features, beside its Euclidean twin.

    python examples/classifier_head.py --dim 3

The features are made on the spot, of classes that form a tree. Both heads have the same
parameters, starts, data and steps; each tries the same learning rates.
docs/tutorials/classifier.md explains it.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import beltrami.nn as bnn
from beltrami.analysis.intervals import mean_interval
from beltrami.geometry import Euclidean, Lorentz, Manifold
from beltrami.optim import create_optimizer

FEATURES, BRANCHES, LEVELS = 64, 3, 3  # 27 classes
CLASSES = BRANCHES**LEVELS
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)


def make_data(seed: int, per_class: int = 60) -> list[tuple[Tensor, Tensor]]:
    """Features and labels to train on, to choose the rate by, and to test on."""
    draws = torch.Generator().manual_seed(seed)
    means = torch.zeros(1, FEATURES)
    for _ in range(LEVELS):  # each class lies around its parent
        children = torch.randn(len(means) * BRANCHES, FEATURES, generator=draws)
        means = means.repeat_interleave(BRANCHES, 0) + children
    labels = torch.arange(CLASSES).repeat(per_class)
    features = means[labels] + 1.0 * torch.randn(len(labels), FEATURES, generator=draws)
    features = features / features.std()  # coordinates of variance 1, as after a LayerNorm
    order = torch.randperm(len(labels), generator=draws)
    return [(features[part], labels[part]) for part in order.chunk(3)]


def make_head(options: argparse.Namespace, manifold: Manifold) -> nn.Module:
    """Features to a few coordinates, read as a point, to scores."""
    dim = options.dim
    last: bnn.Layer
    if options.head == "distance":  # to one learned point a class
        last = bnn.DistanceClassifier(dim, CLASSES, manifold=manifold)
    else:  # hyperplanes, or with "busemann" horospheres
        form = "busemann" if options.head == "busemann" else None
        last = bnn.MLR(dim, CLASSES, manifold=manifold, form=form)
    lift = bnn.Lift(dim, manifold=manifold, scale=dim**-0.5)  # exp0: vectors to points
    return nn.Sequential(nn.Linear(FEATURES, dim), lift, last)


def train(
    manifold: Manifold, rate: float, seed: int, options: argparse.Namespace
) -> tuple[float, float]:
    """Accuracy on validation and on test data."""
    (x, y), *others = make_data(seed)
    torch.manual_seed(seed)  # the same start for both geometries
    head = make_head(options, manifold)
    optimizer = create_optimizer(head, "adamw", lr=rate)
    for _ in range(options.steps):
        optimizer.zero_grad()
        F.cross_entropy(head(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        validation, test = ((head(x).argmax(-1) == y).float().mean().item() for x, y in others)
    return validation, test


def main() -> None:
    """Sweep rates on the first seed, run all seeds at the best, compare."""
    parser = argparse.ArgumentParser(description="A hyperbolic classifier head and its flat twin.")
    parser.add_argument("--head", choices=("mlr", "busemann", "distance"), default="mlr")
    parser.add_argument("--dim", type=int, default=3, help="coordinates between the two layers")
    parser.add_argument("--steps", type=int, default=300, help="steps of a training")
    parser.add_argument("--seeds", type=int, default=5, help="data and starts; 2 or more")
    options = parser.parse_args()
    torch.set_num_threads(1)  # more gain nothing at this size

    spaces: dict[str, Manifold] = {"hyperbolic": Lorentz(1.0), "flat": Euclidean()}
    accuracy: dict[str, list[float]] = {}
    for name, manifold in spaces.items():
        tried = {rate: train(manifold, rate, 0, options)[0] for rate in RATES}
        best = max(RATES, key=lambda rate: tried[rate])
        seeds = range(options.seeds)
        accuracy[name] = [train(manifold, best, seed, options)[1] for seed in seeds]
        size = sum(p.numel() for p in make_head(options, manifold).parameters())
        mean = mean_interval(accuracy[name]).format()
        print(f"{name:10} accuracy {mean}, {size} parameters, rate {best}")
    pairs = zip(accuracy["hyperbolic"], accuracy["flat"], strict=True)
    difference = mean_interval([a - b for a, b in pairs])
    print(f"difference {difference.format()} (95 %, paired by seed)")


if __name__ == "__main__":
    main()
