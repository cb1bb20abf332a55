"""δ of samples beside that of noise, trees, spheres and random graphs of the same size.

A small δ by itself says nothing: noise in many dimensions has one, too, and so has noise of which a
few points are far out. What counts is how far the data are from noise of their own spectrum and, of
vectors, of their own lengths, on the way to a tree: `1 − δ/δ of noise`, of the noise that has less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from beltrami.analysis.gromov import curvature_estimate, delta_hyperbolicity
from beltrami.analysis.null_models import (
    DEGREE,
    random_graph_distances,
    sphere_distances,
    tree_distances,
)
from beltrami.diagnosis.numbers import Mean, mean_of
from beltrami.diagnosis.source import Drawn, Source, Tick

DATA, NOISE, AT_RADII = "data", "noise", "noise of equal lengths"
REFERENCES = {
    "tree": "a random tree",
    "sphere": "points on a sphere's surface",
    "random graph": "a random graph of mean degree 4",
}


def tree_likeness(source: Source, drawn: Sequence[Drawn], seed: int, tick: Tick) -> dict[str, Any]:
    """Relative δ of all, with intervals over the samples; differences are paired by sample."""
    noises = {NOISE: source.noise}
    if source.noise_at_radii:
        noises[AT_RADII] = source.noise_at_radii
    scores: dict[str, list[float]] = {name: [] for name in (DATA, *noises, *REFERENCES)}
    deltas, diameters = [], []
    done = 0

    def relative(d: Tensor) -> float:
        nonlocal done
        value = delta_hyperbolicity(d, "distances").relative
        done += 1
        tick(done / (len(drawn) * len(scores)))
        return value

    for i, sample in enumerate(drawn):
        n, own = len(sample.rows), seed + i
        delta = delta_hyperbolicity(sample.distances, "distances")
        deltas.append(delta.delta)
        diameters.append(delta.diameter)
        scores[DATA].append(delta.relative)
        done += 1
        scores[NOISE].append(relative(source.null(sample, own)))
        if AT_RADII in noises:
            null = source.null_at_radii(sample, own)
            assert null is not None
            scores[AT_RADII].append(relative(null))
        scores["tree"].append(relative(tree_distances(n, seed=own)))
        scores["sphere"].append(relative(sphere_distances(n, seed=own)))
        degree = min(DEGREE, n - 1)
        scores["random graph"].append(relative(random_graph_distances(n, degree=degree, seed=own)))
    nearest = min(noises, key=lambda name: sum(scores[name]))
    excess = [d - n for d, n in zip(scores[DATA], scores[nearest], strict=True)]
    mean = sum(scores[DATA]) / len(scores[DATA])
    return {
        "relative_delta": {name: mean_of(values) for name, values in scores.items()},
        "excess_over_noise": mean_of(excess),
        "tree_likeness_score": _way(mean_of(excess), mean_of(scores[nearest])),
        "delta": mean_of(deltas),
        "diameter": mean_of(diameters),
        "curvature_by_rule_of_thumb": curvature_estimate(mean),
        "values": scores,
        "compared": len(drawn[0].rows),
        "samples": len(drawn),
        "all_points": len(drawn[0].rows) == source.count,
        "noises": noises,
        "nearest_noise": nearest,
    }


def _way(excess: Mean, noise: Mean) -> Mean:
    """How far from noise, at 0, to a tree, at 1; nothing is on a way between two trees."""
    if not noise["mean"]:
        return {"mean": None, "half_width": None}
    off = excess["half_width"]
    return {
        "mean": -(excess["mean"] or 0.0) / noise["mean"],
        "half_width": None if off is None else off / noise["mean"],
    }
