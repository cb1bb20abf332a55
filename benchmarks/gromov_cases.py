"""Distances whose δ is found, and those who find it; each in a process of its own.

    python -m benchmarks.gromov_cases COMPETITOR KIND POINTS ROUNDS DEVICE

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
from beltrami.kernels.pairs.row_gaps import row_gaps

OURS, ALL = "beltrami", "beltrami, all quadruples"
PEER = "hypdelta"
NUMPY, BY_ROWS = "numpy", "numpy, a row at a time"
EVERY, EVERY_PLAIN = "beltrami, every triple", "torch, every triple"
NOISE, FLAT, MANY = "64 dimensions", "2 dimensions", "768 dimensions"
TREE, CURVED = "a tree and noise", "8 hyperbolic dimensions"
DIMENSIONS = {NOISE: 64, FLAT: 2, MANY: 768}
SEEN = 1500  # points at which all are compared
MOST = 50_000  # points on a GPU
_ROWS = 4096  # of distances made at once
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


def problems(quick: bool, device: str = "cpu") -> list[Problem]:
    """All kinds at one size; then other sizes of one kind."""
    if device == "cuda":
        large, small = (400, 40) if quick else (MOST, 10_000)
        return [
            Problem(NOISE, small, (OURS, EVERY, EVERY_PLAIN)),
            Problem(NOISE, large, (OURS, EVERY)),
            *(Problem(kind, large, (OURS,)) for kind in (TREE, CURVED)),
        ]
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


def distances(kind: str, n: int, device: str = "cpu") -> Tensor:
    """In float64 on the CPU, and in float32 on a GPU, which is what many points are compared in."""
    g = torch.Generator().manual_seed(0)
    if kind == TREE:
        there = torch.Generator(device).manual_seed(0)
        noise = torch.rand(n, n, generator=there, dtype=torch.float64, device=device)
        d = noise.mul_(0.1).add_(tree_distances(n, device=device))
    elif kind == CURVED:
        tangent = torch.randn(n, 8, generator=g, dtype=torch.float64)
        d = _by_rows(lorentz.pairwise_dist, lorentz.exp0(tangent).to(device))
    else:
        x = torch.randn(n, DIMENSIONS[kind], generator=g, dtype=torch.float64)
        d = _by_rows(torch.cdist, x.to(device))
    return symmetric(d.float() if device == "cuda" else d)


def _by_rows(dist: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
    """Distances among points, without much else in memory."""
    found = x.new_empty(len(x), len(x))
    for first in range(0, len(x), _ROWS):
        found[first : first + _ROWS] = dist(x[first : first + _ROWS], x)
    return found


# --- competitors ----------------------------------------------------------------------------------


def solver(competitor: str, d: Tensor) -> Callable[[], float]:
    """Finds δ; what is loaded, compiled and turned into another format comes before."""
    if competitor in (OURS, ALL):
        from beltrami.analysis.gromov import delta_hyperbolicity

        if competitor == ALL:
            return lambda: delta_hyperbolicity(d, "distances", base="all").delta
        return lambda: delta_hyperbolicity(d, "distances").delta
    if competitor in (EVERY, EVERY_PLAIN):
        return _every_triple(d, fused=competitor == EVERY)
    if competitor == PEER:
        return _peer(d)
    return _of_numpy(d.numpy(), by_rows=competitor == BY_ROWS)


def _every_triple(d: Tensor, *, fused: bool) -> Callable[[], float]:
    """Without bounds that leave pairs out: the kernel, or what torch has."""

    def find() -> float:
        products = (d[:1] + d[:, :1]).sub_(d).div_(2).fill_diagonal_(-torch.inf)
        return float(row_gaps(products, 0, len(d), fused=fused).max())

    return find


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


def measure(competitor: str, kind: str, n: int, rounds: int, device: str = "cpu") -> dict[str, Any]:
    """Milliseconds of each round, the memory that the first one added, and δ.

    On the CPU of its one thread, on a GPU until it is done.
    """
    torch.set_num_threads(1)
    on_gpu = device == "cuda"
    if on_gpu:  # what is compiled comes before; for sizes that 16 divides it is another kernel
        solver(competitor, distances(kind, 400, device))()
    find = solver(competitor, distances(kind, n, device))
    clock = time.perf_counter if on_gpu else time.process_time
    before = _held(on_gpu)
    delta, times = 0.0, []
    for _ in range(rounds):
        start = clock()
        delta = find()  # a number, for which a GPU is waited for
        times.append(1e3 * (clock() - start))
    return {"times": times, "mib": (_most_held(on_gpu) - before) / _MIB, "delta": delta}


def _held(on_gpu: bool) -> int:
    """Bytes, from which on the most is looked for."""
    if not on_gpu:
        return _most_held(on_gpu)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _most_held(on_gpu: bool) -> int:
    if on_gpu:
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    who, what, count, turns, where = sys.argv[1:]
    print(json.dumps(measure(who, what, int(count), int(turns), where)))
