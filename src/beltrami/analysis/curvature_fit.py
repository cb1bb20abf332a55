r"""Which curvature distances suggest, in three ways that need not agree.

    by embedding    the c of −c at which `hmds` distorts distances least in some dimensions, next to
                    the best of a ladder of √c·diameter; 0 where flat scaling does better
    by δ            (log 2/δ)²: four points of the plane of curvature −c have δ up to log 2/√c. δ is
                    the largest at a few far base points, so at least half of what it is at all
    by triangles    the median curvature at which the line from a corner to a point between the two
                    others is as long as it is; negative where it is shorter than in flat space

A curvature has the unit 1/distance². What can be compared between data is √c·diameter, how far the
space is from flat where the data are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from beltrami.analysis.gromov import FEWEST, delta_hyperbolicity
from beltrami.analysis.hmds import scaled
from beltrami.analysis.intervals import mean_interval
from beltrami.analysis.lowering import distances_distortion, mean_distortion
from beltrami.analysis.matrices import check_distances, classical_scaling, symmetric
from beltrami.analysis.results import Result
from beltrami.checks import check_integer
from beltrami.report.lines import Series, line_chart
from beltrami.report.picture import Picture

LADDER = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 11.0, 16.0, 22.0, 30.0)  # √c·diameter
TRIANGLES = 2000  # drawn
BASES = 8  # points, the farthest from others, at which δ is taken
BETWEEN = 0.02  # by what share a way over a point may be longer, for it to lie between
INNER = 0.1  # share of a side at either end where no point counts as between
FEWEST_TRIANGLES = 30
_REFINEMENTS = 6  # of √c·diameter, each of which leaves 0.62 of what is left
_BISECTIONS = 60
_MOST_BENT = 30.0  # √|curvature|·side that is looked for, of negative curvature
_MOST_ROUND = 0.99 * math.pi  # and of positive: half a great circle is the longest side there is


@dataclass(frozen=True)
class CurvatureFit(Result):
    """Curvatures −c that distances suggest; see the head of this file.

    Args:
        c: by embedding; 0 is flat. bend: √c·diameter, with the 95 % interval low to high over
            samples, which is NaN for a single one.
        dimensions: of the embedding.
        distortion: of the best hyperbolic embedding. flat_distortion: of classical scaling.
        by_delta: c by δ; infinite for trees.
        by_triangles: curvature, negative for hyperbolic; NaN if too few points lie between others.
        triangles: how many could be used.
        points: how many there are. compared: at once. samples: how many.
        ladder: distortion at each √c·diameter tried, mean over samples.
    """

    c: float
    bend: float
    low: float
    high: float
    dimensions: int
    distortion: float
    flat_distortion: float
    by_delta: float
    by_triangles: float
    triangles: int
    points: int
    compared: int
    samples: int
    ladder: tuple[tuple[float, float], ...] = ()

    def plot(self) -> Picture:
        """Distortion at each curvature that was tried, beside that of flat space."""
        bends = [bend for bend, _ in self.ladder]
        lines = [
            Series("hyperbolic", bends, [distortion for _, distortion in self.ladder]),
            Series("flat", bends, [self.flat_distortion] * len(bends)),
        ]
        return Picture(
            line_chart(
                lines,
                title=f"Distortion in {self.dimensions} dimensions",
                description="How much embeddings of each curvature distort the distances.",
                x_label="√c·diameter",
                y_label="Distortion",
            )
        )


def fit_curvature(
    distances: Tensor,
    *,
    dimensions: int = 2,
    sample: int = 300,
    repeats: int = 5,
    seed: int = 0,
    tick: Callable[[float], None] = lambda share: None,
) -> CurvatureFit:
    """The curvatures that distances suggest.

    Args:
        distances: (n, n), symmetric, 0 on the diagonal.
        dimensions: of the embeddings.
        sample: of more points than this, so many are drawn, `repeats` times.
        repeats, seed: of the draws.
        tick: called with the share of the work that is done.
    """
    check_integer("dimensions", dimensions)
    check_integer("repeats", repeats)
    check_integer("sample", sample, low=max(FEWEST, dimensions + 1))
    check_distances(distances)
    d = symmetric(distances.detach())
    n = len(d)
    if n < FEWEST:
        raise ValueError(f"a curvature takes {FEWEST} points, and there are {n}")
    if n <= dimensions:
        raise ValueError(f"{n} points have {n - 1} dimensions at most, got {dimensions}")
    g = torch.Generator().manual_seed(seed)
    if n <= sample:
        tick(1.0)
        return _of_sample(d.double(), dimensions, g)
    results = []
    for i in range(repeats):
        chosen = torch.randperm(n, generator=g)[:sample].to(d.device)
        results.append(_of_sample(d[chosen][:, chosen].double(), dimensions, g))
        tick((i + 1) / repeats)
    return _mean(results, n)


def _triangle_curvature(d: Tensor, generator: torch.Generator) -> tuple[float, int]:
    """The median curvature of triangles, and how many there were; see the head of this file."""
    n = len(d)
    corner, left, right = (torch.randint(n, (TRIANGLES,), generator=generator) for _ in range(3))
    over = d[left] + d[right] - d[left, right].unsqueeze(1)
    own = torch.arange(TRIANGLES)
    for point in (corner, left, right):
        over[own, point] = torch.inf
    slack, between = over.min(1)
    side, p, q = d[left, right], d[left, between], d[between, right]
    # Not quite between, the point has a foot on the side and a height above it. Which way that
    # points is unknown; on average it adds its square to that of the line.
    foot = (side.square() + p.square() - q.square()) / (2 * torch.where(side > 0, side, 1.0))
    height = (p.square() - foot.square()).clamp(min=0.0)
    line = (d[corner, between].square() - height).clamp(min=0.0).sqrt()
    whole = (side > 0) & (slack <= BETWEEN * side) & (corner != left) & (corner != right)
    whole &= (foot > INNER * side) & (foot < (1 - INNER) * side)
    count = int(whole.sum())
    if count < FEWEST_TRIANGLES:
        return math.nan, count
    parts = (d[corner, left], d[corner, right], foot, side - foot, line)
    return float(_bent(*(t[whole] for t in parts)).median()), count


def _of_sample(d: Tensor, dimensions: int, g: torch.Generator) -> CurvatureFit:
    diameter = float(d.max())
    if diameter == 0:
        raise ValueError("all points coincide: there is no curvature to find")
    flat = _flat_distortion(d, dimensions)
    ladder = tuple((bend, _distortion(d, dimensions, bend)) for bend in LADDER)
    bend, distortion = _refined(d, dimensions, ladder)
    bend = bend if distortion < flat else 0.0
    far = d.amax(1).argsort(descending=True)[:BASES].tolist()
    delta = max(delta_hyperbolicity(d, "distances", base=base).delta for base in far)
    curvature, triangles = _triangle_curvature(d.cpu(), g)
    return CurvatureFit(
        c=(bend / diameter) ** 2,
        bend=bend,
        low=math.nan,
        high=math.nan,
        dimensions=dimensions,
        distortion=distortion,
        flat_distortion=flat,
        by_delta=(math.log(2) / delta) ** 2 if delta > 0 else math.inf,
        by_triangles=curvature,
        triangles=triangles,
        points=len(d),
        compared=len(d),
        samples=1,
        ladder=ladder,
    )


def _refined(
    d: Tensor, dimensions: int, ladder: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """The best step, and what is better between its neighbours, by golden sections."""
    best = min(range(len(ladder)), key=lambda i: ladder[i][1])
    low, high = ladder[max(0, best - 1)][0], ladder[min(len(ladder) - 1, best + 1)][0]
    golden = (math.sqrt(5) - 1) / 2
    lowest = ladder[best]
    for _ in range(_REFINEMENTS):
        width = golden * (high - low)
        tried = [(bend, _distortion(d, dimensions, bend)) for bend in (high - width, low + width)]
        lowest = min(lowest, *tried, key=lambda step: step[1])
        low, high = (low, low + width) if tried[0][1] < tried[1][1] else (high - width, high)
    return lowest


def _distortion(d: Tensor, dimensions: int, bend: float) -> float:
    """Of `hmds` at a √c·diameter."""
    c = (bend / float(d.max())) ** 2
    return distances_distortion(d, scaled(d, c, dimensions), c)


def _flat_distortion(d: Tensor, dimensions: int) -> float:
    """Of classical scaling, at the scale that serves it best."""
    x = classical_scaling(d)[:, :dimensions]
    return mean_distortion(d.__getitem__, lambda rows: torch.cdist(x[rows], x), len(d))


def _bent(left: Tensor, right: Tensor, p: Tensor, q: Tensor, middle: Tensor) -> Tensor:
    """The curvature at which the line to a point between is as long as it is, by bisection.

    Stewart's theorem, `cos(m)·sin(p + q) = cos(l)·sin(q) + cos(r)·sin(p)` in units of the
    curvature, with hyperbolic functions where that is negative. The line grows with it.
    """
    scale = torch.stack([left, right, p + q]).amax(0)
    low = torch.full_like(middle, -(_MOST_BENT**2))
    high = torch.full_like(middle, _MOST_ROUND**2)
    for _ in range(_BISECTIONS):
        guess = (low + high) / 2
        short = _line(left / scale, right / scale, p / scale, q / scale, guess) < middle / scale
        low, high = torch.where(short, guess, low), torch.where(short, high, guess)
    return (low + high) / 2 / scale.square()


def _line(left: Tensor, right: Tensor, p: Tensor, q: Tensor, curvature: Tensor) -> Tensor:
    """How long the line to a point between two corners is, at a curvature of either sign."""
    root = curvature.abs().sqrt()
    near = root < 1e-4  # where flat is right to 1e-8
    root = torch.where(near, 1.0, root)
    a, b, p_, q_ = left * root, right * root, p * root, q * root
    bent = (torch.cosh(a) * torch.sinh(q_) + torch.cosh(b) * torch.sinh(p_)) / torch.sinh(p_ + q_)
    round_ = (torch.cos(a) * torch.sin(q_) + torch.cos(b) * torch.sin(p_)) / torch.sin(p_ + q_)
    hyperbolic = torch.acosh(bent.clamp(min=1.0)) / root
    spherical = torch.acos(round_.clamp(-1.0, 1.0)) / root
    squared = (left.square() * q + right.square() * p) / (p + q) - p * q
    flat = squared.clamp(min=0.0).sqrt()
    return torch.where(near, flat, torch.where(curvature < 0, hyperbolic, spherical))


def _mean(results: Sequence[CurvatureFit], n: int) -> CurvatureFit:
    bend = mean_interval([r.bend for r in results])
    off = math.nan if bend.half_width is None else bend.half_width
    steps = zip(*(r.ladder for r in results), strict=True)
    triangles = [r.by_triangles for r in results if not math.isnan(r.by_triangles)]
    return replace(
        results[0],
        c=_mean_of([r.c for r in results]),
        bend=bend.mean,
        low=max(bend.mean - off, 0.0),  # NaN stays, as the first argument
        high=bend.mean + off,
        distortion=_mean_of([r.distortion for r in results]),
        flat_distortion=_mean_of([r.flat_distortion for r in results]),
        by_delta=_mean_of([r.by_delta for r in results]),
        by_triangles=_mean_of(triangles),
        triangles=sum(r.triangles for r in results),
        points=n,
        samples=len(results),
        ladder=tuple((step[0][0], _mean_of([value for _, value in step])) for step in steps),
    )


def _mean_of(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
