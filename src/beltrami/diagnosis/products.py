"""Which product of spaces is suggested for a sample."""

from __future__ import annotations

from typing import Any

from beltrami.analysis.mixed_curvature import ProductFit, name, suggest_product
from beltrami.diagnosis.numbers import finite
from beltrami.diagnosis.source import Drawn, Tick
from beltrami.train.threads import one_thread

FEWEST, SAMPLE, STEPS = 30, 80, 150


@one_thread()  # matrices of eighty points
def products(drawn: Drawn, seed: int, tick: Tick) -> dict[str, Any]:
    """Products by their distortion of held-out pairs, the best first."""
    if len(drawn.rows) < FEWEST:
        return {"missing": f"{len(drawn.rows)} points are too few; {FEWEST} are the least"}
    suggestion = suggest_product(drawn.distances, sample=SAMPLE, steps=STEPS, seed=seed, tick=tick)
    return {
        "fits": [_written(fit) for fit in suggestion.fits],
        "clear": suggestion.clear,
        "gain_over_best_single": finite(suggestion.gain),
        "gain_half_width": finite(suggestion.gain_half_width),
        "compared": suggestion.compared,
        "samples": suggestion.samples,
    }


def _written(fit: ProductFit) -> dict[str, Any]:
    return {
        "name": name(fit),
        "signature": fit.signature,
        "dimensions": list(fit.dimensions),
        "distortion": fit.distortion,
        "half_width": finite(fit.half_width),
        "curvatures": list(fit.curvatures),
    }
