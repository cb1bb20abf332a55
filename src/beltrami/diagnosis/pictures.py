"""A sample in the Poincaré disk, three ways, with what each costs."""

from __future__ import annotations

import math
from typing import Any

from beltrami.analysis.curvature_fit import fit_curvature
from beltrami.analysis.hmds import hmds
from beltrami.analysis.horopca import horopca
from beltrami.analysis.lowering import Lowered, lowered_distances
from beltrami.analysis.tangent_pca import tangent_pca
from beltrami.diagnosis.source import Drawn, Source, Tick
from beltrami.geometry import poincare
from beltrami.train.threads import one_thread

SHOWN = 300  # points
DIMENSIONS = 10  # of the embedding that the two kinds of PCA begin with
# √c·diameter: in a flatter disk all points are near its centre, in a more curved one at its rim.
LEAST_BEND, MOST_BEND = 2.0, 10.0
METHODS = {
    "tangent PCA": "principal components of tangent vectors",
    "hMDS": "directly from the distances",
    "HoroPCA": "principal directions to infinity",
}
_DIGITS = 6


@one_thread()  # few points, many steps
def pictures(source: Source, drawn: Drawn, seed: int, tick: Tick) -> dict[str, Any]:
    """Points of the disk by each method, with the distortion of the distances of the data."""
    d = drawn.distances[:SHOWN, :SHOWN]
    rows = drawn.rows[:SHOWN]
    diameter = float(d.max())
    fitted = fit_curvature(d, repeats=1, sample=len(d), seed=seed).bend
    bend = min(max(fitted, LEAST_BEND), MOST_BEND)
    c = (bend / diameter) ** 2
    tick(0.2)
    start = hmds(d, c, components=min(DIMENSIONS, len(d) - 1)).points
    seen = {"hMDS": hmds(d, c), "tangent PCA": tangent_pca(start, c)}
    tick(0.4)
    seen["HoroPCA"] = horopca(start, c, seed=seed, tick=lambda share: tick(0.4 + 0.6 * share))
    for name in ("tangent PCA", "HoroPCA"):  # whose distortion was that of the embedding before
        seen[name] = lowered_distances(d, seen[name].points, seen[name].c)
    return {
        "c": c,
        "bend": bend,
        "dimensions_before": start.shape[1],
        "labels": [source.label(row) for row in rows.tolist()],
        "methods": {name: _shown(seen[name]) for name in METHODS},
    }


def _shown(lowered: Lowered) -> dict[str, Any]:
    disk = math.sqrt(lowered.c) * poincare.from_lorentz(lowered.points, lowered.c)
    return {
        "distortion": lowered.distortion,
        "points": [[round(x, _DIGITS) for x in point] for point in disk.tolist()],
    }
