"""Numbers as the document has them: nothing that is not finite, and intervals as objects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from beltrami.analysis.intervals import Interval, mean_interval
from beltrami.analysis.results import Result

Mean = dict[str, float | None]


def finite(value: float) -> float | None:
    """The number, or None for what JSON cannot hold."""
    return value if math.isfinite(value) else None


def plain(result: Result) -> dict[str, float | None]:
    """The numbers of a result."""
    return {name: finite(value) for name, value in result.as_dict().items()}


def significant(value: float, digits: int = 6) -> float:
    """Rounded, however small or large."""
    return float(f"{value:.{digits}g}")


def mean_of(values: Sequence[float]) -> Mean:
    """The mean with the half width of its 95 % interval."""
    interval = mean_interval(values)
    return {"mean": finite(interval.mean), "half_width": interval.half_width}


def as_interval(estimate: Mean) -> Interval:
    """Rebuild the interval from its JSON."""
    mean = estimate["mean"]
    return Interval(math.nan if mean is None else mean, estimate["half_width"])


def number(value: float | None, digits: int | None = None) -> str:
    """Text of three significant digits, or of `digits` after the point; a dash for None."""
    if value is None:
        return "–"
    return (f"{value:.3g}" if digits is None else f"{value:.{digits}f}").replace("-", "−")


def norm_summary(ordered: Tensor, quantiles: int) -> dict[str, Any]:
    """Mean, extremes, median and quantiles of ascending norms."""
    n = len(ordered)
    at = torch.linspace(0, n - 1, min(quantiles, n)).round().long()
    return {
        "mean": float(ordered.mean()),
        "least": float(ordered[0]),
        "median": float(ordered[n // 2]),
        "most": float(ordered[-1]),
        "quantiles": [significant(v) for v in ordered[at].tolist()],
    }


def fact_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """What is known of a source, as name and value for a page."""
    rows = []
    for name, value in facts.items():
        style = {int: ",", float: ".3g"}.get(type(value), "")
        rows.append((name.replace("_", " ").capitalize(), f"{value:{style}}"))
    return rows
