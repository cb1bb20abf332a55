"""Distances whose δ is found, and those who find it; each in a process of its own.

    python -m benchmarks.gromov_cases COMPETITOR KIND POINTS ROUNDS

prints what one of them took, as JSON. In a process of its own, so that its memory can be told.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from beltrami.analysis.matrices import symmetric
from beltrami.analysis.null_models import tree_distances
from beltrami.geometry import lorentz

OURS, ALL = "beltrami", "beltrami, all quadruples"
PEER = "hypdelta"
NUMPY, BY_ROWS = "numpy", "numpy, a row at a time"
NOISE, FLAT, MANY = "64 dimensions", "2 dimensions", "768 dimensions"
TREE, CURVED = "a tree and noise", "8 hyperbolic dimensions"
DIMENSIONS = {NOISE: 64, FLAT: 2, MANY: 768}
SEEN = 1500  # points at which all are compared
_MIB = 1 << 20


@dataclass(frozen=True)
class Problem:
    """Points, and who finds their δ."""

    kind: str
    points: int
    competitors: tuple[str, ...]

    @property
    def title(self) -> str:
        """What `--only` is looked for in."""
        return f"{self.kind}, {self.points} points"


def problems(quick: bool) -> list[Problem]:
    """All kinds at one size; then other sizes of one kind."""
    if quick:
        return [Problem(kind, 40, (OURS, ALL, NUMPY, BY_ROWS)) for kind in (NOISE, TREE)]
    same = [
        Problem(kind, SEEN, (OURS, PEER, BY_ROWS)) for kind in (NOISE, FLAT, MANY, TREE, CURVED)
    ]
    return [
        *same,
        Problem(NOISE, 500, (OURS, ALL, PEER, NUMPY)),
        Problem(NOISE, 5000, (OURS,)),
        Problem(NOISE, 10_000, (OURS,)),
        Problem(NOISE, 1000, (ALL,)),
    ]


def distances(kind: str, n: int) -> Tensor:
    g = torch.Generator().manual_seed(0)
    if kind == TREE:
        noise = 0.1 * torch.rand(n, n, generator=g, dtype=torch.float64)
        d = tree_distances(n) + noise
    elif kind == CURVED:
        x = lorentz.exp0(torch.randn(n, 8, generator=g, dtype=torch.float64))
        d = lorentz.pairwise_dist(x, x)
    else:
        x = torch.randn(n, DIMENSIONS[kind], generator=g, dtype=torch.float64)
        d = torch.cdist(x, x)
    return symmetric(d)


# --- competitors ----------------------------------------------------------------------------------


def solver(competitor: str, d: Tensor) -> Callable[[], float]:
    """Finds δ; what is loaded, compiled and turned into another format comes before."""
    if competitor in (OURS, ALL):
        from beltrami.analysis.gromov import delta_hyperbolicity

        if competitor == ALL:
            return lambda: delta_hyperbolicity(d, "distances", base="all").delta
        return lambda: delta_hyperbolicity(d, "distances").delta
    if competitor == PEER:
        return _peer(d)
    return _of_numpy(d.numpy(), by_rows=competitor == BY_ROWS)


def _peer(d: Tensor) -> Callable[[], float]:
    """hypdelta's exact δ at the first point, by loops that numba compiles."""
    import numpy as np
    from hypdelta.condensed import calculate_delta_condensed

    upper = torch.triu_indices(len(d), len(d), 1)
    condensed = d[upper[0], upper[1]].numpy()
    calculate_delta_condensed(np.ones(6), 4)
    return lambda: float(calculate_delta_condensed(condensed, len(d)))


def _of_numpy(d: Any, *, by_rows: bool) -> Callable[[], float]:
    """The (max, min) product as it is usually written; a row at a time it needs little memory."""
    import numpy as np

    def products() -> Any:
        return (d[:1] + d[:, :1] - d) / 2

    def whole() -> float:
        a = products()
        return float((np.max(np.minimum(a[:, :, None], a[None]), axis=1) - a).max())

    def rows() -> float:
        a = products()
        return max(float((np.minimum(row[:, None], a).max(0) - row).max()) for row in a)

    return rows if by_rows else whole


def measure(competitor: str, kind: str, n: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of each round, the memory that the first one added, and δ."""
    torch.set_num_threads(1)
    find = solver(competitor, distances(kind, n))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    delta, times = 0.0, []
    for _ in range(rounds):
        start = time.process_time()
        delta = find()
        times.append(1e3 * (time.process_time() - start))
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"times": times, "mib": added * 1024 / _MIB, "delta": delta}


if __name__ == "__main__":
    who, what, count, turns = sys.argv[1:]
    print(json.dumps(measure(who, what, int(count), int(turns))))
