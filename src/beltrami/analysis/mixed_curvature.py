r"""Which product of curved and flat spaces holds distances best, of those with as many dimensions.

Each factor is hyperbolic (H), flat (E) or spherical (S), with a curvature of its own; a product's
squared distance is the sum of its factors' (Gu et al., 2019). Points and curvatures are fitted by
gradient steps to some pairs of points, and judged by the distortion of the others: a space of more
freedom does not win by fitting what it was shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from beltrami.analysis.gromov import FEWEST
from beltrami.analysis.intervals import mean_interval
from beltrami.analysis.matrices import check_distances, classical_scaling, symmetric
from beltrami.analysis.results import Result
from beltrami.checks import check_integer
from beltrami.geometry import lorentz
from beltrami.report.dots import Estimate, Group, dot_chart
from beltrami.report.picture import Picture

SIGNATURES = ("H", "E", "S", "HE", "HS", "HH", "ES")
HELD_OUT = 0.2  # share of pairs that judge
_CURVATURE = 1.0  # at the start, in units of 1/(mean distance)²
_MOST_ROUND = 0.98 * math.pi  # √c·radius, short of the far pole
_RATE = 0.03
SAME = 1e-6  # of the mean distance: points nearer than this are one, and have no distortion


@dataclass(frozen=True)
class ProductFit(Result):
    """A product of spaces fitted to distances.

    Args:
        signature: a letter a factor: H, E or S.
        dimensions: of each factor.
        distortion: mean |d'/d − 1| over pairs that were not fitted; mean over samples. half_width:
            of its 95 % interval, NaN for a single sample.
        curvatures: of each factor, negative for H, 0 for E; mean over samples, in 1/distance².
    """

    signature: str
    dimensions: tuple[int, ...]
    distortion: float
    half_width: float
    curvatures: tuple[float, ...]


@dataclass(frozen=True)
class ProductSuggestion(Result):
    """Products fitted to the same distances, the best first.

    Args:
        fits: all that were tried. clear: whether the best is better than the best single space, by
            the interval of their difference over samples; of few points these share all of them,
            and then it only covers what was held out and where a fit began.
        gain: that difference of distortions. gain_half_width: of its interval.
        points: how many there are. compared: at once. samples: how many.
    """

    fits: tuple[ProductFit, ...]
    clear: bool
    gain: float
    gain_half_width: float
    points: int
    compared: int
    samples: int

    def plot(self) -> Picture:
        """Distortions of all products."""
        groups = [
            Group(name(fit), {"distortion": Estimate.around(fit.distortion, fit.half_width)})
            for fit in self.fits
        ]
        return Picture(
            dot_chart(
                groups,
                title="Products of spaces",
                description="Distortion of pairs that were not fitted.",
                x_label="Distortion",
            )
        )


def name(fit: ProductFit) -> str:
    """Such as H3 × E3."""
    parts = zip(fit.signature, fit.dimensions, strict=True)
    return " × ".join(f"{kind}{size}" for kind, size in parts)


def suggest_product(
    distances: Tensor,
    *,
    dimensions: int = 6,
    signatures: Sequence[str] = SIGNATURES,
    sample: int = 150,
    repeats: int = 3,
    steps: int = 300,
    seed: int = 0,
    tick: Callable[[float], None] = lambda share: None,
) -> ProductSuggestion:
    """Fit products of spaces to distances.

    Args:
        distances: (n, n), symmetric, 0 on the diagonal.
        dimensions: of each product, shared out among its factors.
        signatures: which to try, a letter a factor.
        sample: points at a time, drawn `repeats` times; of fewer points, all of them each time.
        repeats, seed: of the draws, of what is held out and of the starts.
        steps: of Adam.
        tick: called with the share of the work that is done.
    """
    check_integer("dimensions", dimensions)
    check_integer("repeats", repeats)
    check_integer("steps", steps)
    check_integer("sample", sample, low=2 * FEWEST)
    if not signatures or len(set(signatures)) < len(signatures):
        raise ValueError(f"signatures must not be empty or repeat one, got {tuple(signatures)}")
    for signature in signatures:
        if not signature or set(signature) - set("HES") or len(signature) > dimensions:
            raise ValueError(
                f"signatures are letters H, E and S, at most {dimensions}, got {signature!r}"
            )
    check_distances(distances)
    if len(distances) < 2 * FEWEST:
        raise ValueError(f"a product takes {2 * FEWEST} points, and there are {len(distances)}")
    d = symmetric(distances.detach())
    g = torch.Generator().manual_seed(seed)
    results: dict[str, list[tuple[float, list[float]]]] = {s: [] for s in signatures}
    done = 0
    for _ in range(repeats):
        chosen = torch.randperm(len(d), generator=g)[:sample].to(d.device)
        part = d[chosen][:, chosen].double()
        if not float(part.max()) > 0:
            raise ValueError("all points coincide: there is no curvature to find")
        held = (torch.rand(len(part), len(part), generator=g) < HELD_OUT).triu(1).to(d.device)
        held |= held.mT.clone()
        unit, begin = _start(part, held, dimensions, g)
        for signature in signatures:
            distortion, curvatures = _fitted(part / unit, held, signature, begin, steps)
            results[signature].append((distortion, [c / unit**2 for c in curvatures]))
            done += 1
            tick(done / (repeats * len(signatures)))
    return _suggestion(results, dimensions, len(d), min(sample, len(d)))


def _start(d: Tensor, held: Tensor, dimensions: int, g: torch.Generator) -> tuple[float, Tensor]:
    """The mean distance, and a start that all products share, from pairs that are shown alone.

    Flat scaling, turned so that no factor has all of the spread. What is held out is replaced by
    the shortest way over one point.
    """
    n = len(d)
    shown = torch.where(held, torch.inf, d)
    around = torch.stack([(row + shown).amin(1) for row in shown])
    seen = torch.where(held & torch.isfinite(around), around, torch.where(held, d[~held].mean(), d))
    unit = float(seen[seen > 0].mean())
    x = classical_scaling(seen / unit)[:, :dimensions]
    x = F.pad(x, (0, dimensions - x.shape[1]))
    turn = torch.linalg.qr(torch.randn(dimensions, dimensions, generator=g, dtype=d.dtype))[0]
    noise = torch.randn(n, dimensions, generator=g, dtype=d.dtype)
    start: Tensor = x @ turn.to(d.device) + 0.01 * noise.to(d.device)
    return unit, start


def _fitted(
    d: Tensor, held: Tensor, signature: str, begin: Tensor, steps: int
) -> tuple[float, list[float]]:
    """The distortion of held-out pairs, and the curvatures of the factors."""
    sizes = split(begin.shape[1], len(signature))
    x = begin.clone().requires_grad_()
    log_c = torch.full((len(signature),), math.log(_CURVATURE), dtype=d.dtype, device=d.device)
    log_c.requires_grad_()
    apart = d > SAME
    shown, judged = apart & ~held, apart & held
    if not bool(judged.any()):
        judged = shown
    optimizer = torch.optim.Adam([x, log_c], lr=_RATE)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _RATE * (1 - step / steps)
        optimizer.zero_grad()
        off = _distances(x, log_c, signature, sizes)[shown] / d[shown] - 1
        off.square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        off = _distances(x, log_c, signature, sizes)[judged] / d[judged] - 1
        signs = {"H": -1.0, "E": 0.0, "S": 1.0}
        curvatures = [
            signs[kind] * float(c) for kind, c in zip(signature, log_c.exp(), strict=True)
        ]
        return float(off.abs().mean()), curvatures


def split(dimensions: int, factors: int) -> tuple[int, ...]:
    """Dimensions shared out evenly, the first factors having one more where it does not divide."""
    each, more = divmod(dimensions, factors)
    return tuple(each + (i < more) for i in range(factors))


def _distances(x: Tensor, log_c: Tensor, signature: str, sizes: Sequence[int]) -> Tensor:
    """Of the product, from tangent vectors at the origins of its factors."""
    squares = []
    for kind, part, c in zip(signature, x.split(list(sizes), 1), log_c.exp(), strict=True):
        if kind == "E":
            squares.append(_squares(part, part))
        elif kind == "H":
            points = lorentz.exp0(part, c)
            squares.append(lorentz.dist_sq(points.unsqueeze(1), points.unsqueeze(0), c))
        else:
            squares.append(_round_squares(part, c))
    total = torch.stack(squares).sum(0)
    own = torch.eye(len(x), dtype=torch.bool, device=x.device)
    return torch.where(own, 1.0, total).sqrt()


def _squares(x: Tensor, y: Tensor) -> Tensor:
    """Squared distances of flat space, by differences."""
    return (x.unsqueeze(1) - y.unsqueeze(0)).square().sum(-1)


def _round_squares(v: Tensor, c: Tensor) -> Tensor:
    """On the sphere of curvature c, of tangent vectors at a pole."""
    length = v.square().sum(-1, keepdim=True).add(1e-30).sqrt()
    angle = (length * c.sqrt()).clamp(max=_MOST_ROUND)
    points = torch.cat([torch.cos(angle), torch.sin(angle) * v / length], 1)
    gap, total = _squares(points, points), _squares(points, -points)
    half = torch.atan2((gap + 1e-30).sqrt(), (total + 1e-30).sqrt())
    return (2 * half).square() / c


def _suggestion(
    results: dict[str, list[tuple[float, list[float]]]], dimensions: int, n: int, compared: int
) -> ProductSuggestion:
    fits = []
    for signature, of_samples in results.items():
        distortion, off = _interval([distortion for distortion, _ in of_samples])
        curvatures = zip(*(c for _, c in of_samples), strict=True)
        means = tuple(sum(c) / len(c) for c in curvatures)
        sizes = split(dimensions, len(signature))
        fits.append(ProductFit(signature, sizes, distortion, off, means))
    fits.sort(key=lambda fit: fit.distortion)
    best = fits[0]
    single = next((fit for fit in fits if len(fit.signature) == 1), best)
    pairs = zip(results[single.signature], results[best.signature], strict=True)
    gain, off = _interval([worse[0] - better[0] for worse, better in pairs])
    clear = best is not single and gain > off  # never of a single sample, whose width is NaN
    samples = len(results[best.signature])
    return ProductSuggestion(tuple(fits), clear, gain, off, n, compared, samples)


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its half width, NaN for a single value."""
    interval = mean_interval(values)
    return interval.mean, math.nan if interval.half_width is None else interval.half_width
