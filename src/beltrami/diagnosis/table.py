"""Norms, directions and neighbours of the rows of a table."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from beltrami.analysis.hubness import hubness
from beltrami.analysis.intrinsic_dimension import intrinsic_dimension
from beltrami.analysis.isotropy import isotropy
from beltrami.diagnosis.numbers import norm_summary, plain
from beltrami.diagnosis.source import Tick, VectorSource

NEIGHBOURS, OF_HUBS = 20, 10
QUANTILES = 1001  # of the norms, for their picture
BANDS = (("shortest", 0.0), ("short", 0.25), ("middle", 0.5), ("long", 0.75), ("longest", 1.0))
EXAMPLES = 12


def table(source: VectorSource, rows: Tensor, tick: Tick) -> dict[str, Any]:
    """Norms of all rows; isotropy, dimension and hubness of `rows`."""
    points = source.points(rows)
    result: dict[str, Any] = {"norms": norms(source), "compared": len(rows)}
    result["isotropy"] = plain(isotropy(points))
    tick(0.3)
    # Rows that occur twice, as unused tokens do, have no nearest neighbour that says anything.
    k = min(NEIGHBOURS, len(points) - 1)
    if k >= 3:
        dimension = intrinsic_dimension(points, k=k, metric=source.metric)
        result["intrinsic_dimension"] = plain(dimension)
        tick(0.7)
        hubs = hubness(points, k=min(OF_HUBS, k), metric=source.metric)
        result["hubness"] = {**plain(hubs), "hub_label": source.label(int(rows[hubs.hub]))}
    return result


def norms(source: VectorSource) -> dict[str, Any]:
    """How long rows are, and, where they have labels, which."""
    ordered, place = source.norms.sort()
    result = norm_summary(ordered, QUANTILES)
    varied = len(ordered) > 1 and ordered[-1] > 0
    result["variation"] = float(ordered.std() / ordered.mean()) if varied else 0.0
    if source.labels is not None:
        result["bands"] = [_band(source, name, share, ordered, place) for name, share in BANDS]
    return result


def _band(
    source: VectorSource, name: str, share: float, ordered: Tensor, place: Tensor
) -> dict[str, Any]:
    """Some rows whose norms are next to a quantile."""
    n = len(ordered)
    first = min(max(0, round(share * (n - 1)) - EXAMPLES // 2), max(0, n - EXAMPLES))
    near = slice(first, first + EXAMPLES)
    return {
        "name": name,
        "share_shorter": share,
        "from": float(ordered[near][0]),
        "to": float(ordered[near][-1]),
        "examples": [source.label(row) for row in place[near].tolist()],
    }
