"""Which curvature and how many dimensions the distances suggest, beside flat space and noise.

Hyperbolic space holds points that are all about equally far apart in few dimensions, and flat space
does not. So it distorts noise of many dimensions less, too, and that it distorts data less says
little by itself: the fits of noise stand beside those of the data.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from beltrami.analysis.curvature_fit import CurvatureFit, fit_curvature
from beltrami.diagnosis.numbers import finite, plain
from beltrami.diagnosis.source import Drawn, Source, Tick
from beltrami.train.threads import one_thread

DIMENSIONS = (2, 5, 10)
SAMPLE = 300  # points that are embedded at once
# Fewer dimensions are preferred if their distortion is as good: by a share, or by so much.
ENOUGH, TINY = 1.1, 0.01


def curvature(source: Source, drawn: Drawn, repeats: int, seed: int, tick: Tick) -> dict[str, Any]:
    """Fits in several dimensions of data and noise, and the fewest as good as the best."""
    fits = _fits(drawn.distances, repeats, seed, lambda share: tick(share / 2))
    null = _fits(source.null(drawn, seed), repeats, seed, lambda share: tick((1 + share) / 2))
    lowest = min(min(fit.distortion, fit.flat_distortion) for fit in fits)
    good = max(ENOUGH * lowest, lowest + TINY)
    best = next(fit for fit in fits if min(fit.distortion, fit.flat_distortion) <= good)
    return {
        "fits": [_written(fit) for fit in fits],
        "noise_fits": [_written(fit) for fit in null],
        "best_dimensions": best.dimensions,
        "best_c": best.c,
        "by_delta_c": finite(best.by_delta),
        "by_triangles_curvature": finite(best.by_triangles),
        "unit": "1/distance²",
    }


@one_thread()  # eigenvectors of many small matrices
def _fits(d: Tensor, repeats: int, seed: int, tick: Tick) -> list[CurvatureFit]:
    n = len(d)
    tried = [k for k in DIMENSIONS if k < min(n, SAMPLE) - 1] or [1]
    fits: list[CurvatureFit] = []
    for i, dimensions in enumerate(tried):

        def part(share: float, first: int = i) -> None:
            tick((first + share) / len(tried))

        fits.append(
            fit_curvature(
                d,
                dimensions=dimensions,
                sample=min(SAMPLE, n),
                repeats=repeats,
                seed=seed,
                tick=part,
            )
        )
    return fits


def _written(fit: CurvatureFit) -> dict[str, Any]:
    numbers: dict[str, Any] = dict(plain(fit))
    for name in ("dimensions", "triangles", "points", "compared", "samples"):
        numbers[name] = int(numbers[name])
    return {**numbers, "ladder": [list(step) for step in fit.ladder]}
